"""The flow ``convert_catalog``: everything in ``convert.toml`` that changed; one failure never stops the rest.

The plan is that of ``convert catalog plan``. What is to be rebuilt is spread over the work pools, one run for each
target; with ``local`` it is converted in this process instead, as ``convert catalog run`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from flows.values import card_pool, outcome_of  # first: it keeps Prefect from starting a server of its own

from prefect import flow, get_run_logger, task  # isort: skip
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from artifacts.names import version_tag
from convert.catalog.notify import notify
from convert.catalog.outcomes import counts, worst_error
from convert.catalog.pairs import expand, select
from convert.catalog.planning import plan_pairs
from convert.catalog.reader import read_catalog
from convert.catalog.running import run_plans
from convert.catalog.values import Catalog, Outcome, PairPlan
from convert.settings import Settings, load_settings
from flows.fanout import Child, Fanout
from flows.pools import known_toolchains
from flows.showing import show_table, tell_regressions
from flows.spread import Spread
from flows.watch import ended_by, watched

DAY = 24 * 3600.0


class Wanted:
    """What a catalogue's run was asked for."""

    def __init__(
        self, file: str, models: Sequence[str], targets: Sequence[str], schedule: str, settings: dict[str, Any]
    ) -> None:
        self.given = settings
        self.catalog: Catalog = read_catalog(Path(file))
        self.settings: Settings = load_settings(settings, folder=self.catalog.folder)
        chosen = select(expand(self.catalog), models, targets)
        default = self.catalog.defaults.schedule
        self.pairs = tuple(
            pair for pair in chosen if not schedule or (pair.entry.schedule or default or schedule) == schedule
        )


@task(name="plan", cache_policy=NO_CACHE, persist_result=False)
def plan(wanted: Wanted, everything: bool, retry_failed: bool) -> tuple[PairPlan, ...]:
    """What would be rebuilt, and why; with what the pools' workers have told of their toolchains."""
    elsewhere = known_toolchains({pair.backend for pair in wanted.pairs})
    return plan_pairs(
        wanted.pairs, wanted.settings, elsewhere=elsewhere, everything=everything, retry_failed=retry_failed
    )


@flow(name="convert_catalog", flow_run_name="{file}", persist_result=False)
def convert_catalog(
    file: str,
    models: list[str] | None = None,
    targets: list[str] | None = None,
    schedule: str = "",
    settings: dict[str, Any] | None = None,
    everything: bool = False,
    retry_failed: bool = False,
    local: bool = False,
    hours: float = 24.0,
) -> State[Any]:
    """Rebuild what changed in a catalogue, publish what passed, and say what is different from last time.

    Args:
        file: Path of ``convert.toml`` on the worker's machine.
        models: Patterns of names; all where left out.
        targets: Only these targets.
        schedule: Only models with this schedule (or none of their own, where it is the catalogue's).
        settings: Settings by name, over the file's.
        everything: Rebuild what is unchanged, too.
        retry_failed: Try again what failed with exactly the same recipe.
        local: Convert in this process instead of in the pools.
        hours: How long to wait for the pools.
    """
    with watched() as watch:
        try:
            wanted = Wanted(file, models or [], targets or [], schedule, settings or {})
            plans = plan(wanted, everything, retry_failed)
            get_run_logger().info("%d pairs, %d to build", len(plans), sum(p.action == "build" for p in plans))
            outcomes = _done(wanted, plans, local=local, seconds=hours * 3600.0)
            outcomes = outcomes if local else _on_devices(wanted, plans, outcomes, seconds=hours * 3600.0)
        except TerminationSignal as error:
            return ended_by(watch, error)
    show_table("catalog", outcomes)
    tell_regressions(outcomes)
    notify(wanted.catalog.defaults.on_regression, outcomes)
    return state_of(outcomes)


def _done(wanted: Wanted, plans: tuple[PairPlan, ...], *, local: bool, seconds: float) -> tuple[Outcome, ...]:
    if local:
        return run_plans(plans, wanted.settings)
    given = {"registry": wanted.settings.registry, **wanted.given}
    return Spread(str(flow_run.id), wanted.settings, given).run(plans, seconds=seconds)


def _on_devices(
    wanted: Wanted, plans: tuple[PairPlan, ...], outcomes: tuple[Outcome, ...], *, seconds: float
) -> tuple[Outcome, ...]:
    """Have what was published without a word of its device measured on one, where the catalogue asks for that."""
    channels = {(plan.pair.name, plan.pair.target): plan.pair.channel for plan in plans if plan.pair.device}
    fanout = Fanout(str(flow_run.id))
    measured: dict[str, Outcome] = {}
    for outcome in outcomes:
        channel = channels.get((outcome.name, outcome.target))
        if channel is None or outcome.status != "published" or outcome.verdict.endswith(" on device"):
            continue
        parameters = {
            "ref": f"{outcome.name}:{version_tag(outcome.version)}",
            "target": outcome.target,
            "channel": channel,
            "settings": {"registry": wanted.settings.registry},
        }
        deployment = f"validate_on_device/{card_pool(outcome.target)}"
        label = f"{outcome.name}@{outcome.target}"
        measured[f"{label} on device"] = outcome
        fanout.add(Child(deployment, f"{label} on device", parameters))
    told: dict[tuple[str, str], Outcome] = {}

    def ended(child: Child) -> None:
        before = measured[child.name]
        told[before.name, before.target] = with_device(before, child)

    with fanout:
        fanout.wait(ended, seconds=seconds)
    return tuple(told.get((outcome.name, outcome.target), outcome) for outcome in outcomes)


def with_device(outcome: Outcome, child: Child) -> Outcome:
    """An outcome with what its device said, or why it said nothing."""
    found = outcome_of(child.last.labels) if child.last is not None and not child.problem else None
    if found is None:
        why = child.problem or "its run left no result"
        return msgspec.structs.replace(outcome, change=f"{outcome.change}; not measured on its card: {why}")
    regression = found.regression or outcome.regression
    change = f"{outcome.change}; {found.change}"
    return msgspec.structs.replace(
        outcome, verdict=found.verdict or outcome.verdict, change=change, error=found.error, regression=regression
    )


def state_of(outcomes: Sequence[Outcome]) -> State[Any]:
    """Completed, or Failed with the worst error and how many ended how."""
    error = worst_error(outcomes)
    if error is None:
        return Completed(message=counts(outcomes))
    lost = ", ".join(f"{one.name}@{one.target}" for one in outcomes if one.error)
    return Failed(message=f"{counts(outcomes)}: {lost}; the worst: [{error['code']}] {error['message']}")
