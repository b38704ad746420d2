"""A model's versions as one file: an OCI image layout in a tar (``oci-archive``), to carry across an air gap.

The tar is plain and the same for the same content. Reading one trusts nothing in it: only the files of a layout are
taken, each blob's content must be what its name says, and refs appear last.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from artifacts.digest import CHUNK, Digest, open_regular
from artifacts.durable import fsync_folder, temporary_path, writing
from artifacts.errors import RegistryError
from artifacts.layout import EMPTY_INDEX, LAYOUT_TEXT, Layout, LayoutRef, index_refs, parse_index_file
from artifacts.oci import INDEX_TYPE, MANIFEST_TYPE, REF_NAME, TITLE, parse_image, parse_index
from artifacts.strictjson import INDEX_BYTES
from artifacts.transfer import closure, set_refs

SCHEME = "oci-archive:"
MAX_MEMBERS = 1_000_000
_BLOB = re.compile(r"(?:\./)?blobs/sha256/([0-9a-f]{64})")


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that was written or read."""

    path: str
    tags: tuple[str, ...]
    blobs: int
    bytes: int


def export_archive(layout: Layout, name: str, tags: tuple[str, ...], path: Path) -> Archived:
    """Write refs with all that belongs to them into one file, which appears as a whole.

    Raises:
        RegistryError: CNV-9006, CNV-9007 (what is damaged isn't carried on), CNV-9003.
        ResourceLimit: CNV-1003.
    """
    refs = closure(layout, layout.refs(), tags)
    blobs = _all_blobs(layout, refs)
    entries = [
        {
            "mediaType": ref.descriptor.media_type,
            "digest": ref.descriptor.digest,
            "size": ref.descriptor.size,
            "annotations": {**ref.descriptor.annotations, REF_NAME: ref.tag},
        }
        for ref in refs
    ]
    index = json.dumps({**EMPTY_INDEX, "manifests": entries, "annotations": {TITLE: name}}, separators=(",", ":"))
    temporary = temporary_path(path.absolute().parent, f".{path.name}.part")
    with writing(f"writing {path}"):
        try:
            with temporary.open("xb") as stream:
                _write_tar(stream, layout, index.encode(), sorted(blobs))
                stream.flush()
                os.fsync(stream.fileno())
            temporary.rename(path)
            fsync_folder(path.absolute().parent)
        finally:
            temporary.unlink(missing_ok=True)
    return Archived(path=str(path), tags=tuple(ref.tag for ref in refs), blobs=len(blobs), bytes=path.stat().st_size)


def _all_blobs(layout: Layout, refs: tuple[LayoutRef, ...]) -> set[Digest]:
    found: set[Digest] = set()
    for ref in refs:
        digest = ref.descriptor.digest
        found.add(digest)
        data = layout.read_blob(digest, f"the manifest {digest}")
        if ref.descriptor.media_type == MANIFEST_TYPE:
            image = parse_image(data, f"the manifest {digest}")
            found.update(blob.digest for blob in (image.config, *image.layers))
        elif ref.descriptor.media_type == INDEX_TYPE:
            found.update(item.digest for item in parse_index(data, f"the index {digest}").manifests)
    return found


def _write_tar(stream: IO[bytes], layout: Layout, index: bytes, digests: list[Digest]) -> None:
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in (("oci-layout", LAYOUT_TEXT), ("index.json", index)):
            tar.addfile(_member(name, len(data)), io.BytesIO(data))
        for digest in digests:
            path = layout.blob_path(digest)
            with path.open("rb") as blob:
                tar.addfile(_member(f"blobs/sha256/{path.name}", path.stat().st_size), blob)


def _member(name: str, size: int) -> tarfile.TarInfo:
    """A member without owner or time, so that equal content makes an equal file."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o444
    return member


def import_archive(path: Path, layout: Layout, tags: tuple[str, ...] = ()) -> Archived:
    """Bring an archive's refs (or some of them) into a layout that exists.

    Raises:
        RegistryError: CNV-9070 (no archive of a layout, or a blob in it has other content), CNV-9002 (a tag that it
            lacks), CNV-9065 (a version is here with other content), CNV-9003, CNV-9004.
        ResourceLimit: CNV-1003.
    """
    with _open_tar(path) as tar:
        document = parse_index_file(_read_index(tar, path), f"index.json of {path}")
        refs = tuple(ref for ref in index_refs(document) if ref.tag)
        lost = sorted(set(tags).difference(ref.tag for ref in refs))
        if lost:
            known = ", ".join(ref.tag for ref in refs[:12])
            raise RegistryError(
                "CNV-9002", f"{path} has no {', '.join(lost)}; it has: {known}", hint="name one of these"
            )
        blobs = _import_blobs(tar, layout, path)
    chosen = closure(layout, refs, tags or [ref.tag for ref in refs])
    for digest in _all_blobs(layout, chosen):
        if not layout.blob_path(digest).is_file():
            raise _bad(path, f"it lacks the blob {digest}")
    written = set_refs(layout, list(chosen), str(path))
    return Archived(path=str(path), tags=written, blobs=blobs, bytes=path.stat().st_size)


def archive_name(path: Path) -> str:
    """The model's name as an archive of ours says it; empty where it doesn't."""
    with _open_tar(path) as tar:
        document = parse_index_file(_read_index(tar, path), f"index.json of {path}")
    title = (document.get("annotations") or {}).get(TITLE, "")
    return title if isinstance(title, str) else ""


@contextmanager
def _open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with io.BufferedReader(open_regular(path)) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            yield tar
    except (tarfile.TarError, EOFError) as error:
        raise _bad(path, str(error) or "it is no tar") from error
    except OSError as error:
        if error.filename is None:
            raise _bad(path, str(error)) from error
        raise RegistryError("CNV-9004", f"can't read {path}: {error.strerror}", hint="check the path") from error


def _read_index(tar: tarfile.TarFile, path: Path) -> bytes:
    for number, member in enumerate(tar):
        if number > MAX_MEMBERS:
            break
        if member.isreg() and member.name.removeprefix("./") == "index.json":
            stream = tar.extractfile(member)
            if stream is not None and member.size <= INDEX_BYTES:
                return stream.read()
    raise _bad(path, "it has no index.json")


def _import_blobs(tar: tarfile.TarFile, layout: Layout, path: Path) -> int:
    count = 0
    for member in tar:
        match = _BLOB.fullmatch(member.name)
        if not match or not member.isreg():
            continue
        digest = f"sha256:{match.group(1)}"
        count += 1
        if layout.has(digest, member.size):
            continue
        stream = tar.extractfile(member)
        if stream is None or not layout.put_stream(_chunks(stream), digest):
            raise _bad(path, f"the content of {member.name} is not what its name says")
    return count


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK):
        yield chunk


def _bad(path: Path, why: str) -> RegistryError:
    return RegistryError(
        "CNV-9070",
        f"{path} is no archive of an OCI layout: {why}",
        hint="carry it over again and compare its sha256sum with the original's",
    )
