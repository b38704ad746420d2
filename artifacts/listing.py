"""What ``artifacts list`` and ``artifacts show`` tell, as values."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from artifacts.digest import Digest, FileEntry
from artifacts.errors import RegistryError
from artifacts.layout import Layout
from artifacts.list_cache import MANY_REFS, ListCache, index_stamp
from artifacts.manifest import Manifest, highest, lowest, verdict
from artifacts.names import Ref, target_tag, version_tag
from artifacts.registry import Registry
from artifacts.release import target_key
from artifacts.resolve import Resolved, StoredTarget, load_target, resolve, targets_of
from artifacts.versions import Versions

BYTES_OF_A_REF = 200
"""About what one entry takes in ``index.json``."""


class ListedVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version and the targets that it has (SoC where one is fixed, else the target)."""

    version: str
    ref: str
    digest: Digest
    targets: tuple[str, ...]
    channels: tuple[str, ...] = ()


class ListedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model, its versions newest first. ``problem``: why it can't be read, where it can't."""

    name: str
    versions: tuple[ListedVersion, ...] = ()
    drafts: tuple[ListedVersion, ...] = ()
    """Versions in the making."""
    problem: str = ""


class ShownTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One target in full. Metrics are the worst over all outputs, None where nothing was measured."""

    target: str
    soc: str
    precision: str
    backend: str
    ref: str
    digest: Digest
    bytes: int
    verdict: str
    ran_on: str
    cosine: float | None
    rel_l2: float | None
    files: tuple[FileEntry, ...]
    """All files of the OCI manifest, ``manifest.json`` and reports included."""
    manifest: Manifest


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A version, or one target of it."""

    name: str
    ref: str
    kind: str
    version: str
    digest: Digest
    channels: tuple[str, ...]
    targets: tuple[ShownTarget, ...]


def list_models(registry: Registry, pattern: str = "") -> tuple[ListedModel, ...]:
    """All models whose name contains ``pattern``. One that is damaged is listed with its problem."""
    found = []
    for name in registry.models():
        if pattern not in name:
            continue
        try:
            found.append(list_remembered(registry, name))
        except RegistryError as error:
            found.append(ListedModel(name=name, problem=f"[{error.code}] {error.message}"))
    return tuple(found)


def list_remembered(registry: Registry, name: str) -> ListedModel:
    """One model's versions, from ``cache.db`` where its refs are as they were.

    Raises:
        RegistryError: CNV-9004 to CNV-9008.
    """
    layout, cache = registry.layout(name), ListCache(registry.root)
    stamp = index_stamp(layout)
    if stamp[1] > MANY_REFS * BYTES_OF_A_REF and (data := cache.read(name, stamp)) is not None:
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(data, type=ListedModel)
    listed = list_model(name, layout)
    if stamp[1] > MANY_REFS * BYTES_OF_A_REF:
        cache.write(name, stamp, msgspec.json.encode(listed))
    return listed


def list_model(name: str, layout: Layout) -> ListedModel:
    """One model's versions.

    Raises:
        RegistryError: CNV-9005 to CNV-9008.
    """
    versions = Versions(layout, layout.refs())
    listed = [
        ListedVersion(
            version=version,
            ref=f"{name}:{version_tag(version)}",
            digest=versions.names[version].digest,
            targets=tuple(sorted(target_key(item) for item in versions.targets(version))),
            channels=_channels(versions, versions.names[version].digest),
        )
        for version in reversed(versions.names)
    ]
    drafts = [
        ListedVersion(
            version=version,
            ref=f"{name}:draft-{version_tag(version)}",
            digest=descriptor.digest,
            targets=tuple(sorted(target_key(item) for item in versions.index(descriptor).manifests)),
        )
        for version, descriptor in reversed(versions.drafts.items())
    ]
    return ListedModel(name=name, versions=tuple(listed), drafts=tuple(drafts))


def _channels(versions: Versions, digest: Digest) -> tuple[str, ...]:
    return tuple(channel for channel, descriptor in versions.channels.items() if descriptor.digest == digest)


def show(root: Path, ref: Ref) -> Shown:
    """All that the store knows of a version or target.

    Raises:
        RegistryError: CNV-9001, CNV-9002, and those of reading: CNV-9006 to CNV-9008.
    """
    layout, resolved = resolve(Registry(root), ref)
    versions = Versions(layout, layout.refs())
    stored = [load_target(layout, descriptor) for descriptor in targets_of(layout, resolved)]
    return Shown(
        name=resolved.name,
        ref=resolved.ref,
        kind=resolved.kind,
        version=resolved.version,
        digest=resolved.descriptor.digest,
        channels=_channels(versions, resolved.descriptor.digest),
        targets=tuple(_shown_target(resolved, item) for item in stored),
    )


def _shown_target(resolved: Resolved, stored: StoredTarget) -> ShownTarget:
    manifest = stored.manifest
    ref = resolved.ref
    if resolved.kind == "version" and resolved.version:
        ref = f"{resolved.name}:{target_tag(version_tag(resolved.version), manifest.target, manifest.soc)}"
    return ShownTarget(
        target=manifest.target,
        soc=manifest.soc,
        precision=manifest.precision,
        backend=manifest.backend,
        ref=ref,
        digest=stored.descriptor.digest,
        bytes=sum(entry.bytes for entry in manifest.files),
        verdict=verdict(manifest),
        ran_on=manifest.ran_on,
        cosine=lowest(manifest, "cosine"),
        rel_l2=highest(manifest, "rel_l2"),
        files=tuple(FileEntry(name=item.title, sha256=item.digest, bytes=item.size) for item in stored.image.layers),
        manifest=manifest,
    )
