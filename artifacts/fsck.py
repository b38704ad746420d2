"""``artifacts fsck``: every ref walked, every blob hashed, and whatever lies about named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from artifacts.digest import Digest, sha256_file
from artifacts.durable import reading
from artifacts.errors import RegistryError
from artifacts.layout import INDEX_FILE, Layout, LayoutRef
from artifacts.names import DIGEST_PATTERN
from artifacts.oci import INDEX_TYPE, MANIFEST_TYPE, MODEL_TYPE, Descriptor, parse_image, parse_index
from artifacts.registry import Registry
from artifacts.resolve import load_target

Fault = Literal["missing", "corrupt", "invalid", "unreadable"]
Leftover = Literal["unreferenced", "temporary", "foreign"]


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must not be. ``digest`` is empty where it is about no blob."""

    fault: Fault
    what: str
    digest: Digest = ""


class Leaving(msgspec.Struct, frozen=True, kw_only=True):
    """Something that nothing refers to: what a stopped publisher left, or what isn't the registry's. No damage."""

    kind: Leftover
    path: str
    bytes: int


class ModelCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One model's layout. ``blobs`` and ``bytes`` count what was hashed."""

    name: str
    refs: int
    blobs: int
    bytes: int
    damage: tuple[Damage, ...]
    leavings: tuple[Leaving, ...]


class FsckReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a registry."""

    root: str
    models: tuple[ModelCheck, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing is damaged; leavings are no damage."""
        return not any(model.damage for model in self.models)


def fsck(root: Path, names: tuple[str, ...] = ()) -> FsckReport:
    """Check a registry, or some of its models. Writes nothing.

    Raises:
        RegistryError: CNV-9001 (a name that isn't there), CNV-9004.
    """
    registry = Registry(root)
    registry.policy()
    models = tuple(_check_model(name, registry.open_model(name)) for name in names or registry.models())
    return FsckReport(root=str(registry.root), models=models)


def _check_model(name: str, layout: Layout) -> ModelCheck:
    walk = _Walk(layout)
    refs: tuple[LayoutRef, ...] = ()
    try:
        refs = layout.refs()
    except RegistryError as error:
        walk.damage.append(Damage(fault="invalid", what=error.message))
    for ref in refs:
        walk.manifest(ref.descriptor, ref.tag or INDEX_FILE)
    leavings = [*_unreferenced(layout, walk), *_temporary(layout)]
    return ModelCheck(
        name=name,
        refs=len(refs),
        blobs=len(walk.hashed),
        bytes=sum(walk.hashed.values()),
        damage=tuple(walk.damage),
        leavings=tuple(leavings),
    )


class _Walk:
    """What was seen of one layout so far."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.damage: list[Damage] = []
        self.hashed: dict[Digest, int] = {}
        self.referenced: set[Digest] = set()
        self.walked: set[Digest] = set()

    def blob(self, descriptor: Descriptor, what: str) -> bool:
        """Hash a blob, once; whether it is as its descriptor says."""
        digest, path = descriptor.digest, self.layout.blob_path(descriptor.digest)
        first = digest not in self.referenced
        self.referenced.add(digest)
        if first:
            fault = self._hash(path, digest)
            if fault:
                self.damage.append(Damage(fault=fault, what=what, digest=digest))
        if digest in self.hashed and self.hashed[digest] != descriptor.size:
            text = f"{what}: {self.hashed[digest]} bytes where its descriptor says {descriptor.size}"
            self.damage.append(Damage(fault="invalid", what=text, digest=digest))
            return False
        return digest in self.hashed

    def _hash(self, path: Path, digest: Digest) -> Fault | None:
        if not path.is_file():
            return "missing"
        try:
            with reading(f"reading {path}"):
                size, found = path.stat().st_size, sha256_file(path)
        except RegistryError:
            return "unreadable"
        if found != digest:
            return "corrupt"
        self.hashed[digest] = size
        return None

    def manifest(self, descriptor: Descriptor, what: str) -> None:
        """Walk a manifest or index and all below it, however deep subjects are nested."""
        pending = [(descriptor, what)]
        while pending:
            item, name = pending.pop()
            if not self.blob(item, name) or item.digest in self.walked:
                continue
            self.walked.add(item.digest)
            try:
                pending += self._children(item, name)
            except RegistryError as error:
                self.damage.append(Damage(fault="invalid", what=error.message, digest=item.digest))

    def _children(self, descriptor: Descriptor, what: str) -> list[tuple[Descriptor, str]]:
        if descriptor.media_type == INDEX_TYPE:
            index = parse_index(self.layout.read_blob(descriptor.digest, what), what)
            return [(child, f"{what}, {child.digest}") for child in index.manifests]
        if descriptor.media_type != MANIFEST_TYPE:
            return []
        image = parse_image(self.layout.read_blob(descriptor.digest, what), what)
        whole = [self.blob(blob, f"{what}, {blob.title or blob.media_type}") for blob in (image.config, *image.layers)]
        if image.artifact_type == MODEL_TYPE and all(whole):
            load_target(self.layout, descriptor)
        subject = image.subject
        if subject is None or not self.layout.blob_path(subject.digest).exists():
            return []  # A subject may be elsewhere: a channel's old versions are not copied along with its events.
        return [(subject, f"the subject of {what}")]


def _unreferenced(layout: Layout, walk: _Walk) -> list[Leaving]:
    found = []
    for entry in sorted(layout.stored(), key=lambda item: item.name):
        digest = f"sha256:{entry.name}"
        if digest in walk.referenced:
            continue
        is_blob = DIGEST_PATTERN.fullmatch(digest) and entry.is_file(follow_symlinks=False)
        size = entry.stat(follow_symlinks=False).st_size
        found.append(Leaving(kind="unreferenced" if is_blob else "foreign", path=entry.path, bytes=size))
        if is_blob:
            walk.blob(Descriptor(media_type="", digest=digest, size=size), "a blob that nothing refers to")
    return found


def _temporary(layout: Layout) -> list[Leaving]:
    found = []
    if layout.temporary.is_dir():
        with os.scandir(layout.temporary) as entries:
            for entry in sorted(entries, key=lambda item: item.name):
                size = entry.stat(follow_symlinks=False).st_size
                found.append(Leaving(kind="temporary", path=entry.path, bytes=size))
    return found
