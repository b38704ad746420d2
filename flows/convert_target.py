"""The flow ``convert_target``: one target of one model, on a machine that has its toolkit.

fetch the graph ─▶ adapt, check, compile, validate ─▶ deliver to the registry

The tasks are called directly, in the flow's main thread, so that a cancelled run unwinds through them and their workers
and compilers end. Doing it twice does no harm: what is delivered already, with the same recipe, is left alone.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from flows.values import OUTCOME, TargetJob, job_of  # first: it keeps Prefect from starting a server of its own

from prefect import flow, get_run_logger, task  # isort: skip
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from artifacts.scratch import temporary_folder
from convert.across.graphs import SharedWork, fetch_graph
from convert.across.targets import convert_graph
from convert.catalog.delivery import deliver
from convert.catalog.outcomes import failed, of_result
from convert.catalog.pairs import request_of
from convert.catalog.recipes import differences
from convert.catalog.records import read_recorded
from convert.catalog.running import recipe_file
from convert.catalog.shelf import open_shelf
from convert.catalog.values import Outcome, PairPlan, Recorded
from convert.errors import EXPECTED
from convert.publishing import release_of
from convert.request import Conversion
from convert.settings import Settings, load_settings
from flows.faults import RETRIES, RETRY_SECONDS, TransientFault, is_transient, raise_transient
from flows.pools import tell_toolchain
from flows.showing import Progress, show_report
from flows.watch import CLIENT_ERRORS, ended_by, watched

RETRY: dict[str, Any] = {
    "cache_policy": NO_CACHE,
    "retries": RETRIES,
    "retry_delay_seconds": RETRY_SECONDS,
    "retry_condition_fn": is_transient,
    "persist_result": False,
}


@task(name="fetch", **RETRY)
def fetch(job: TargetJob, settings: Settings, folder: Path) -> SharedWork:
    """The graph, with samples and reference outputs, from the registry."""
    try:
        with open_shelf(settings.registry, job.pair.name) as shelf:
            return fetch_graph(shelf, job.graph, folder)
    except EXPECTED as error:
        raise_transient(error.as_json())
        raise


@task(name="convert", **RETRY)
def convert(job: TargetJob, settings: Settings, work: SharedWork) -> Conversion:
    """adapt, check, compile, validate."""
    request = request_of([job.pair], job.pair.path or job.pair.name)
    conversion = convert_graph(request, settings, work, Progress(job.pair.label).listen)
    raise_transient(conversion.error)
    return conversion


@task(name="deliver", **RETRY)
def deliver_target(job: TargetJob, settings: Settings, conversion: Conversion) -> str:
    """The passed target into the registry; gives the digest of its manifest."""
    result = conversion.targets[0]
    try:
        with open_shelf(settings.registry, job.pair.name) as shelf:
            recipe = recipe_file(_plan(job), result)
            return deliver(shelf, job.version, release_of(conversion, result), recipe).digest
    except EXPECTED as error:
        raise_transient(error.as_json())
        raise


@flow(name="convert_target", flow_run_name="{job[pair][name]}@{job[pair][target]}", persist_result=False)
def convert_target(job: dict[str, Any], settings: dict[str, Any] | None = None) -> State[Any]:
    """Convert one target from a graph in the registry, and deliver it there if its gate passes.

    Args:
        job: What to convert, as ``convert_catalog`` and ``convert_model`` hand it over.
        settings: Settings by name, over those of the worker's machine.
    """
    wanted = job_of(job)
    with watched() as watch:
        try:
            outcome = _outcome(wanted, load_settings(settings or {}))
        except TerminationSignal as error:
            return ended_by(watch, error)
    leave(outcome)
    show_report(outcome)
    if outcome.error:
        return Failed(message=f"[{outcome.error['code']}] {outcome.error['message']}")
    return Completed(message=f"{outcome.name}@{outcome.target} {outcome.verdict}; {outcome.change}")


def _outcome(job: TargetJob, settings: Settings) -> Outcome:
    plan = _plan(job)
    try:
        last = _recorded(job, settings)
        if last is not None and last.drafted and last.recipe and not differences(job.recipe, last.recipe):
            get_run_logger().info("%s was delivered already", job.pair.label)
            return _already(plan, last)
        with temporary_folder("model-convert") as folder:
            limited = convert.with_options(tags=[f"toolchain:{job.pair.backend}"])
            conversion = limited(job, settings, fetch(job, settings, Path(folder)))
            result = conversion.targets[0]
            outcome = of_result(plan, result, last)
            if result.toolchain:
                tell_toolchain(job.pair.backend, " ".join(f"{k} {v}" for k, v in sorted(result.toolchain.items())))
            if result.error is None:
                outcome = msgspec.structs.replace(outcome, digest=deliver_target(job, settings, conversion))
            return outcome
    except EXPECTED as error:
        return failed(plan, error.as_json())
    except TransientFault as fault:
        return failed(plan, fault.error)


def _plan(job: TargetJob) -> PairPlan:
    return PairPlan(pair=job.pair, action="build", why=job.why, recipe=job.recipe, published=job.published)


def _recorded(job: TargetJob, settings: Settings) -> Recorded | None:
    with open_shelf(settings.registry, job.pair.name) as shelf:
        found = read_recorded(shelf)
    return found.get(job.pair.key) or found.get(job.pair.target.lower())


def _already(plan: PairPlan, last: Recorded) -> Outcome:
    return Outcome(
        name=plan.pair.name,
        target=plan.pair.target,
        status="drafted",
        verdict=last.verdict,
        change=plan.why,
        ref=last.ref,
        digest=last.digest,
        owner=plan.pair.owner,
    )


def leave(outcome: Outcome) -> None:
    """Leave the outcome where the parent run finds it. Retried: without it the parent would run the pair again."""
    for _ in range(10):
        try:
            with get_client(sync_client=True) as client:
                labels = {OUTCOME: msgspec.json.encode(outcome).decode()}
                client.update_flow_run_labels(str(flow_run.id), labels)  # type: ignore[arg-type]
                return
        except CLIENT_ERRORS:
            time.sleep(3)
