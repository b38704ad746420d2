"""Models whose targets are converted elsewhere: the shared stages here, a child run for each target, the version here.

One object per parent run. Models are prepared one after another; their targets' runs go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from prefect import task
from prefect.cache_policies import NO_CACHE

from convert.across.graphs import SharedWork, store_graph
from convert.catalog.delivery import begin, settle
from convert.catalog.outcomes import failed, kept, placed
from convert.catalog.pairs import request_of
from convert.catalog.records import Failure, read_recorded, remember_failure
from convert.catalog.shelf import open_shelf
from convert.catalog.sources import source_path
from convert.catalog.values import Outcome, PairPlan, Recorded
from convert.errors import EXPECTED
from convert.pipeline import with_graph
from convert.request import StageRun
from convert.settings import Settings
from convert.stage import Event
from flows.fanout import Child, Fanout
from flows.faults import RETRIES, RETRY_SECONDS, is_transient, raise_transient
from flows.showing import Progress
from flows.values import SETTINGS, TargetJob, as_parameter, outcome_of


@task(
    name="shared stages",
    task_run_name="{name}",
    cache_policy=NO_CACHE,
    retries=RETRIES,
    retry_delay_seconds=RETRY_SECONDS,
    retry_condition_fn=is_transient,
    persist_result=False,
)
def prepare(name: str, plans: Sequence[PairPlan], settings: Settings) -> tuple[str, str]:
    """load, export and simplify a model once, its graph into the registry; gives the graph's tag and the version."""
    try:
        pairs = [plan.pair for plan in plans]
        request = request_of([pairs[0]], source_path(pairs[0], settings))
        runs: list[StageRun] = []

        def listen(event: Event) -> None:
            if event.run is not None:
                runs.append(event.run)

        with open_shelf(settings.registry, name) as shelf:
            tag = with_graph(
                request,
                settings,
                lambda model, graph: store_graph(shelf, SharedWork(model=model, graph=graph, stages=tuple(runs))),
                listen,
            )
            return tag, begin(shelf, pairs)
    except EXPECTED as error:
        raise_transient(error.as_json())
        raise


class Model:
    """One model of a spread run."""

    def __init__(self, plans: Sequence[PairPlan]) -> None:
        self.plans = {plan.pair.target: plan for plan in plans}
        self.outcomes: dict[str, Outcome] = {}
        self.waiting: set[str] = set()
        self.version = ""

    @property
    def first(self) -> PairPlan:
        """Any of its plans."""
        return next(iter(self.plans.values()))


class Spread:
    """A parent run's models, from plans to outcomes."""

    def __init__(self, parent: str, settings: Settings, given: dict[str, Any]) -> None:
        self.settings = settings
        self.given = {name: value for name, value in given.items() if name in SETTINGS}
        self.fanout = Fanout(parent)
        self.outcomes: dict[tuple[str, str], Outcome] = {}
        self._models: dict[str, tuple[Model, str]] = {}
        self._progress: Progress | None = None
        self._total = 1

    def run(self, plans: Sequence[PairPlan], *, seconds: float) -> tuple[Outcome, ...]:
        """Do what plans say; outcomes in their order. A parent that is cancelled cancels its children."""
        names = dict.fromkeys(plan.pair.name for plan in plans)
        self._total = max(1, sum(plan.action == "build" for plan in plans))
        self._progress = Progress("catalog")
        with self.fanout:
            for name in names:
                self._begin(Model([plan for plan in plans if plan.pair.name == name]), name)
                self._take_in()
            self.fanout.wait(self._ended, seconds=seconds)
        self._progress.tell(1.0, last=True)
        return tuple(self.outcomes[plan.pair.name, plan.pair.target] for plan in plans)

    def _begin(self, model: Model, name: str) -> None:
        """Prepare a model and start its targets' runs."""
        try:
            recorded = self._recorded(name)
        except EXPECTED as error:
            self._finish(model, [failed(plan, error.as_json()) for plan in model.plans.values()])
            return
        for target, plan in model.plans.items():
            model.outcomes[target] = kept(plan, recorded.get(plan.pair.key) or recorded.get(target.lower()))
        builds = [plan for plan in model.plans.values() if plan.action == "build"]
        if not builds:
            drafted = any(one.drafted for one in recorded.values())
            self._settle(model) if drafted else self._finish(model, list(model.outcomes.values()))
            return
        state = prepare(name, builds, self.settings, return_state=True)
        if not state.is_completed():
            told = _error_of(state.result(raise_on_failure=False))
            for plan in builds:
                model.outcomes[plan.pair.target] = failed(plan, told, recorded.get(plan.pair.target.lower()))
                self._remember(plan, told)
            self._finish(model, list(model.outcomes.values()))
            return
        graph, model.version = state.result()
        for plan in builds:
            self._launch(model, plan, graph)

    def _launch(self, model: Model, plan: PairPlan, graph: str) -> None:
        job = TargetJob(
            pair=plan.pair,
            recipe=plan.recipe,
            why=plan.why,
            graph=graph,
            version=model.version,
            published=plan.published,
        )
        model.waiting.add(plan.pair.target)
        self._models[plan.pair.label] = (model, plan.pair.target)
        parameters = {"job": as_parameter(job), "settings": self.given}
        self.fanout.add(Child(f"convert_target/{job.pool}", plan.pair.label, parameters))

    def _take_in(self) -> None:
        for child in self.fanout.poll():
            self._ended(child)

    def _ended(self, child: Child) -> None:
        """A target's run has ended; with the last of a model its version is put together."""
        model, target = self._models[child.name]
        plan = model.plans[target]
        outcome = outcome_of(child.last.labels) if child.last is not None and not child.problem else None
        if outcome is None:
            outcome = _without_result(plan, child)
        model.outcomes[target] = outcome
        model.waiting.discard(target)
        if outcome.status == "failed" and outcome.error:
            self._remember(plan, outcome.error)
        if not model.waiting:
            self._settle(model)

    def _settle(self, model: Model) -> None:
        pairs = [plan.pair for plan in model.plans.values()]
        outcomes = model.outcomes
        try:
            with open_shelf(self.settings.registry, model.first.pair.name) as shelf:
                version = model.version or begin(shelf, pairs)
                ready = [name for name, one in outcomes.items() if one.status in ("unchanged", "drafted")]
                settled = settle(shelf, version, pairs, ready)
        except EXPECTED as failure:
            told = failure.as_json()
            self._finish(
                model,
                [failed(model.plans[name], told) if one.status == "drafted" else one for name, one in outcomes.items()],
            )
            return
        self._finish(model, [placed(one, settled) if name in ready else one for name, one in outcomes.items()])

    def _finish(self, model: Model, outcomes: Sequence[Outcome]) -> None:
        self.outcomes.update({(outcome.name, outcome.target): outcome for outcome in outcomes})
        if self._progress is not None:
            self._progress.tell(len(self.outcomes) / max(self._total, len(self.outcomes)))

    def _recorded(self, name: str) -> dict[str, Recorded]:
        with open_shelf(self.settings.registry, name) as shelf:
            return read_recorded(shelf)

    def _remember(self, plan: PairPlan, error: dict[str, Any]) -> None:
        failure = Failure(name=plan.pair.name, target=plan.pair.target, recipe=plan.recipe, error=error)
        remember_failure(Path(self.settings.cache_dir), failure)


def _error_of(error: Any) -> dict[str, Any]:
    """An exception of a task as ``--json`` prints it; a bug keeps its type's name."""
    if isinstance(error, EXPECTED):
        return error.as_json()
    known = getattr(error, "error", None)
    if isinstance(known, dict):
        return known
    message = f"{type(error).__name__}: {error}"
    return {"code": "", "message": message, "hint": "the run's log has the traceback", "exit_code": 1}


def _without_result(plan: PairPlan, child: Child) -> Outcome:
    """The outcome of a pair whose run left none."""
    message = child.last.state.message if child.last is not None and child.last.state is not None else ""
    why = child.problem or message or "it ended without a result"
    error = {
        "code": "CNV-1006" if "crashed" in why else "CNV-2357",
        "message": f"{plan.pair.label} was not converted: {why}",
        "hint": "look at the run in Prefect; `prefect work-pool ls` and `prefect deployment ls` show what there is",
        "exit_code": 10 if "crashed" in why else 2,
    }
    outcome = failed(plan, error)
    return msgspec.structs.replace(outcome, status="cancelled") if child.problem == "cancelled" else outcome
