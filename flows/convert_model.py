"""The flow ``convert_model``: one model, converted by the same call that the command line makes, or spread over pools.

In this process, the task is called directly, in the flow's main thread, so that a cancelled run unwinds through it and
its workers end. With ``pools`` the shared stages run here, and each target in its toolchain's pool.
Results are plain values (digests and paths); the data itself goes through the stage cache and the registry.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from prefect import flow, task  # isort: skip
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from convert.catalog.pairs import expand
from convert.catalog.planning import plan_pairs
from convert.catalog.sense import sense_of
from convert.catalog.values import Catalog, CatalogFile, Entry, ModelEntry, Outcome
from convert.errors import UsageError
from convert.gate import parse_gate
from convert.pipeline import convert_model as convert
from convert.request import Request, as_json
from convert.settings import load_settings
from convert.values import ExportOptions, LoadOptions
from flows.convert_catalog import state_of
from flows.pools import known_toolchains
from flows.showing import show_table, tell_regressions
from flows.spread import Spread
from flows.watch import ended_by, watched


@task(name="convert", cache_policy=NO_CACHE, task_run_name="{request[load][path]}")
def convert_task(request: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Run one request and give the document that ``convert --json`` prints."""
    return as_json(convert(msgspec.convert(request, Request), load_settings(settings)))


@flow(name="convert_model", flow_run_name="{model}", persist_result=False)
def convert_model(
    model: str,
    targets: list[str],
    precision: str = "",
    inputs: list[str] | None = None,
    gate: list[str] | None = None,
    name: str = "",
    version: str = "",
    settings: dict[str, Any] | None = None,
    pools: bool = False,
    hours: float = 24.0,
) -> State[Any]:
    """Convert a model for its targets and publish what passed.

    Args:
        model: Path of the model file on the worker's machine.
        targets: Cards or SoCs.
        precision: Empty for each target's default.
        inputs: Texts of ``--input``.
        gate: Texts of ``--gate``.
        name: The model's name in the registry; empty for the file's.
        version: The version to publish; empty for the next patch.
        settings: Settings by name, over the worker's environment.
        pools: Convert each target by a run of its own, in its toolchain's work pool.
        hours: How long to wait for the pools.
    """
    given = settings or {}
    entry = ModelEntry(
        path=str(Path(model).absolute()),
        targets=tuple(targets),
        precision=msgspec.convert(precision or None, type=Any),
        inputs=tuple(inputs or ()),
        gate=parse_gate(gate or []),
        name=name or None,
        version=version or None,
    )
    with watched() as watch:
        try:
            if pools:
                return _spread(entry, given, seconds=hours * 3600.0)
            document = convert_task(msgspec.to_builtins(_request(entry)), given)
        except TerminationSignal as error:
            return ended_by(watch, error)
    failed = document["error"]
    if failed:
        return Failed(message=f"[{failed['code']}] {failed['message']}", data=document)
    return Completed(message=f"{document['name']}:{document['version']} {document['status']}", data=document)


def _request(entry: ModelEntry) -> Request:
    return Request(
        load=LoadOptions(path=entry.path or "", inputs=entry.inputs),
        targets=entry.targets,
        precision=msgspec.convert(entry.precision or "", type=Any),
        export=ExportOptions(),
        gate=entry.gate,
        name=entry.name or "",
        version=entry.version or "",
    )


def _spread(entry: ModelEntry, given: dict[str, Any], *, seconds: float) -> State[Any]:
    """The model as a catalogue of one: what is unchanged is left alone."""
    problems = [message for _, message in sense_of(CatalogFile(model=(entry,)))]
    if problems:
        raise UsageError("CNV-2354", f"{entry.path}: {'; '.join(problems)}", hint="change the flow's parameters")
    settings = load_settings(given)
    pairs = expand(Catalog(path=entry.path or "", entries=(Entry(line=1, model=entry),)))
    plans = plan_pairs(pairs, settings, elsewhere=known_toolchains({pair.backend for pair in pairs}), retry_failed=True)
    spread = Spread(str(flow_run.id), settings, {"registry": settings.registry, **given})
    outcomes: tuple[Outcome, ...] = spread.run(plans, seconds=seconds)
    show_table("model", outcomes)
    tell_regressions(outcomes)
    return state_of(outcomes)
