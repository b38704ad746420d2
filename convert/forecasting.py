"""A forecast by itself: a model loaded, exported and simplified, adapted where a target is named, and forecast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from convert.errors import GateFailed
from convert.guarding import guarded
from convert.ladder import accumulation
from convert.pipeline import Run, with_stages
from convert.request import Request
from convert.settings import Settings
from convert.stage import Listener
from convert.values import AdaptOptions, Forecast, ForecastOptions, ModelFile, NodeForecast, OnnxGraph
from op_registry.overlay import overlay_digest
from op_registry.targets import find_target
from op_registry.values import Target

NODES = "forecast.json"
SHOWN = 3


class Forecasted(msgspec.Struct, frozen=True, kw_only=True):
    """A forecast, what it was made of, and every node of it in the order of the graph."""

    model: ModelFile
    target: str
    nodes: int
    sampled: str
    forecast: Forecast
    table: tuple[NodeForecast, ...]


def forecast_model(
    request: Request,
    settings: Settings,
    options: ForecastOptions,
    listener: Listener = lambda event: None,
) -> Forecasted:
    """Forecast a model file for the first of ``request.targets``, or for none in particular.

    Raises what load, export, simplify and adapt raise, and what :func:`convert.stages.forecast.forecast_graph` does.
    """
    target = find_target(request.targets[0]) if request.targets else None

    def use(model: ModelFile, graph: OnnxGraph, run: Run) -> Forecasted:
        if target is not None:
            graph = _adapted(graph, target, request, run)
        chosen = msgspec.structs.replace(options, accumulate=accumulation(target))
        forecast: Forecast = _stage(run, "forecast", graph, chosen, target)
        return Forecasted(
            model=model,
            target=target.name if target else "",
            nodes=graph.nodes,
            sampled="given" if request.load.samples else "random",
            forecast=forecast,
            table=read_table(forecast),
        )

    return with_stages(request, settings, use, listener)


def _adapted(graph: OnnxGraph, target: Target, request: Request, run: Run) -> OnnxGraph:
    if target.backend == "onnxruntime":
        return graph
    options = AdaptOptions(
        target=target.name,
        toolchain_version=request.toolchain_version,
        opset=request.export.opset,
        overlay=overlay_digest(),
    )
    adapted: OnnxGraph = _stage(run, "adapt", graph, options, target)
    return adapted


def _stage(run: Run, name: str, graph: OnnxGraph, options: Any, target: Target | None) -> Any:
    with guarded(name):
        value, _ = run.stages.run(
            name,
            [graph],
            [graph, options],
            key_options=options,
            limits=run.limits(),
            target=target.name if target else "",
        )
    return value


def read_table(forecast: Forecast) -> tuple[NodeForecast, ...]:
    """Every node of a forecast, from its file."""
    return msgspec.json.decode(Path(forecast.path(NODES)).read_bytes(), type=tuple[NodeForecast, ...])


def forecast_failed(forecast: Forecast, model: str) -> GateFailed:
    """The error for a forecast that does not hold: the worst nodes, and what the plan says."""
    named = [f"{node.op} {node.node!r} ({node.reasons[0]})" for node in forecast.guilty[:SHOWN]]
    if not named:
        named = [note.text for note in forecast.notes if note.level == "warning"][:SHOWN]
    if forecast.plan_holds and forecast.keep:
        count = f"{len(forecast.keep)} nodes" if len(forecast.keep) > 1 else "one node"
        hint = f"with {count} kept in fp32 it holds: --precision mixed does that, and `keep` of --json names them"
    else:
        hint = "a safer precision may hold (--precision auto tries them); --gate METRIC=VALUE says what is acceptable"
    told = f"{forecast.precision} does not hold for {model}: {'; '.join(named) or 'see the outputs'}"
    return GateFailed("CNV-8101", told, hint=hint)
