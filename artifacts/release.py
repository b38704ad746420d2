"""Versions: which one content belongs to, its index, and the tags that make it visible."""

from __future__ import annotations

import msgspec

from artifacts.digest import Digest, sha256_bytes
from artifacts.errors import RegistryError
from artifacts.layout import IndexEdit, Layout
from artifacts.names import TOMBSTONE, base_version, next_patch, next_revision, target_tag, version_tag
from artifacts.oci import INDEX_TYPE, PREFIX, TITLE, VERSION, Descriptor, ImageIndex, describe, document, parse_image
from artifacts.versions import Versions

REMOVED = PREFIX + "removed"
"""The annotation of a tombstone that holds the digest of the removed version's index."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A version to publish as."""

    name: str
    version: str
    targets: tuple[Descriptor, ...]
    """All targets of the version, those of the version that it revises included."""
    present: Digest = ""
    """The digest of the version's index, where it is there already."""


def choose_version(versions: Versions, name: str, version: str, targets: tuple[Descriptor, ...]) -> Choice:
    """The version to publish as: one that has these targets, else the one asked for, its revision, or the next.

    Raises:
        RegistryError: CNV-9009, when ``version`` has another artifact for one of the targets.
    """
    wanted = {target.digest for target in targets}
    line = [item for item in versions.names if not version or base_version(item) == base_version(version)]
    for item in reversed(line):
        if wanted <= {target.digest for target in versions.targets(item)}:
            return Choice(name=name, version=item, targets=targets, present=versions.names[item].digest)
    taken = {**versions.names, **versions.removed}
    version = version or next_patch([*taken, *versions.drafts])
    if version not in versions.names:
        return Choice(name=name, version=version, targets=targets)
    revision = next_revision(version, set(taken))
    union = _union(versions.targets(line[-1]), targets, f"{name}:{version_tag(line[-1])}", revision)
    return Choice(name=name, version=revision, targets=union)


def _union(old: tuple[Descriptor, ...], new: tuple[Descriptor, ...], ref: str, revision: str) -> tuple[Descriptor, ...]:
    """The targets of a version with those that it lacks; one that it has already can't change."""
    present = {target_key(target): target for target in old}
    for target in new:
        there = present.setdefault(target_key(target), target)
        if there.digest != target.digest:
            raise RegistryError(
                "CNV-9009",
                f"{ref} is published with other content for {target_key(target)}:"
                f" {there.digest} is there, {target.digest} was to be published",
                hint=f"a version never changes; publish as --version {revision}, or leave --version out",
            )
    return tuple(present.values())


def add_version(layout: Layout, edit: IndexEdit, choice: Choice) -> Digest:
    """Store a version's index and set its tags; returns the index's digest.

    Raises:
        RegistryError: CNV-9020 (a tag is taken), CNV-9073 (a removed version had that name and other content).
    """
    data = version_index(choice.name, choice.version, choice.targets)
    revive(layout, edit, f"{choice.name}:{version_tag(choice.version)}", choice.version, sha256_bytes(data))
    layout.put_bytes(data)
    index = describe(data, INDEX_TYPE)
    _set_tags(edit, choice.version, index, choice.targets)
    return index.digest


def revive(layout: Layout, edit: IndexEdit, ref: str, version: str, digest: Digest) -> None:
    """Let a removed version come back as it was; refuse another one in its name.

    Raises:
        RegistryError: CNV-9073.
    """
    tombstone = Versions(layout, edit.refs()).removed.get(version)
    if tombstone is None:
        return
    what = f"the tombstone of {ref}"
    before = parse_image(layout.read_blob(tombstone.digest, what), what).annotations.get(REMOVED, "")
    if before != digest:
        raise RegistryError(
            "CNV-9073",
            f"{ref} was removed, and had other content: {before or 'unknown'}",
            hint="a version never changes, not even after it was removed: publish under another version",
        )
    edit.drop(TOMBSTONE + version_tag(version))


def version_index(name: str, version: str, targets: tuple[Descriptor, ...]) -> bytes:
    """The image index of a version. It has no ``artifactType``: skopeo 1.9 drops it and so changes the digest."""
    return document(
        ImageIndex(
            schema_version=2,
            media_type=INDEX_TYPE,
            manifests=tuple(sorted(targets, key=lambda item: target_key(item))),
            annotations={TITLE: name, VERSION: version},
        )
    )


def target_key(descriptor: Descriptor) -> str:
    """What tells the targets of a version apart, read from the index's descriptor."""
    return (descriptor.annotations.get(PREFIX + "soc") or descriptor.annotations.get(PREFIX + "target", "")).lower()


def _set_tags(edit: IndexEdit, version: str, index: Descriptor, targets: tuple[Descriptor, ...]) -> None:
    base = version_tag(version)
    tags = {base: index}
    for target in targets:
        tags[target_tag(base, target_key(target))] = target
    for tag, descriptor in tags.items():
        present = edit.find(tag)
        if present is not None and present.digest != descriptor.digest:
            raise RegistryError(
                "CNV-9020",
                f"the tag {tag} is taken by {present.digest}",
                hint="choose another --version; a version's tag and a version-with-target tag must not be the same",
            )
        edit.set(tag, descriptor, descriptor.annotations)
