"""The forecast beside one inference, and the search for a mixed plan beside ``auto_mixed_precision``'s.

CPU seconds of this process with one thread, the least of several runs: the forecast's per sample (an exact and an
emulated run, with everything that is measured of them), against one inference of the same graph as ONNX Runtime runs it
by default. Where nodes are tiny, dispatch is all that a run costs: beside the forecast stand the two runs alone, with
nothing measured, which no forecast that rounds with ONNX Runtime can be cheaper than. The search is counted in passes
over the whole graph, on the same model, sample and gate; it needs the extra ``bench`` (onnxconverter-common) and is
left out without it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

from benchmarks import forecast_memory
from benchmarks.measure import Row
from benchmarks.networks import convolutions, tiny_nodes, transformer
from convert.compare import compare_outputs, fold
from convert.gate import judge
from convert.graphs import MODEL, facts, model_entries, write_samples
from convert.ort import exact_settings, open_session, run_samples, run_session
from convert.precision.emulate import emulated
from convert.precision.flow import prepared
from convert.precision.stats import measure
from convert.precision.study import Study
from convert.stages.forecast import forecast_graph
from convert.values import ForecastOptions, OnnxGraph, ValidationReport

RUNS = 7
FORECAST_BOUND = 3.0
SEARCH_BOUND = 0.1
LIBRARY = "onnxconverter_common"
TINY = ("tiny nodes", "more tiny nodes")
NETWORKS: dict[str, Callable[[], tuple[onnx.ModelProto, dict[str, Any]]]] = {
    "convolutions": convolutions,
    "transformer 768 wide": transformer,
    "transformer 384 wide": lambda: transformer(width=384),
    "tiny nodes": lambda: tiny_nodes(2_000),
    "more tiny nodes": lambda: tiny_nodes(10_000),
}


def rows() -> list[Row]:
    """The table."""
    found = [_forecast(name, *made()) for name, made in NETWORKS.items()]
    found += [_runs_alone(name, *NETWORKS[name]()) for name in TINY]
    found += forecast_memory.rows()
    if importlib.util.find_spec(LIBRARY) is not None:
        found.append(_search())
    return found


def _forecast(name: str, model: onnx.ModelProto, feed: dict[str, Any]) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        graph = _graph(Path(folder) / "graph", model, feed)
        session = open_session(graph.model_path)
        study = Study(graph, ForecastOptions(precision="fp16"), Path(folder) / "runs")
        study.open_exact()
        other = study.watched(study.candidate(frozenset()), exact=False)

        def one_sample() -> None:
            ours = study.run_exact(feed)
            theirs = study.run_other(other, feed, ours)
            measure(study.tensors, ours.readings, theirs.readings, study.rounder(), study.fmt)

        ours, base = _least(one_sample), _least(lambda: run_session(session, feed))
        what = f"forecast of one sample, {name} ({graph.nodes} nodes)"
        return Row(what=what, ours=ours * 1000, base=base * 1000, unit="CPU ms", bound=FORECAST_BOUND)


def _runs_alone(name: str, model: onnx.ModelProto, feed: dict[str, Any]) -> Row:
    """An exact and a rounding run, with no output but the model's own."""
    exact = prepared(model)
    rounding = emulated(exact, "fp16", frozenset()).model
    base, *ours = (open_session(one.SerializeToString()) for one in (model, exact, rounding))
    casts = sum(node.op_type == "Cast" for node in rounding.graph.node)
    return Row(
        what=f"the two runs of a forecast alone, {name} ({casts} casts)",
        ours=1000 * sum(_least(lambda session=session: run_session(session, feed)) for session in ours),
        base=1000 * _least(lambda: run_session(base, feed)),
        unit="CPU ms",
    )


def _least(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(RUNS):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return min(times)


def _graph(folder: Path, model: onnx.ModelProto, feed: dict[str, Any]) -> OnnxGraph:
    folder.mkdir(parents=True)
    (folder / MODEL).write_bytes(model.SerializeToString())
    outputs = run_samples(folder / MODEL, [feed], exact_settings(folder / MODEL))
    names = write_samples(folder, [feed], outputs)
    return OnnxGraph(
        parent="sha256:" + "0" * 64,
        stage="simplify",
        sample_count=1,
        files=model_entries(folder, [MODEL, *names]),
        folder=str(folder),
        **facts(model),
    )


def _search() -> Row:
    model, feed = transformer(layers=6, width=64, length=16, heads=4, faulty=True)
    with tempfile.TemporaryDirectory() as folder:
        graph = _graph(Path(folder) / "graph", model, feed)
        options = ForecastOptions(precision="mixed", plan=True)
        forecast = forecast_graph(graph, options, Path(folder) / "forecast")
        if not forecast.plan_holds:
            raise SystemExit("the plan does not hold")
    theirs, kept = _theirs(model, feed)
    what = f"passes of the mixed search, {graph.nodes} nodes ({len(forecast.keep)} kept, theirs {kept})"
    return Row(what=what, ours=float(forecast.evaluations), base=float(theirs), unit="passes", bound=SEARCH_BOUND)


def _theirs(model: onnx.ModelProto, feed: dict[str, Any]) -> tuple[int, int]:
    """How many full-model runs the library's search takes with our gate, and how many nodes it leaves in fp32."""
    library = importlib.import_module(f"{LIBRARY}.auto_mixed_precision")
    passes = [0]
    plain = library.get_tensor_values_using_ort

    def counted(*arguments: Any, **named: Any) -> Any:
        passes[0] += 1
        return plain(*arguments, **named)

    library.get_tensor_values_using_ort = counted
    try:
        with contextlib.redirect_stdout(io.StringIO()) as told:
            library.auto_convert_mixed_precision(model, feed, _keeps_gate, keep_io_types=True)
    finally:
        library.get_tensor_values_using_ort = plain
    done = next((line for line in told.getvalue().splitlines() if line.startswith("Done:")), "")
    return passes[0], done.count("'") // 2


def _keeps_gate(reference: list[Any], candidate: list[Any]) -> bool:
    names = [str(place) for place in range(len(reference))]
    comparison = fold([compare_outputs(reference, candidate, names)])
    report = ValidationReport(parent="", ran_on="forecast", outputs=comparison.outputs, samples=1)
    return judge(report, "mixed").passed
