"""Zip archives that nobody vouches for: the directory is read with bounds, nothing is ever written to disk.

TorchScript, ``torch.save`` and ``torch.export`` files are all zip archives with one root folder. The archive is judged
by its central directory before any member is read: unsafe member names, members listed twice, encrypted members and
sizes that no honest file has are refused.
"""

from __future__ import annotations

import errno
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from convert.errors import LoadError

MAX_MEMBERS = 200_000
MAX_DIRECTORY = 64 << 20
MAX_RATIO = 20
"""A model's members expand to at most this many times the file (and 256 MiB): weights hardly compress."""
SLACK = 256 << 20
END = b"PK\x05\x06"
END_SIZE = 22

CHUNK = 1 << 20
DAMAGE = (zipfile.BadZipFile, EOFError, struct.error, zlib.error, ValueError, RuntimeError, OSError)
"""What the zip reader raises on a damaged archive: an OSError (EINVAL) where a member begins before the file, a
RuntimeError where one is encrypted or packed in a way that Python does not know."""


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a zip file: name → uncompressed size. ``root``: the one folder that holds them all, or ``""``."""

    path: Path
    members: dict[str, int]
    root: str

    def has(self, name: str) -> bool:
        """Whether the archive holds ``name`` below its root."""
        return self.root + name in self.members

    def below(self, folder: str) -> list[str]:
        """Names (without the root) of the members whose path starts with ``folder``."""
        start = self.root + folder
        return [name[len(self.root) :] for name in self.members if name.startswith(start)]

    def read(self, name: str, *, limit: int) -> bytes:
        """The content of a member below the root, or :class:`LoadError` CNV-3020 where it is larger than ``limit``."""
        with zipfile.ZipFile(self.path) as archive:
            return read_member(archive, self.path, self.root + name, limit=limit)

    def start(self, name: str, count: int) -> bytes:
        """The first bytes of a member below the root. Raises :class:`LoadError` CNV-3007 where it is damaged."""
        size = self.path.stat().st_size
        with damage_reported(self.path, size), zipfile.ZipFile(self.path) as archive:
            try:
                with archive.open(self.root + name) as member:
                    return member.read(count)
            except RuntimeError as error:
                raise unsafe(self.path, f"a member that can't be read: {name!r} ({error})") from error

    def read_all(self, names: list[str], *, limit: int) -> Iterator[tuple[str, bytes]]:
        """Several members, ``limit`` bytes at most each; the archive is opened once."""
        with zipfile.ZipFile(self.path) as archive:
            for name in names:
                yield name, read_member(archive, self.path, self.root + name, limit=limit)


def open_archive(path: Path, size: int) -> Archive:
    """Read the central directory of a zip file.

    Raises LoadError: CNV-3007 where the file is cut short or its directory is damaged, CNV-3020 where it is not safe.
    """
    with path.open("rb") as stream:
        check_end_record(path, stream, size)
    with damage_reported(path, size), zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
    members = {info.filename: info.file_size for info in infos}
    check_members(path, infos, members, size)
    roots = {name.partition("/")[0] for name in members if not name.startswith("__MACOSX/")}
    nested = all("/" in name for name in members)
    root = next(iter(roots)) + "/" if len(roots) == 1 and nested else ""
    return Archive(path=path, members=members, root=root)


def check_end_record(path: Path, stream: BinaryIO, size: int) -> None:
    """Refuse a zip without its closing record (CNV-3007), and a central directory of absurd size (CNV-3020)."""
    tail_start = max(0, size - (1 << 16) - END_SIZE)
    stream.seek(tail_start)
    tail = stream.read()
    at = tail.rfind(END)
    if at < 0 or len(tail) - at < END_SIZE:
        raise cut_short(path, size)
    count, directory = struct.unpack_from("<HI", tail, at + 10)
    if directory != 0xFFFFFFFF and (directory > MAX_DIRECTORY or count > MAX_MEMBERS):
        raise unsafe(path, f"a table of contents of {directory} bytes")


def cut_short(path: Path, size: int) -> LoadError:
    """The error for a zip archive whose end is missing."""
    return LoadError(
        "CNV-3007",
        f"{path.name} is cut short or damaged: it starts as a zip archive but its table of contents is missing "
        f"({size:,} bytes are here)",
        hint="download or copy the file again and compare its size and sha256 with the source",
    )


def unsafe(path: Path, what: str) -> LoadError:
    """The error for an archive that no honest tool writes."""
    return LoadError(
        "CNV-3020",
        f"{path.name} is a zip archive that is not safe to open: it has {what}",
        hint="get the model from a source that you trust; no PyTorch version writes such an archive",
    )


@contextmanager
def damage_reported(path: Path, size: int) -> Iterator[None]:
    """Turn what the zip reader raises on a damaged archive into CNV-3007."""
    try:
        yield
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        raise LoadError(
            "CNV-3007",
            f"{path.name} is cut short or damaged: its zip table of contents can't be read ({error}; {size:,} bytes)",
            hint="download or copy the file again and compare its size and sha256 with the source",
        ) from error


def check_members(path: Path, infos: list[zipfile.ZipInfo], members: dict[str, int], size: int) -> None:
    """Refuse archives with unsafe names, double members, encryption, or an absurd expansion."""
    if len(infos) > MAX_MEMBERS:
        raise unsafe(path, f"{len(infos)} members")
    if len(members) != len(infos):
        raise unsafe(path, "members that are listed twice")
    for info in infos:
        parts = info.filename.replace("\\", "/").split("/")
        if ".." in parts or info.filename.startswith(("/", "\\")) or "\x00" in info.orig_filename:
            raise unsafe(path, f"a member that points outside: {info.filename!r}")
        if info.flag_bits & 0x1:
            raise unsafe(path, f"an encrypted member: {info.filename!r}")
    total = sum(members.values())
    if total > MAX_RATIO * size + SLACK:
        raise unsafe(path, f"{size:,} bytes that expand to {total:,}")


def read_member(archive: zipfile.ZipFile, path: Path, name: str, *, limit: int) -> bytes:
    """Read one member, never more than ``limit`` bytes whatever its header declares."""
    size = path.stat().st_size
    try:
        with damage_reported(path, size), archive.open(name) as member:
            data = member.read(limit + 1)
    except KeyError as error:
        raise cut_short(path, size) from error
    except RuntimeError as error:
        raise unsafe(path, f"a member that can't be read: {name!r} ({error})") from error
    if len(data) > limit:
        raise unsafe(path, f"a member larger than {limit:,} bytes: {name!r}")
    return data


def check_sums(path: Path, size: int) -> None:
    """Read every stored member against its checksum: torch itself does not look at them, and loads damaged weights.

    Raises :class:`LoadError` (CNV-3007) naming the damaged members.
    """
    damaged = []
    with damage_reported(path, size), zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_STORED:
                continue
            try:
                with archive.open(info) as member:
                    while member.read(CHUNK):
                        pass
            except zipfile.BadZipFile:
                damaged.append(info.filename)
    if damaged:
        raise LoadError(
            "CNV-3007",
            f"{path.name} is damaged: the checksum of {', '.join(damaged[:5])} is wrong",
            hint="download or copy the file again; saved without checksums (set_crc32_options), it must be saved again",
        )
