"""Retention: which old versions may go, and removing them so that their names are never used for anything else.

Never removed: the newest versions, young ones, whatever a channel points to or has ever pointed to (so that every
rollback that the history allows stays possible), and versions that a draft begins from. A removed version leaves a
tombstone, the tag ``deleted-<version>``: what it was, who removed it and when. The same content may come back under its
old name, other content may not.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import msgspec

from artifacts.attach import store_attachment
from artifacts.digest import Digest, canonical_json
from artifacts.errors import RegistryError
from artifacts.events import read_event
from artifacts.layout import IndexEdit, Layout, LayoutRef
from artifacts.names import TOMBSTONE, base_version, target_tag, version_tag
from artifacts.oci import DOC_TYPE, Descriptor, file_layer
from artifacts.release import REMOVED, target_key
from artifacts.rules import Retention
from artifacts.versions import Versions, is_event_tag

TOMBSTONE_TYPE = "application/vnd.io.model-convert.removed"


class Expired(msgspec.Struct, frozen=True, kw_only=True):
    """A version that retention lets go. ``tags``: its own and those of its targets."""

    version: str
    digest: Digest
    tags: tuple[str, ...]


def expired_versions(layout: Layout, refs: tuple[LayoutRef, ...], rule: Retention) -> tuple[Expired, ...]:
    """The versions of a model that a rule lets go, oldest first; none where the rule keeps everything.

    Raises:
        RegistryError: CNV-9006 to CNV-9008, where something can't be read that might need a version.
    """
    versions = Versions(layout, refs)
    if not rule.keep:
        return ()
    needed = _needed(layout, versions)
    before = time.time() - rule.days * 86400
    found = []
    for version in list(versions.names)[: -rule.keep]:
        descriptor = versions.names[version]
        if descriptor.digest in needed or version in _bases(versions) or _published(layout, descriptor) > before:
            continue
        base = version_tag(version)
        tags = (base, *(target_tag(base, target_key(target)) for target in versions.targets(version)))
        found.append(Expired(version=version, digest=descriptor.digest, tags=tags))
    return tuple(found)


def _needed(layout: Layout, versions: Versions) -> set[Digest]:
    """The version indexes that a channel points to, or that any event of any channel speaks of."""
    needed = {descriptor.digest for descriptor in versions.channels.values()}
    for ref in versions.refs:
        if is_event_tag(ref.tag):
            event = read_event(layout, ref.descriptor.digest).event
            needed |= {event.before, event.after}
    return needed


def _bases(versions: Versions) -> set[str]:
    """The lines of versions that a draft is to revise."""
    lines = {base_version(draft) for draft in versions.drafts}
    return {name for name in versions.names if base_version(name) in lines}


def _published(layout: Layout, index: Descriptor) -> float:
    """When a version was published the last time, here: publishing renews the time of its index."""
    try:
        return layout.blob_path(index.digest).stat().st_mtime
    except FileNotFoundError:
        raise RegistryError(
            "CNV-9006", f"the version index {index.digest} is missing", hint="see `artifacts fsck`"
        ) from None


def remove_version(layout: Layout, edit: IndexEdit, gone: Expired, *, actor: str, reason: str) -> None:
    """Drop a version's tags and leave its tombstone, in one change of the refs."""
    data = canonical_json(
        {
            "version": gone.version,
            "digest": gone.digest,
            "actor": actor,
            "reason": reason,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    )
    layer = file_layer(DOC_TYPE, layout.put_bytes(data), len(data), "removed.json")
    mark = {REMOVED: gone.digest}
    stored = store_attachment(layout, TOMBSTONE_TYPE, (layer,), None, mark)
    for tag in gone.tags:
        edit.drop(tag)
    edit.set(TOMBSTONE + version_tag(gone.version), stored)
