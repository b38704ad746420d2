"""What was published last, and from which recipe: the state of a catalogue, which lies in the registry itself.

A target's manifest can't say which catalogue made it (the same artifact always has the same manifest), so the recipe is
attached to it: ``catalog.json``, kind ``recipe``. A run that is killed between the two leaves a target without a
recipe, which the next run makes again from the stage cache.

What failed leaves nothing in the registry. It is remembered beside the stage cache, under the digest of its recipe:
losing it costs a repetition, nothing else.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec

from artifacts.attach import find_attachments, store_attachment, tag_stem
from artifacts.digest import Digest, canonical_json
from artifacts.layout import IndexEdit, Layout, LayoutRef
from artifacts.manifest import highest, lowest, verdict
from artifacts.names import target_tag, version_tag
from artifacts.oci import DOC_TYPE, Descriptor, file_layer
from artifacts.resolve import load_target
from artifacts.strictjson import parse_as
from convert.catalog.recipes import digest_of
from convert.catalog.shelf import Shelf, delivered, draft_tag, open_draft, published
from convert.catalog.values import Pair, Recipe, Recorded
from convert.errors import RegistryError
from convert.validation_file import replace_file
from convert.values import Plan

KIND = "recipe"
TYPE = "application/vnd.io.model-convert.recipe.v1"
FILE = "catalog.json"
MAX_BYTES = 1 << 20
LASTING = (2, 3, 4, 5, 6, 7, 8)
"""Exit codes of failures that come again with the same recipe. A full disk or a registry that is down does not."""


class RecipeFile(msgspec.Struct, frozen=True, kw_only=True):
    """``catalog.json``: the recipe of a target, and what its stages took when it was made (seconds)."""

    schema: int = 1
    recipe: Recipe
    seconds: dict[str, float] = {}
    owner: str = ""
    plan: Plan | None = None
    """What the compiler was told, with its files: more than a manifest says, and needed to run it elsewhere."""


def read_recorded(shelf: Shelf) -> dict[str, Recorded]:
    """What the registry has of each target of a model: the draft's state where there is one, else the newest version's.

    Keys: the SoC, and the target; in lower case.

    Raises:
        RegistryError: CNV-9005 to CNV-9008.
    """
    if not shelf.layout.exists:
        return {}
    versions = shelf.versions()
    refs = versions.refs
    found: dict[str, Recorded] = {}
    draft = open_draft(versions)
    for base, targets in (
        (version_tag(versions.newest), published(shelf.layout, versions)),
        (draft_tag(draft), delivered(shelf.layout, versions, draft) if draft else {}),
    ):
        for key, target in targets.items():
            one = _recorded(shelf, refs, target, f"{shelf.name}:{target_tag(base, key)}")
            one = msgspec.structs.replace(one, drafted=base.startswith("draft-"))
            found[key] = one
            found[target.annotations.get("io.model-convert.target", key).lower()] = one
    return found


def _recorded(shelf: Shelf, refs: tuple[LayoutRef, ...], target: Descriptor, ref: str) -> Recorded:
    manifest = load_target(shelf.layout, target).manifest
    file = recipe_of(shelf.layout, refs, target)
    return Recorded(
        ref=ref,
        digest=target.digest,
        recipe=file.recipe if file else {},
        seconds=file.seconds if file else {},
        verdict=verdict(manifest),
        cosine=lowest(manifest, "cosine"),
        rel_l2=highest(manifest, "rel_l2"),
        toolchain=manifest.toolchain,
    )


def recipe_of(layout: Layout, refs: tuple[LayoutRef, ...], target: Descriptor) -> RecipeFile | None:
    """The newest recipe of a target; None where none is recorded, or what is there isn't one."""
    attached = find_attachments(layout, refs, target.digest, KIND)
    if not attached:
        return None
    newest = max(attached, key=lambda item: int(item.tag.rpartition("-")[2] or 0))
    layer = next((layer for layer in newest.image.layers if layer.title == FILE), None)
    if layer is None:
        return None
    # What isn't ours, or is damaged, counts as not recorded: the pair is made again and recorded anew.
    with contextlib.suppress(RegistryError, ValueError):
        data = layout.read_blob(layer.digest, newest.tag, limit=MAX_BYTES)
        return parse_as(RecipeFile, data, newest.tag)
    return None


def attach_recipe(layout: Layout, target: Descriptor, file: RecipeFile) -> None:
    """Attach a recipe to a target. One that is the newest already is not attached again."""
    known = recipe_of(layout, layout.refs(), target)
    if known is not None and known.recipe == file.recipe:
        return
    data = canonical_json(file)
    layer = file_layer(DOC_TYPE, layout.put_bytes(data), len(data), FILE)
    stored = store_attachment(layout, TYPE, (layer,), msgspec.structs.replace(target, annotations={}))
    with layout.edit() as edit:
        set_newest(edit, target.digest, KIND, stored)


def set_newest(edit: IndexEdit, subject: Digest, kind: str, stored: Descriptor) -> str:
    """Give an attachment the tag after all others of its kind, so that the newest is known by its number."""
    stem = f"{tag_stem(subject)}{kind}-"
    numbers = [int(ref.tag[len(stem) :]) for ref in edit.refs() if ref.tag.startswith(stem)]
    tag = f"{stem}{max(numbers, default=0) + 1}"
    edit.set(tag, stored)
    return tag


# ------------------------------------------------------------------------------------------------------------ failures


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that would come again."""

    schema: int = 1
    name: str
    target: str
    recipe: Recipe
    error: dict[str, Any]
    seconds: float = 0.0


def _failure_path(cache: Path, recipe: Recipe) -> Path:
    digest = digest_of(recipe)
    return cache / "failures" / digest[:2] / f"{digest}.json"


def remember_failure(cache: Path, failure: Failure) -> None:
    """Write a failure down, if it would come again. One that can't be written is forgotten."""
    crashed = str(failure.error.get("code", "")).endswith("090")  # a native fault may be the machine's
    if failure.error.get("exit_code") not in LASTING or crashed:
        return
    path = _failure_path(cache, failure.recipe)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, canonical_json(failure))


def known_failure(cache: Path, pair: Pair, recipe: Recipe) -> Failure | None:
    """The failure of exactly this recipe."""
    try:
        failure = msgspec.json.decode(_failure_path(cache, recipe).read_bytes(), type=Failure)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    same = (failure.name, failure.target, failure.recipe) == (pair.name, pair.target, recipe)
    return failure if same and "exit_code" in failure.error else None
