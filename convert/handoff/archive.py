"""A bundle as one tar: written the same for the same content, and taken apart without trusting anything in it."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec

from artifacts.digest import CHUNK, Digest, sha256_file
from artifacts.durable import temporary_path
from convert.errors import UsageError
from convert.handoff.bundle import (
    COMPILED,
    JSON_BYTES,
    LOG,
    MAX_FILES,
    MEASURED,
    NAME,
    OUT,
    Bundle,
    is_safe,
    parse_bundle,
)
from convert.validation_file import replace_file

HEADER_BYTES = 16 << 20
"""No header of a tar is this long; reading one at once would be a way to fill the memory."""
EXTRA_BYTES = {COMPILED: 1 << 16, LOG: 1 << 40}
LOG_BYTES = 4 << 20
SHELL = (".sh",)


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle that was written."""

    path: str
    sha256: Digest
    bytes: int


# --------------------------------------------------------------------------------------------------------------- write


def write_archive(
    path: Path, folder_name: str, texts: Mapping[str, bytes], sources: Mapping[str, Path], folders: Sequence[str]
) -> Packed:
    """Write the tar. ``texts`` and ``sources`` are contents by name; ``bundle.json`` goes first, big files stream.

    No owner, no time: equal content makes an equal file. An archive that says the same already stays, after its bytes
    were checked against the digest beside it.
    """
    if (there := _unchanged(path, texts[NAME])) is not None:
        return there
    partial = temporary_path(path.parent, f".{path.name}.part")
    try:
        with partial.open("xb") as stream, tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            tar.addfile(_member(f"{folder_name}/{NAME}", len(texts[NAME])), io.BytesIO(texts[NAME]))
            for folder in folders:
                tar.addfile(_folder(f"{folder_name}/{folder}"))
            for name in sorted({*texts, *sources} - {NAME}):
                _add(tar, f"{folder_name}/{name}", texts.get(name), sources.get(name))
        digest = sha256_file(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    replace_file(_beside(path), f"{digest.removeprefix('sha256:')}  {path.name}\n".encode())
    return Packed(path=str(path), sha256=digest, bytes=path.stat().st_size)


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _unchanged(path: Path, document: bytes) -> Packed | None:
    try:
        words = _beside(path).read_text(encoding="ascii").split()
        with tarfile.open(path, mode="r:") as tar:
            first = tar.next()
            stream = tar.extractfile(first) if first is not None and first.isreg() else None
            if stream is None or first is None or first.size != len(document) or stream.read() != document:
                return None
        digest = sha256_file(path)
    except (OSError, ValueError, tarfile.TarError, EOFError):
        return None
    same = bool(words) and digest == f"sha256:{words[0]}"
    return Packed(path=str(path), sha256=digest, bytes=path.stat().st_size) if same else None


def _add(tar: tarfile.TarFile, name: str, text: bytes | None, source: Path | None) -> None:
    if source is None:
        data = text or b""
        tar.addfile(_member(name, len(data)), io.BytesIO(data))
        return
    with source.open("rb") as stream:
        tar.addfile(_member(name, os.fstat(stream.fileno()).st_size), stream)


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o755 if name.endswith(SHELL) else 0o644
    return member


def _folder(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, 0o755
    return member


# ---------------------------------------------------------------------------------------------------------------- read


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle in a folder of ours, every listed file checked.

    ``brought`` are the files that came with it from elsewhere: names in ``out/`` and ``measured/``, and the log.
    """

    bundle: Bundle
    folder: str
    brought: tuple[str, ...]

    def path(self, name: str) -> Path:
        """Where a file of the bundle lies."""
        return Path(self.folder) / name


def open_bundle(place: Path, folder: Path) -> Opened:
    """Copy a bundle (the archive, or its unpacked folder) into ``folder``, which is ours, and check it.

    Only files that ``bundle.json`` lists, and what was brought in ``out/`` and ``measured/``, are taken. Raises
    :class:`UsageError`: CNV-2301 it can't be read or is no bundle, CNV-2302 its ``bundle.json`` is not valid, CNV-2303
    a member that leaves the folder or is no plain file, CNV-2304 files are missing or changed.
    """
    if place.is_dir():
        return _copied(place, folder)
    if place.exists() and not place.is_file():
        raise not_a_bundle(place, "it is no plain file")
    with _open_tar(place) as tar:
        members = _members(tar, place)
        document = _document(tar, members, place)
        bundle = parse_bundle(document, f"{NAME} of {place}")
        wanted = _wanted(bundle, members)
        _check_sizes(bundle, {name: members[name].size for name in wanted}, place)
        for name in wanted:
            stream = tar.extractfile(members[name])
            assert stream is not None
            _take(stream, members[name].size, folder / name)
    return _checked(bundle, folder, wanted, place)


@contextmanager
def _open_tar(place: Path) -> Iterator[tarfile.TarFile]:
    try:
        with place.open("rb", buffering=0) as raw, tarfile.open(fileobj=_Bounded(raw), mode="r:") as tar:
            yield tar
    except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
        raise not_a_bundle(place, str(error) or "it is no tar") from error
    except OSError as error:
        if error.filename is not None and Path(str(error.filename)) != place:
            raise
        raise not_a_bundle(place, error.strerror or str(error)) from error


def not_a_bundle(place: Path, why: str) -> UsageError:
    """The error for a file or folder that is no bundle."""
    return UsageError(
        "CNV-2301",
        f"{place} is no handoff bundle: {why}",
        hint="give the .handoff.tar that `convert` wrote, or the folder that it unpacks to (unpack other archives)",
    )


class _Bounded(io.BufferedReader):
    """A binary file that gives no more than a header's worth at once, and so bounds what a false size can cost."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to ``size`` bytes."""
        if size is None or size < 0 or size > HEADER_BYTES:
            raise ValueError(f"a header asks for {size} bytes")
        return super().read(size)


def _members(tar: tarfile.TarFile, place: Path) -> dict[str, tarfile.TarInfo]:
    """The plain files by their name in the bundle's folder. Everything suspicious is named at once."""
    found: dict[str, tarfile.TarInfo] = {}
    tops: set[str] = set()
    bad: list[str] = []
    for number, member in enumerate(tar):
        if number > MAX_FILES:
            bad.append(f"more than {MAX_FILES} members")
            break
        name = member.name.removeprefix("./")
        if member.isdir() and (name in ("", ".") or is_safe(name)):
            continue
        if not member.isreg() or member.issparse() or not is_safe(name):
            bad.append(f"{name[:80]!r} is {'no plain file' if is_safe(name) else 'a path that leaves the folder'}")
            continue
        top, _, rest = name.partition("/")
        if rest in found:
            bad.append(f"{name[:80]!r} appears twice")
        tops.add(top if rest else "")
        found[rest or top] = member
    if len(tops) > 1 and not bad:
        bad.append("it has more than one folder")
    if bad:
        raise _unsafe(place, bad)
    return found


def _unsafe(place: Path, bad: Sequence[str]) -> UsageError:
    shown = "; ".join(bad[:5]) + (f"; and {len(bad) - 5} more" if len(bad) > 5 else "")
    return UsageError(
        "CNV-2303",
        f"{place} holds what a bundle never holds: {shown}",
        hint="don't use it: a bundle has one folder of plain files; ask for it again where it came from",
    )


def _document(tar: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo], place: Path) -> bytes:
    member = members.get(NAME)
    stream = tar.extractfile(member) if member is not None else None
    if member is None or stream is None or member.size > JSON_BYTES:
        raise not_a_bundle(place, f"it has no {NAME}" if member is None else f"its {NAME} is too large")
    return stream.read()


def _wanted(bundle: Bundle, there: Mapping[str, object]) -> list[str]:
    listed = {entry.name for entry in bundle.files}
    brought = [name for name in there if name.startswith((f"{OUT}/", f"{MEASURED}/")) or name in EXTRA_BYTES]
    return sorted({*(name for name in listed if name in there), *brought})


def _check_sizes(bundle: Bundle, sizes: Mapping[str, int], place: Path) -> None:
    sized = {entry.name: entry.bytes for entry in bundle.files}
    wrong = [f"{name} is missing" for name in sized if name not in sizes]
    grown = {name: size for name, size in sized.items() if sizes.get(name, size) != size}
    wrong += [f"{name} has {sizes[name]} bytes instead of {size}" for name, size in grown.items()]
    wrong += [f"{name} is too large" for name, limit in EXTRA_BYTES.items() if sizes.get(name, 0) > limit]
    if wrong:
        raise _damaged(place, wrong)


def _damaged(place: Path, wrong: Sequence[str]) -> UsageError:
    shown = "; ".join(wrong[:5]) + (f"; and {len(wrong) - 5} more" if len(wrong) > 5 else "")
    return UsageError(
        "CNV-2304",
        f"{place} is damaged: {shown}",
        hint="carry it over again and compare its sha256sum; only out/ and measured/ may change on the way",
    )


def _checked(bundle: Bundle, folder: Path, names: Sequence[str], place: Path) -> Opened:
    wrong = [
        f"{entry.name} has another content than when it was written"
        for entry in bundle.files
        if sha256_file(folder / entry.name) != entry.sha256
    ]
    if wrong:
        raise _damaged(place, wrong)
    listed = {entry.name for entry in bundle.files}
    return Opened(bundle=bundle, folder=str(folder), brought=tuple(name for name in names if name not in listed))


def _take(stream: IO[bytes], size: int, path: Path) -> None:
    """Write one file anew; of a log, its end is enough."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name == LOG:
        stream.seek(max(0, size - LOG_BYTES))
    with path.open("xb") as target:
        shutil.copyfileobj(stream, target, CHUNK)


def _copied(place: Path, folder: Path) -> Opened:
    """A bundle that was unpacked by its user: copied, so that nothing changes under our hands."""
    place = _inner(place)
    try:
        with (place / NAME).open("rb") as stream:
            document = stream.read(JSON_BYTES + 1)
    except OSError as error:
        raise not_a_bundle(place, f"{NAME} can't be read: {error.strerror}") from error
    bundle = parse_bundle(document, str(place / NAME))
    there = _files_below(place)
    wanted = _wanted(bundle, there)
    _check_sizes(bundle, {name: there[name].stat().st_size for name in wanted}, place)
    for name in wanted:
        with there[name].open("rb") as stream:
            _take(stream, there[name].stat().st_size, folder / name)
    return _checked(bundle, folder, wanted, place)


def _inner(place: Path) -> Path:
    """The folder with ``bundle.json``: the one given, or the only one in it, as unpacking by hand often leaves."""
    if (place / NAME).exists():
        return place
    inner = [item for item in place.iterdir() if (item / NAME).is_file()]
    return inner[0] if len(inner) == 1 else place


def _files_below(place: Path) -> dict[str, Path]:
    """Files by name; links, devices and what can't be named safely is refused, all at once."""
    found: dict[str, Path] = {}
    bad = []
    for root, folders, files in os.walk(place):
        for name in (*folders, *files):
            path = Path(root) / name
            inside = PurePosixPath(path.relative_to(place)).as_posix()
            if path.is_symlink() or not is_safe(inside) or not (path.is_dir() or path.is_file()):
                bad.append(f"{inside[:80]!r} is no plain file")
            elif path.is_file():
                found[inside] = path
        if len(found) > MAX_FILES:
            bad.append(f"more than {MAX_FILES} files")
            break
    if bad:
        raise _unsafe(place, bad)
    return found
