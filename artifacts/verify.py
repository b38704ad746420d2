"""Verifying: every digest from a reference down to the last byte, or of a folder that was pulled."""

from __future__ import annotations

from pathlib import Path

import msgspec

from artifacts.digest import Digest, FileEntry, sha256_bytes, sha256_file
from artifacts.durable import reading
from artifacts.errors import RegistryError
from artifacts.layout import Layout
from artifacts.manifest import (
    MANIFEST_JSON_BYTES,
    MANIFEST_NAME,
    RECORD_NAMES,
    SIGNATURE_NAME,
    Manifest,
    parse_manifest,
)
from artifacts.names import parse_ref
from artifacts.oci import Descriptor
from artifacts.registry import Registry
from artifacts.resolve import load_target, resolve, targets_of


class FolderCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A folder held against its ``manifest.json``."""

    path: str
    manifest_digest: Digest
    manifest: Manifest
    checked: tuple[str, ...]
    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    """What lies in the folder and the manifest doesn't name (records of a run and the signature aside)."""

    @property
    def ok(self) -> bool:
        """Whether the folder is exactly what its manifest says."""
        return not (self.missing or self.changed or self.extra)

    @property
    def problems(self) -> tuple[str, ...]:
        """One short sentence for each fault."""
        return (
            *(f"{name} is missing" for name in self.missing),
            *(f"{name} has other content" for name in self.changed),
            *(f"{name} is not named by {MANIFEST_NAME}" for name in self.extra),
        )


class TargetCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One target of the store, every blob of it hashed."""

    target: str
    soc: str
    digest: Digest
    checked: int
    bytes: int
    problems: tuple[str, ...] = ()


class StoreCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A version or target of the store, verified."""

    ref: str
    digest: Digest
    targets: tuple[TargetCheck, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """One short sentence for each fault."""
        return tuple(problem for target in self.targets for problem in target.problems)


def check_folder(folder: Path) -> FolderCheck:
    """Hold a folder against the ``manifest.json`` in it.

    Raises:
        RegistryError: CNV-9004 (no ``manifest.json``), CNV-9008, CNV-9015.
    """
    path = folder / MANIFEST_NAME
    if folder.is_dir() and not path.exists():
        raise RegistryError(
            "CNV-9004",
            f"{folder} is no pulled folder: it has no {MANIFEST_NAME}",
            hint="name a folder that `artifacts pull` made, or a model of the registry",
        )
    with reading(f"reading {path}"), path.open("rb") as stream:
        data = stream.read(MANIFEST_JSON_BYTES + 1)
    manifest = parse_manifest(data, str(path))
    entries = (*manifest.files, *manifest.reports)
    present = [entry for entry in entries if (folder / entry.name).is_file()]
    expected = {MANIFEST_NAME, SIGNATURE_NAME, *RECORD_NAMES, *(entry.name for entry in entries)}
    return FolderCheck(
        path=str(folder),
        manifest_digest=sha256_bytes(data),
        manifest=manifest,
        checked=tuple(entry.name for entry in entries),
        missing=tuple(entry.name for entry in entries if entry not in present),
        changed=tuple(entry.name for entry in present if not _same(folder / entry.name, entry)),
        extra=tuple(sorted(path.name for path in folder.iterdir() if path.name not in expected)),
    )


def _same(path: Path, entry: FileEntry) -> bool:
    with reading(f"reading {path}"):
        return path.stat().st_size == entry.bytes and not path.is_symlink() and sha256_file(path) == entry.sha256


def verify_folder(folder: Path) -> FolderCheck:
    """Verify a pulled folder.

    Raises:
        RegistryError: CNV-9014 listing every difference, and those of :func:`check_folder`.
    """
    found = check_folder(folder)
    if not found.ok:
        raise _failed(str(folder), found.problems, "pull it again")
    return found


def verify_ref(root: Path, text: str) -> StoreCheck:
    """Verify a version or target in the registry: documents against digests, and every file hashed.

    Raises:
        RegistryError: CNV-9014 listing every fault, and those of finding the reference.
    """
    layout, resolved = resolve(Registry(root), parse_ref(text))
    targets = tuple(_check_target(layout, descriptor) for descriptor in targets_of(layout, resolved))
    found = StoreCheck(ref=resolved.ref, digest=resolved.descriptor.digest, targets=targets)
    if found.problems:
        raise _failed(found.ref, found.problems, "publish it again to bring lost blobs back; see `artifacts fsck`")
    return found


def _check_target(layout: Layout, descriptor: Descriptor) -> TargetCheck:
    stored = load_target(layout, descriptor)
    blobs = (stored.image.config, *stored.image.layers)
    problems = tuple(problem for blob in blobs if (problem := blob_problem(layout, blob)))
    return TargetCheck(
        target=stored.manifest.target,
        soc=stored.manifest.soc,
        digest=descriptor.digest,
        checked=len(blobs) + 1,
        bytes=sum(blob.size for blob in blobs) + descriptor.size,
        problems=problems,
    )


def blob_problem(layout: Layout, descriptor: Descriptor) -> str:
    """What is wrong with a blob, in one sentence; empty where it is as its descriptor says."""
    path = layout.blob_path(descriptor.digest)
    what = descriptor.title or descriptor.media_type
    if not path.is_file():
        return f"{what} is missing: {descriptor.digest}"
    with reading(f"reading {path}"):
        size = path.stat().st_size
        if size != descriptor.size:
            return f"{what} has {size} bytes instead of {descriptor.size}: {descriptor.digest}"
        return "" if sha256_file(path) == descriptor.digest else f"{what} has other content: {descriptor.digest}"


def _failed(what: str, problems: tuple[str, ...], hint: str) -> RegistryError:
    return RegistryError("CNV-9014", f"{what} does not verify: {'; '.join(problems)}", hint=hint)
