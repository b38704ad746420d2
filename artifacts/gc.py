"""``artifacts gc``: remove what nothing refers to any more, after a grace period.

Marked are all refs and what they reach. An attachment lives as long as its subject does; events of channels always
do, and keep the versions that they speak of. Sweeping happens under the model's lock and spares whatever is younger
than the grace period: publishers store blobs before they refer to them, and renew the age of those that they reuse.
Where a retention rule is set, versions that it lets go lose their tags first (``artifacts.retention``).
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import Literal

import msgspec

from artifacts.digest import Digest
from artifacts.durable import reading, writing
from artifacts.layout import IndexEdit, Layout, LayoutRef
from artifacts.names import DIGEST_PATTERN
from artifacts.oci import INDEX_TYPE, MANIFEST_TYPE, Descriptor, parse_image, parse_index
from artifacts.registry import Registry
from artifacts.retention import Expired, expired_versions, remove_version
from artifacts.rules import Retention

GRACE_SECONDS = 24 * 3600.0
_ATTACHMENT = re.compile(r"sha256-[0-9a-f]{64}\..+")


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was removed, or would be."""

    kind: Literal["blob", "temporary", "attachment"]
    what: str
    """A path, or the tag of an attachment whose subject is gone."""
    bytes: int


class ModelGc(msgspec.Struct, frozen=True, kw_only=True):
    """One model. ``young``: unreferenced files that are spared because of their age."""

    name: str
    swept: tuple[Swept, ...]
    young: int
    kept: int
    """Blobs that something refers to."""
    expired: tuple[str, ...] = ()
    """Versions that retention removed, or would."""

    @property
    def bytes(self) -> int:
        """What sweeping frees, hard links aside."""
        return sum(item.bytes for item in self.swept)


class GcReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed where ``applied``, else what would be."""

    root: str
    applied: bool
    models: tuple[ModelGc, ...]


def collect(
    root: Path,
    names: tuple[str, ...] = (),
    *,
    grace: float = GRACE_SECONDS,
    apply: bool = False,
    retention: Retention | None = None,
    actor: str = "",
) -> GcReport:
    """Find unreferenced files of a registry, or of some of its models, and with ``apply`` remove them.

    Args:
        root: The registry folder.
        names: Models; all where empty.
        grace: Seconds for which a file is spared since it was written or reused.
        apply: Remove; without it nothing is changed.
        retention: Which versions may go as well; what ``registry.json`` says where it is None.
        actor: Who removes versions, for their tombstones.

    Raises:
        RegistryError: CNV-9005 to CNV-9008 (a model that can't be read whole is never swept), CNV-9001, CNV-9003,
            CNV-9012.
    """
    registry = Registry(root)
    before = time.time() - grace
    rule = registry.policy().retention if retention is None else retention
    collected = []
    for name in names or registry.models():
        layout = registry.open_model(name)
        gone = _expire(layout, rule, actor, apply=apply)
        collected.append(_collect_model(name, layout, before, gone, apply=apply))
    models = tuple(collected)
    return GcReport(root=str(registry.root), applied=apply, models=models)


def _expire(layout: Layout, rule: Retention, actor: str, *, apply: bool) -> tuple[Expired, ...]:
    if not apply or not rule.keep:
        return expired_versions(layout, layout.refs(), rule)
    with layout.edit() as edit:
        gone = expired_versions(layout, edit.refs(), rule)
        for item in gone:
            reason = f"retention: keep {rule.keep}, days {rule.days:g}"
            remove_version(layout, edit, item, actor=actor, reason=reason)
    return gone


def _collect_model(name: str, layout: Layout, before: float, gone: tuple[Expired, ...], *, apply: bool) -> ModelGc:
    expired = tuple(item.version for item in gone)
    if not apply:
        dropped = {tag for item in gone for tag in item.tags}
        live, orphans = _mark(layout, tuple(ref for ref in layout.refs() if ref.tag not in dropped))
        found, young = _unmarked(layout, live, before)
        swept = (*_orphan_rows(orphans), *found)
        return ModelGc(name=name, swept=swept, young=young, kept=len(live), expired=expired)
    with layout.edit() as edit:
        live, orphans = _mark(layout, edit.refs())
        _drop(edit, orphans)
    with layout.edit() as edit:
        live, _ = _mark(layout, edit.refs())
        found, young = _unmarked(layout, live, before)
        with writing(f"sweeping {layout.root}"):
            for item in found:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(item.what)  # noqa: PTH108
    swept = (*_orphan_rows(orphans), *found)
    return ModelGc(name=name, swept=swept, young=young, kept=len(live), expired=expired)


def _drop(edit: IndexEdit, orphans: tuple[LayoutRef, ...]) -> None:
    for ref in orphans:
        edit.drop(ref.tag)


def _orphan_rows(orphans: tuple[LayoutRef, ...]) -> tuple[Swept, ...]:
    return tuple(Swept(kind="attachment", what=ref.tag, bytes=0) for ref in orphans)


def _mark(layout: Layout, refs: tuple[LayoutRef, ...]) -> tuple[set[Digest], tuple[LayoutRef, ...]]:
    """The digests that are reachable, and the attachments whose subject is not."""
    live: set[Digest] = set()
    waiting = []
    for ref in refs:
        if _ATTACHMENT.fullmatch(ref.tag) and ref.descriptor.media_type == MANIFEST_TYPE:
            waiting.append(ref)
        else:
            _reach(layout, ref.descriptor, live)
    while True:
        ready = [ref for ref in waiting if _subject_of(layout, ref) in live]
        if not ready:
            return live, tuple(waiting)
        for ref in ready:
            _reach(layout, ref.descriptor, live)
        waiting = [ref for ref in waiting if ref not in ready]


def _subject_of(layout: Layout, ref: LayoutRef) -> Digest:
    what = f"the attachment {ref.tag}"
    image = parse_image(layout.read_blob(ref.descriptor.digest, what), what)
    return image.subject.digest if image.subject else ""


def _reach(layout: Layout, descriptor: Descriptor, live: set[Digest]) -> None:
    pending = [descriptor]
    while pending:
        item = pending.pop()
        if item.digest in live:
            continue
        live.add(item.digest)
        if item.media_type == INDEX_TYPE:
            what = f"the index {item.digest}"
            pending += parse_index(layout.read_blob(item.digest, what), what).manifests
        elif item.media_type == MANIFEST_TYPE:
            what = f"the manifest {item.digest}"
            image = parse_image(layout.read_blob(item.digest, what), what)
            live.update(blob.digest for blob in (image.config, *image.layers))
            pending += [image.subject] if image.subject and layout.has(image.subject.digest, image.subject.size) else []


def _unmarked(layout: Layout, live: set[Digest], before: float) -> tuple[tuple[Swept, ...], int]:
    found, young = [], 0
    entries = [("blob", entry) for entry in layout.stored() if _is_dead(entry.name, live)]
    if layout.temporary.is_dir():
        with reading(f"listing {layout.temporary}"), os.scandir(layout.temporary) as temporary:
            entries += [("temporary", entry) for entry in temporary]
    for kind, entry in sorted(entries, key=lambda item: item[1].path):
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if status.st_mtime > before:
            young += 1
        elif kind == "blob":
            found.append(Swept(kind="blob", what=entry.path, bytes=status.st_size))
        else:
            found.append(Swept(kind="temporary", what=entry.path, bytes=status.st_size))
    return tuple(found), young


def _is_dead(name: str, live: set[Digest]) -> bool:
    digest = f"sha256:{name}"
    return bool(DIGEST_PATTERN.fullmatch(digest)) and digest not in live
