"""One target into the registry, and versions put together of targets.

deliver   a passed target's manifest and blobs, under the tag that a draft's target has, with its recipe
settle    what was delivered and what was kept: as the next version where all is there, else as a draft

Targets come from several runs and machines; none of them writes the version, so none waits for another, and a run that
is killed leaves what it has delivered. Whoever settles is one process at a time for each model.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from artifacts.attach import find_attachments
from artifacts.channels import Move, promote
from artifacts.digest import Digest
from artifacts.drafts import Draft, assemble, discard, seal
from artifacts.keys import KEY_VARIABLE, PrivateKey, load_private_key
from artifacts.names import next_patch, target_tag, version_tag
from artifacts.oci import Descriptor
from artifacts.publish import TargetRelease, add_record, keep_blobs, store_target
from artifacts.registry import Registry
from artifacts.release import target_key
from convert.catalog.records import RecipeFile, attach_recipe
from convert.catalog.shelf import Shelf, delivered, draft_tag, open_draft, published
from convert.catalog.values import Pair
from convert.errors import RegistryError

ACTOR = "convert catalog"


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model's targets are now. ``missing``: labels of the pairs that keep the version from appearing."""

    version: str
    sealed: bool
    refs: dict[str, str]
    """Target → reference."""
    digests: dict[str, Digest]
    missing: tuple[str, ...] = ()
    promoted: str = ""
    """What became of the wish to promote it, in words; empty where there is none."""


def begin(shelf: Shelf, pairs: Sequence[Pair]) -> str:
    """The version that targets are delivered for: the open draft's, else the next; its draft is there afterwards.

    Raises:
        RegistryError: CNV-9050 (a fixed version that is published already), and those of reading and writing.
    """
    shelf.create()
    versions = shelf.versions()
    fixed = pairs[0].entry.version or ""
    version = fixed or open_draft(versions) or next_patch([*versions.names, *versions.drafts])
    if version in versions.names:
        raise RegistryError(
            "CNV-9050",
            f"{shelf.name}:{version_tag(version)} is sealed: it was published, and a version never changes",
            hint="raise `version` of this model in the catalogue, or leave it out to get the next patch",
        )
    if version not in versions.drafts:
        declared = [pair.key for pair in pairs]
        assemble(shelf.root, shelf.name, version=version, declared=declared, targets=(), chosen=not fixed)
        shelf.send([draft_tag(version)])
    return version


def deliver(shelf: Shelf, version: str, release: TargetRelease, recipe: RecipeFile) -> Descriptor:
    """Store a passed target for a draft, with the record of its run and its recipe.

    Raises:
        RegistryError: those of publishing.
        ResourceLimit: CNV-1003.
    """
    registry = Registry(shelf.root)
    layout = shelf.create()
    prepared = store_target(registry, layout, shelf.name, release)
    target = prepared.descriptor
    shelf.fetch_attached(target.digest)
    tag = draft_tag(version, target_key(target))
    with layout.edit() as edit:
        keep_blobs(registry, layout, shelf.name, (prepared,))
        if not find_attachments(layout, edit.refs(), target.digest, "run"):
            add_record(layout, edit, prepared)
        edit.set(tag, target, target.annotations)
    attach_recipe(layout, target, recipe)
    shelf.send([tag])
    return target


def settle(shelf: Shelf, version: str, pairs: Sequence[Pair], ready: Collection[str]) -> Settled:
    """Put a version together of the pairs whose targets are ``ready`` (delivered now, or kept from before).

    It appears when all are there, or with ``require = "passed"`` those that passed; until then it stays a draft.

    Raises:
        RegistryError: CNV-9050, and those of writing.
    """
    first = pairs[0]
    versions = shelf.versions()
    old, new = published(shelf.layout, versions), delivered(shelf.layout, versions, version)
    chosen: dict[str, Descriptor] = {}
    for pair in pairs:
        found = _of(pair, new) or _of(pair, old)
        if found is not None and pair.target in ready:
            chosen[pair.target] = found
    if not chosen:
        discard(shelf.root, shelf.name, version)
        labels = tuple(pair.label for pair in pairs)
        return Settled(version=version, sealed=False, refs={}, digests={}, missing=labels)
    missing = tuple(pair.label for pair in pairs if pair.target not in chosen)
    keys = [target_key(chosen[pair.target]) if pair.target in chosen else pair.key for pair in pairs]
    draft = assemble(
        shelf.root,
        shelf.name,
        version=version,
        declared=keys,
        targets=tuple(chosen.values()),
        chosen=not first.entry.version,
    )
    if not draft.sealed and chosen and first.require == "passed":
        reason = f'the catalogue says require = "passed"; without {", ".join(missing)}'
        draft = seal(shelf.root, shelf.name, version, actor=ACTOR, reason=reason)
    return _settled(shelf, draft, chosen, missing, first)


def _of(pair: Pair, targets: dict[str, Descriptor]) -> Descriptor | None:
    """A pair's target among those of a version: by SoC or target, else by the target that its manifest names."""
    if pair.key in targets:
        return targets[pair.key]
    named = "io.model-convert.target"
    return next((item for item in targets.values() if item.annotations.get(named) == pair.target), None)


def _settled(
    shelf: Shelf, draft: Draft, chosen: dict[str, Descriptor], missing: tuple[str, ...], first: Pair
) -> Settled:
    base = version_tag(draft.version) if draft.sealed else draft_tag(draft.version)
    shelf.send([base])
    return Settled(
        version=draft.version,
        sealed=draft.sealed,
        refs={name: f"{shelf.name}:{target_tag(base, target_key(item))}" for name, item in chosen.items()},
        digests={name: item.digest for name, item in chosen.items()},
        missing=missing,
        promoted=move_channel(shelf, draft.version, first.channel) if draft.sealed and first.channel else "",
    )


def machine_key() -> PrivateKey | None:
    """The signing key that this machine's environment names.

    Raises:
        UsageError: CNV-2422, where it can't be read.
    """
    named = os.environ.get(KEY_VARIABLE)
    return load_private_key(Path(named)) if named else None


def move_channel(shelf: Shelf, version: str, channel: str, reason: str = "its gates passed") -> str:
    """Promote a version where the channel's rules allow it; says what came of it.

    The event is signed with the key that ``CONVERT_SIGN_KEY`` names, where it names one.
    """
    ref = f"{shelf.name}:{version_tag(version)}"
    shelf.fetch_channel(channel)
    try:
        moved = promote(shelf.root, ref, Move(channel=channel, actor=ACTOR, reason=reason), machine_key())
    except RegistryError as error:
        return f"not promoted to {channel}: {error.message}"
    shelf.send([channel])
    return "" if moved.already else f"promoted to {channel}"
