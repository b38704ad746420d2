"""One model's OCI image layout: blobs by digest, and ``index.json`` with the refs.

Readers take no lock, since every change of a visible name is a rename. Writers hold ``.lock`` only to change
``index.json``. Other tools may edit ``index.json`` as well: what they wrote there is kept, field by field and in order.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from artifacts.digest import Digest, FileEntry, sha256_bytes, sha256_file
from artifacts.durable import (
    copy_hashed,
    discard,
    discarding,
    fsync_folder,
    link_durable,
    locked,
    make_folders,
    reading,
    temporary_path,
    touch,
    write_durable,
    write_hashed,
    writing,
)
from artifacts.errors import RegistryError
from artifacts.names import DIGEST_PATTERN, check_digest
from artifacts.oci import INDEX_TYPE, REF_NAME, Descriptor
from artifacts.strictjson import INDEX_BYTES, MANIFEST_BYTES, parse_json

LAYOUT_FILE = "oci-layout"
INDEX_FILE = "index.json"
LAYOUT_TEXT = b'{"imageLayoutVersion":"1.0.0"}'
EMPTY_INDEX = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": []}


class LayoutRef(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``index.json``. ``tag`` is empty for an entry without a name."""

    tag: str
    descriptor: Descriptor


class Layout:
    """An OCI image layout at ``root``. Making one touches nothing; ``create`` does."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blobs = root / "blobs" / "sha256"
        self.temporary = root / ".tmp"

    @property
    def exists(self) -> bool:
        """Whether there is a layout: ``oci-layout`` is written last."""
        return (self.root / LAYOUT_FILE).is_file()

    def create(self) -> None:
        """Make the layout, if it isn't there. Safe to call from many processes and after any crash."""
        with writing(f"creating {self.root}"):
            make_folders(self.blobs)
            make_folders(self.temporary)
        if self.exists:
            return
        with locked(self.root / ".lock"), writing(f"creating {self.root}"):
            if self.exists:
                return
            if not (self.root / INDEX_FILE).exists():
                self._replace(INDEX_FILE, _index_bytes(dict(EMPTY_INDEX)))
            self._replace(LAYOUT_FILE, LAYOUT_TEXT)

    def _replace(self, name: str, data: bytes) -> None:
        write_durable(self.root / name, data, temporary=temporary_path(self.temporary, name))
        fsync_folder(self.root)

    # ------------------------------------------------------------------------------------------------------------ refs

    def index_bytes(self) -> bytes:
        """The bytes of ``index.json``."""
        with reading(f"reading the refs of {self.root}"):
            return (self.root / INDEX_FILE).read_bytes()

    def refs(self) -> tuple[LayoutRef, ...]:
        """All entries of ``index.json``, in order.

        Raises:
            RegistryError: CNV-9005 (not valid), CNV-9004.
        """
        return index_refs(parse_index_file(self.index_bytes(), str(self.root / INDEX_FILE)))

    def find(self, tag: str) -> Descriptor | None:
        """What a tag points to."""
        return next((ref.descriptor for ref in self.refs() if ref.tag == tag), None)

    @contextlib.contextmanager
    def edit(self) -> Iterator[IndexEdit]:
        """Change refs under the lock; they appear together, when the block ends without an error.

        Raises:
            RegistryError: CNV-9005 (``index.json`` not valid: never overwritten), CNV-9012, CNV-9003.
        """
        with locked(self.root / ".lock"):
            before = self.index_bytes()
            edit = IndexEdit(parse_index_file(before, str(self.root / INDEX_FILE)))
            yield edit
            if not edit.changed:
                return
            with writing(f"writing the refs of {self.root}"):
                fsync_folder(self.blobs)
                if self.index_bytes() != before:
                    raise RegistryError(
                        "CNV-9012",
                        f"another tool changed {self.root / INDEX_FILE} without taking the lock",
                        hint="run the command again; let no other tool write into a registry in use",
                    )
                self._replace(INDEX_FILE, _index_bytes(edit.document))

    # ----------------------------------------------------------------------------------------------------------- blobs

    def blob_path(self, digest: Digest) -> Path:
        """Where a blob lies, or would."""
        return self.blobs / check_digest(digest, "a descriptor").removeprefix("sha256:")

    def has(self, digest: Digest, size: int) -> bool:
        """Whether a blob is there with the right size. Its content is checked by who reads it, and by ``fsck``."""
        try:
            return self.blob_path(digest).stat().st_size == size
        except OSError:
            return False

    def read_blob(self, digest: Digest, what: str, *, limit: int = MANIFEST_BYTES) -> bytes:
        """A small blob's bytes, checked against its digest. ``what`` names it in errors.

        Raises:
            RegistryError: CNV-9006 (not there), CNV-9007 (other content, or too large), CNV-9004.
        """
        path = self.blob_path(digest)
        if not path.is_file():
            raise missing_blob(what, digest)
        with reading(f"reading {what}"), path.open("rb") as stream:
            data = stream.read(limit + 1)
        if len(data) > limit or sha256_bytes(data) != digest:
            raise corrupt_blob(what, digest)
        return data

    def put_bytes(self, data: bytes) -> Digest:
        """Store bytes as a blob; durable once an edit of the refs has ended."""
        digest = sha256_bytes(data)
        path = self.blob_path(digest)
        with writing(f"storing {digest}"):
            if self._kept(path, digest, len(data)):
                return digest
            write_durable(path, data, temporary=temporary_path(self.temporary, "blob"), mode=0o444)
        return digest

    def put_file(self, source: Path, entry: FileEntry, *, link: bool = False, twins: tuple[Path, ...] = ()) -> None:
        """Store a file as a blob, reading it once.

        Args:
            source: The file. With ``link`` it may share its content with the blob; only for files that nobody edits.
            entry: The digest and size that it must have.
            twins: Blobs of the same digest elsewhere in the registry, preferred for linking.

        Raises:
            RegistryError: CNV-9011 (the file has other content), CNV-9003, CNV-9004.
            ResourceLimit: CNV-1003.
        """
        path = self.blob_path(entry.sha256)
        with writing(f"storing {entry.name}"):
            if self._kept(path, entry.sha256, entry.bytes):
                return
            temporary = temporary_path(self.temporary, "blob")
            with discarding(temporary):
                self._fill(temporary, source, entry, (*twins, source) if link else twins)
                temporary.rename(path)

    def put_stream(self, chunks: Iterable[bytes], digest: Digest) -> bool:
        """Store a stream as a blob; False, and nothing stored, where its content isn't what ``digest`` says."""
        temporary = temporary_path(self.temporary, "blob")
        with writing(f"storing {digest}"):
            try:
                if write_hashed(chunks, temporary) != digest:
                    return False
                temporary.rename(self.blob_path(digest))
                return True
            finally:
                discard(temporary)

    def _kept(self, path: Path, digest: Digest, size: int) -> bool:
        """Whether a blob is there already; one of another size is hashed and, being wrong, replaced by the caller."""
        return self.has(digest, size) and touch(path)

    def _fill(self, temporary: Path, source: Path, entry: FileEntry, linkable: tuple[Path, ...]) -> None:
        for candidate in linkable:
            with reading(f"reading {candidate}"):
                same = candidate.stat().st_size == entry.bytes and sha256_file(candidate) == entry.sha256
            if same and link_durable(candidate, temporary):
                return
        if not source.is_file():
            raise RegistryError("CNV-9004", f"can't read {source}: it is no file", hint="convert the model again")
        if copy_hashed(source, temporary) != (entry.sha256, entry.bytes):
            raise RegistryError(
                "CNV-9011",
                f"{source} changed since it was made: its content is no longer {entry.sha256}",
                hint="convert the model again; nothing was published",
            )

    def stored(self) -> Iterator[os.DirEntry[str]]:
        """The entries of the blob folder."""
        with reading(f"listing {self.blobs}"), os.scandir(self.blobs) as entries:
            yield from entries


class IndexEdit:
    """A change of ``index.json`` in the making. ``document`` keeps every field that other tools wrote."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.changed = False

    def refs(self) -> tuple[LayoutRef, ...]:
        """All entries as they would be written."""
        return index_refs(self.document)

    def find(self, tag: str) -> Descriptor | None:
        """What a tag points to."""
        return next((ref.descriptor for ref in self.refs() if ref.tag == tag), None)

    def set(self, tag: str, descriptor: Descriptor, annotations: dict[str, str] | None = None) -> None:
        """Point a tag to a manifest; a new tag comes last."""
        entry = {
            "mediaType": descriptor.media_type,
            "digest": descriptor.digest,
            "size": descriptor.size,
            "annotations": {**(annotations or {}), REF_NAME: tag},
        }
        entries = self.document["manifests"]
        place = next((number for number, item in enumerate(entries) if _tag(item) == tag), None)
        if place is None:
            entries.append(entry)
        elif entries[place] != entry:
            entries[place] = entry
        else:
            return
        self.changed = True

    def drop(self, tag: str) -> None:
        """Remove a tag, if it is there."""
        entries = self.document["manifests"]
        kept = [item for item in entries if _tag(item) != tag]
        self.changed = self.changed or len(kept) != len(entries)
        self.document["manifests"] = kept


def parse_index_file(data: bytes, what: str) -> dict[str, Any]:
    """Read ``index.json``, keeping unknown fields and the order.

    Raises:
        RegistryError: CNV-9005.
    """
    document: Any = parse_json(data, what, limit=INDEX_BYTES, code="CNV-9005")
    entries = document.get("manifests") if isinstance(document, dict) else None
    if not isinstance(entries, list) or document.get("schemaVersion") != 2:
        raise _bad_index(what, "it has no list `manifests` or another schemaVersion than 2")
    for entry in entries:
        try:
            descriptor = msgspec.convert(entry, Descriptor)
        except msgspec.ValidationError as error:
            raise _bad_index(what, f"an entry is no descriptor: {error}") from None
        if not DIGEST_PATTERN.fullmatch(descriptor.digest) or descriptor.size < 0:
            raise _bad_index(what, f"an entry has the digest {descriptor.digest[:80]!r} and size {descriptor.size}")
    tags = [tag for entry in entries if (tag := _tag(entry))]
    if len(tags) != len(set(tags)):
        raise _bad_index(what, "a tag appears twice")
    checked: dict[str, Any] = document
    return checked


def index_refs(document: dict[str, Any]) -> tuple[LayoutRef, ...]:
    """The entries of a checked ``index.json``."""
    entries = document["manifests"]
    return tuple(LayoutRef(tag=_tag(entry), descriptor=msgspec.convert(entry, Descriptor)) for entry in entries)


def _tag(entry: dict[str, Any]) -> str:
    tag = (entry.get("annotations") or {}).get(REF_NAME, "")
    return tag if isinstance(tag, str) else ""


def _index_bytes(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _bad_index(what: str, why: str) -> RegistryError:
    return RegistryError(
        "CNV-9005",
        f"{what} is not valid: {why}",
        hint="it was left as it is; restore it from a copy or rebuild it from the blobs: see the page of this code",
    )


def missing_blob(what: str, digest: Digest) -> RegistryError:
    """The error for a blob that isn't there."""
    return RegistryError(
        "CNV-9006",
        f"{what} is missing: no blob {digest}",
        hint="publish the same version again to bring it back, or copy it from another registry; see `artifacts fsck`",
    )


def corrupt_blob(what: str, digest: Digest) -> RegistryError:
    """The error for a blob whose content isn't what its name says."""
    return RegistryError(
        "CNV-9007",
        f"{what} is damaged: its content is not {digest}",
        hint="delete that blob, then publish the same version again or copy it from another registry",
    )
