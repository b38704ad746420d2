"""What would be rebuilt, and why: each pair's recipe now against the one that the registry has recorded.

Imports neither torch nor onnx: a catalogue in which nothing changed costs the reading of its files and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from convert.catalog.recipes import Facts, differences
from convert.catalog.records import known_failure, read_recorded
from convert.catalog.shelf import open_shelf
from convert.catalog.sources import source_digest
from convert.catalog.values import Pair, PairPlan, Recipe, Recorded
from convert.errors import EXPECTED, ConvertError
from convert.settings import Settings
from op_registry.errors import RegistryDataError


def plan_pairs(
    pairs: Sequence[Pair],
    settings: Settings,
    *,
    elsewhere: Mapping[str, str] | None = None,
    everything: bool = False,
    retry_failed: bool = False,
) -> tuple[PairPlan, ...]:
    """Decide about every pair, in order. Never raises an expected failure: it blocks the pair that it concerns.

    Args:
        pairs: What to plan.
        settings: Registry and cache.
        elsewhere: Toolchains of other machines by backend (``CANN 8.5.0``), for those that are not on this one.
        everything: Rebuild what is unchanged, too.
        retry_failed: Build what failed with exactly the same recipe.
    """
    facts = Facts(settings, elsewhere)
    recorded = {name: _recorded(name, settings) for name in dict.fromkeys(pair.name for pair in pairs)}
    plans = []
    for pair in pairs:
        found = recorded[pair.name]
        if not isinstance(found, dict):
            plans.append(_blocked(pair, found))
            continue
        plan = _plan(pair, found.get(pair.key) or found.get(pair.target.lower()), facts, everything=everything)
        failure = known_failure(Path(settings.cache_dir), pair, plan.recipe) if plan.action == "build" else None
        if failure is not None and not (retry_failed or everything):
            why = f"failed before with the same recipe: [{failure.error.get('code')}] {failure.error.get('message')}"
            plan = msgspec.structs.replace(plan, action="known failure", why=why, error=failure.error)
        plans.append(plan)
    return tuple(plans)


def _blocked(pair: Pair, error: ConvertError | RegistryDataError) -> PairPlan:
    return PairPlan(pair=pair, action="blocked", why=error.message, error=error.as_json())


def _recorded(name: str, settings: Settings) -> dict[str, Recorded] | ConvertError | RegistryDataError:
    try:
        with open_shelf(settings.registry, name) as shelf:
            return read_recorded(shelf)
    except EXPECTED as error:
        return error


def _plan(pair: Pair, last: Recorded | None, facts: Facts, *, everything: bool) -> PairPlan:
    try:
        recipe = facts.recipe(pair, source_digest(pair, facts.settings))
    except EXPECTED as error:
        return _blocked(pair, error)
    return decide(pair, recipe, last, everything=everything)


def decide(pair: Pair, recipe: Recipe, last: Recorded | None, *, everything: bool = False) -> PairPlan:
    """What a recipe and the last record of a pair mean."""
    if last is None:
        return PairPlan(pair=pair, action="build", why="never published", recipe=recipe)
    changes = differences(last.recipe, recipe)
    if not last.recipe:
        why, changes = "published, but how it was made is not recorded", ()
    elif changes:
        why = ", ".join(change.fact for change in changes)
        why = f"changed: {why}"
    elif everything:
        why = "asked for"
    else:
        return PairPlan(pair=pair, action="keep", why="nothing changed", recipe=recipe, published=last.ref)
    return PairPlan(pair=pair, action="build", why=why, changes=changes, recipe=recipe, published=last.ref)
