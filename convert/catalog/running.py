"""The plan carried out on this machine: model by model, several side by side; one failure never stops the rest."""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from artifacts.runner import scratch_folder
from convert.catalog.delivery import Settled, begin, deliver, settle
from convert.catalog.outcomes import failed, kept, of_result, placed
from convert.catalog.pairs import alike, request_of
from convert.catalog.recipes import with_toolchain
from convert.catalog.records import Failure, RecipeFile, read_recorded, remember_failure
from convert.catalog.shelf import Shelf, open_shelf
from convert.catalog.sources import source_path
from convert.catalog.values import Outcome, Pair, PairPlan, Recorded
from convert.errors import EXPECTED
from convert.host import StageHost
from convert.pipeline import convert_model
from convert.publishing import release_of
from convert.request import Conversion, TargetResult
from convert.settings import Settings
from convert.stage import Event, Listener

Done = Callable[[Outcome], None]


def run_plans(
    plans: Sequence[PairPlan],
    settings: Settings,
    *,
    listener: Listener = lambda event: None,
    done: Done = lambda outcome: None,
    out: str = "",
) -> tuple[Outcome, ...]:
    """Do what plans say; outcomes in the order of the plans.

    Args:
        plans: Of :func:`convert.catalog.planning.plan_pairs`; all pairs of a model together.
        settings: ``jobs`` says how many models go side by side.
        listener: Gets the stages, with ``model@target`` as their target.
        done: Called with each pair's outcome as it ends, from any thread.
        out: Where files go instead of the setting's folder.

    An expected failure is in its pair's outcome. A bug is too, with its traceback, so that the others go on; the
    caller's exit code is then 1.
    """
    models = [[plan for plan in plans if plan.pair.name == name] for name in dict.fromkeys(p.pair.name for p in plans)]
    with ExitStack() as stack:
        run = _ModelRun(settings, listener, out)
        if any(plan.action == "build" for plan in plans):
            scratch = scratch_folder(Path(settings.cache_dir) / "tmp", f"catalog-{os.getpid()}-")
            stack.callback(shutil.rmtree, scratch, ignore_errors=True)
            run.host = stack.enter_context(StageHost(scratch / "workers.log"))
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=settings.jobs))
        futures = [(model, pool.submit(run.model, model)) for model in models]
        found: dict[tuple[str, str], Outcome] = {}
        for model, future in futures:
            bug = future.exception()
            outcomes = [failed(plan, _bug(bug)) for plan in model] if bug else future.result()
            for outcome in outcomes:
                done(outcome)
                found[outcome.name, outcome.target] = outcome
    return tuple(found[plan.pair.name, plan.pair.target] for plan in plans)


def _bug(error: BaseException) -> dict[str, Any]:
    """A bug as an error of one model. What is no failure of the program (Ctrl-C) goes on its way."""
    if not isinstance(error, Exception):
        raise error
    told = "".join(traceback.format_exception(error))
    return {
        "code": "",
        "message": f"{type(error).__name__}: {error}",
        "hint": "this is a bug of model-convert",
        "exit_code": 1,
        "traceback": told,
    }


class _ModelRun:
    """What the models of a run share."""

    def __init__(self, settings: Settings, listener: Listener, out: str) -> None:
        self.settings = settings
        self.listener = listener
        self.out = out
        self.host: StageHost | None = None

    def model(self, plans: Sequence[PairPlan]) -> list[Outcome]:
        """Every pair of one model."""
        try:
            with open_shelf(self.settings.registry, plans[0].pair.name) as shelf:
                return self._model(shelf, plans)
        except EXPECTED as error:
            return [failed(plan, error.as_json()) for plan in plans]

    def _model(self, shelf: Shelf, plans: Sequence[PairPlan]) -> list[Outcome]:
        recorded = read_recorded(shelf)
        outcomes = {plan.pair.target: kept(plan, _last(recorded, plan.pair)) for plan in plans}
        builds = [plan for plan in plans if plan.action == "build"]
        pairs = [plan.pair for plan in plans]
        if not builds and not any(last.drafted for last in recorded.values()):
            return list(outcomes.values())
        version = begin(shelf, pairs)
        for group in alike([plan.pair for plan in builds]):
            chosen = [plan for plan in builds if plan.pair in group]
            for outcome in self._build(shelf, version, chosen, recorded):
                outcomes[outcome.target] = outcome
        ready = [name for name, outcome in outcomes.items() if outcome.status in ("unchanged", "drafted")]
        settled = settle(shelf, version, pairs, ready)
        return [self._placed(outcome, settled) for outcome in outcomes.values()]

    def _build(
        self, shelf: Shelf, version: str, plans: Sequence[PairPlan], recorded: dict[str, Recorded]
    ) -> list[Outcome]:
        """Convert pairs that differ in their target alone, and deliver what passed."""
        try:
            path = source_path(plans[0].pair, self.settings)
        except EXPECTED as error:
            return [failed(plan, error.as_json()) for plan in plans]
        request = request_of([plan.pair for plan in plans], path, out=self.out)
        conversion = convert_model(request, _one_job(self.settings), self._listener(plans[0].pair.name), self.host)
        by_target = {result.target: result for result in conversion.targets}
        outcomes = []
        for plan in plans:
            result = by_target[plan.pair.target]
            last = _last(recorded, plan.pair)
            outcome = of_result(plan, result, last)
            if result.error is None:
                outcome = _delivered(shelf, version, plan, (conversion, result), outcome)
            elif outcome.status == "failed":
                remember_failure(Path(self.settings.cache_dir), failure_of(plan, result))
            outcomes.append(outcome)
        return outcomes

    def _placed(self, outcome: Outcome, settled: Settled) -> Outcome:
        return placed(outcome, settled) if outcome.status in ("unchanged", "drafted") else outcome

    def _listener(self, name: str) -> Listener:
        def tell(event: Event) -> None:
            where = f"{name}@{event.target}" if event.target else name
            self.listener(msgspec.structs.replace(event, target=where))

        return tell


def _one_job(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, jobs=1)


def _last(recorded: dict[str, Recorded], pair: Pair) -> Recorded | None:
    return recorded.get(pair.key) or recorded.get(pair.target.lower())


def _delivered(
    shelf: Shelf, version: str, plan: PairPlan, made: tuple[Conversion, TargetResult], outcome: Outcome
) -> Outcome:
    try:
        target = deliver(shelf, version, release_of(*made), recipe_file(plan, made[1]))
    except EXPECTED as error:
        return failed(plan, error.as_json())
    return msgspec.structs.replace(outcome, digest=target.digest)


def recipe_file(plan: PairPlan, result: TargetResult) -> RecipeFile:
    """What is recorded of a pair that passed: its recipe, with the toolchain that it really met, and what it cost."""
    return RecipeFile(
        recipe=with_toolchain(plan.recipe, result.toolchain),
        seconds={run.stage: round(run.seconds, 3) for run in result.stages if not run.cached},
        owner=plan.pair.owner,
        plan=result.plan,
    )


def failure_of(plan: PairPlan, result: TargetResult) -> Failure:
    """A pair's failure, to be remembered."""
    return Failure(
        name=plan.pair.name,
        target=plan.pair.target,
        recipe=plan.recipe,
        error=result.error or {},
        seconds=sum(run.seconds for run in result.stages),
    )
