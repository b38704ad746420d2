"""What the refs of a layout mean: versions, channels, targets and attachments, told by tag and media type alone.

So a layout whose ``index.json`` another tool rewrote, losing annotations of ours, still reads the same.
"""

from __future__ import annotations

import re
from functools import cached_property

from artifacts.digest import Digest
from artifacts.layout import Layout, LayoutRef
from artifacts.names import RESERVED_CHANNELS, TOMBSTONE, is_version_tag, version_key, version_of_tag
from artifacts.oci import INDEX_TYPE, Descriptor, ImageIndex, parse_index

_EVENT_TAG = re.compile(r"event-.+-[0-9]+")


def is_event_tag(tag: str) -> bool:
    """Whether a tag is that of an event of some channel."""
    return bool(_EVENT_TAG.fullmatch(tag))


class Versions:
    """The versions and channels of a model, from one reading of its refs. Indexes are read when asked for."""

    def __init__(self, layout: Layout, refs: tuple[LayoutRef, ...]) -> None:
        self.layout = layout
        self.refs = refs
        self._indexes: dict[Digest, ImageIndex] = {}

    @cached_property
    def names(self) -> dict[str, Descriptor]:
        """Each version's index by version, oldest first."""
        found = {
            version_of_tag(ref.tag): ref.descriptor
            for ref in self.refs
            if ref.descriptor.media_type == INDEX_TYPE and is_version_tag(ref.tag)
        }
        return {name: found[name] for name in sorted(found, key=version_key)}

    @cached_property
    def channels(self) -> dict[str, Descriptor]:
        """Each channel's version index by channel."""
        return {
            ref.tag: ref.descriptor
            for ref in sorted(self.refs, key=lambda ref: ref.tag)
            if ref.descriptor.media_type == INDEX_TYPE
            and ref.tag
            and not is_version_tag(ref.tag)
            and not ref.tag.startswith(RESERVED_CHANNELS)
        }

    @cached_property
    def drafts(self) -> dict[str, Descriptor]:
        """Each draft's index by the version that it is to become, oldest first.

        The tags of a draft whose version is there already are leftovers: a remote registry can't drop them.
        """
        found = {
            version_of_tag(ref.tag.removeprefix("draft-")): ref.descriptor
            for ref in self.refs
            if ref.descriptor.media_type == INDEX_TYPE
            and ref.tag.startswith("draft-")
            and version_of_tag(ref.tag.removeprefix("draft-")) not in self.names
        }
        return {name: found[name] for name in sorted(found, key=version_key)}

    @cached_property
    def removed(self) -> dict[str, Descriptor]:
        """Each removed version's tombstone."""
        return {
            version_of_tag(ref.tag.removeprefix(TOMBSTONE)): ref.descriptor
            for ref in self.refs
            if ref.tag.startswith(TOMBSTONE)
        }

    @property
    def newest(self) -> str:
        """The newest version; empty where there is none."""
        return next(reversed(self.names), "")

    def index(self, descriptor: Descriptor) -> ImageIndex:
        """A version's index, checked.

        Raises:
            RegistryError: CNV-9006, CNV-9007, CNV-9008.
        """
        digest = descriptor.digest
        if digest not in self._indexes:
            what = f"the version index {digest} of {self.layout.root.name}"
            self._indexes[digest] = parse_index(self.layout.read_blob(digest, what), what)
        return self._indexes[digest]

    def targets(self, version: str) -> tuple[Descriptor, ...]:
        """The target manifests of a version."""
        return self.index(self.names[version]).manifests

    def version_of(self, digest: Digest) -> str:
        """The version that an index belongs to; empty where it has none any more."""
        return next((name for name, descriptor in self.names.items() if descriptor.digest == digest), "")
