"""forecast: ``OnnxGraph ─▶ Forecast``. What a precision will do to a graph's numbers, before any compiler runs.

The fp32 graph runs exactly and once more with every stored value rounded; the outputs are judged with the gate, the
errors between are followed back to the nodes that make them, and where a plan is asked for, the nodes to keep in fp32
are found with a few more passes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from artifacts.digest import canonical_json, file_entry, sha256_bytes
from convert.arrays import load_npz
from convert.compare import Compared, compare_outputs, fold
from convert.errors import GateFailed, UsageError
from convert.gate import judge
from convert.ort import SessionFailed, stream_samples
from convert.precision.nodes import guilty, node_forecasts
from convert.precision.plan import Planned, Planner
from convert.precision.progress import Progress
from convert.precision.study import Evaluation, Study
from convert.settings import load_settings
from convert.ties import TieCount, read_ties
from convert.values import Forecast, ForecastOptions, Note, OnnxGraph, ValidationReport, to_json

NODES = "forecast.json"
SEARCHES = "searches"
"""Where under the cache's root searches that are under way keep their checks."""
NEWER = {"bf16": (13, "bfloat16 casts"), "int8": (13, "scales for each channel")}
"""Precision → the oldest opset that can write it, and what it needs of it."""


def forecast_graph(graph: OnnxGraph, options: ForecastOptions, folder: Path) -> Forecast:
    """Forecast a precision for a graph on its samples; ``folder`` gets ``forecast.json``.

    A forecast that does not hold is a result, not an error. Raises:

    - :class:`UsageError` CNV-2321 where the precision can't be emulated in this graph;
    - :class:`GateFailed` CNV-8102 where ONNX Runtime can't run the graph, so that there is nothing to compare with;
    - :class:`ExportError` CNV-4101 where a graph below opset 13 can't be raised for a study of int8.
    """
    _refuse(graph, options)
    folder.mkdir(parents=True, exist_ok=True)
    if options.precision == "fp32":
        return _of_fp32(graph, options, folder)
    scratch = folder / "runs"
    study = _study(graph, options, scratch)
    try:
        first = study.evaluate()
        nodes, gravity = node_forecasts(study, first)
        planner, progress = _planner(study, first)
        planned = planner.plan() if options.plan else None
        progress.done()
        evaluations = study.passes
    except SessionFailed as failure:
        raise _cannot_run(str(failure)) from failure
    finally:
        study.close()
        shutil.rmtree(scratch, ignore_errors=True)
    (folder / NODES).write_bytes(to_json(nodes))
    return Forecast(
        parent=graph.digest,
        precision=options.precision,
        holds=first.verdict.passed,
        outputs=first.outputs,
        planned=planned.outputs if planned is not None else (),
        guilty=guilty(nodes, gravity, first, study.unit, planner.harmful),
        keep=planned.keep if planned is not None else (),
        plan_holds=planned.holds if planned is not None and not first.verdict.passed else None,
        evaluations=evaluations,
        samples=graph.sample_count,
        notes=(*study.notes, *first.notes, *_told(first, planned)),
        files=(file_entry(folder, NODES),),
        folder=str(folder),
    )


def _of_fp32(graph: OnnxGraph, options: ForecastOptions, folder: Path) -> Forecast:
    """fp32 rounds nothing: the graph once more, with ONNX Runtime's optimizations, against the reference."""
    names = [spec.name for spec in graph.outputs]
    feeds = (load_npz(graph.path(f"samples/{number:03d}.npz")) for number in range(graph.sample_count))
    ties = TieCount(names)

    def compared() -> Iterator[Sequence[Compared]]:
        for number, outputs in enumerate(stream_samples(graph.model_path, feeds)):
            reference = [*load_npz(graph.path(f"reference/{number:03d}.npz")).values()]
            yield compare_outputs(reference, ties.settle(reference, outputs, read_ties(graph, number)), names)

    try:
        comparison = fold(compared())
    except SessionFailed as failure:
        raise _cannot_run(str(failure)) from failure
    report = ValidationReport(
        parent=graph.digest, ran_on="forecast", outputs=comparison.outputs, samples=comparison.samples
    )
    verdict = judge(report, "fp32", options.gate)
    (folder / NODES).write_bytes(to_json([]))
    return Forecast(
        parent=graph.digest,
        precision="fp32",
        holds=verdict.passed,
        outputs=comparison.outputs,
        evaluations=1,
        samples=comparison.samples,
        notes=comparison.notes,
        files=(file_entry(folder, NODES),),
        folder=str(folder),
    )


def _study(graph: OnnxGraph, options: ForecastOptions, scratch: Path) -> Study:
    if options.precision == "int8":
        from convert.precision.int8_study import Int8Study

        study: Study = Int8Study(graph, options, scratch)
        return study
    return Study(graph, options, scratch)


def _refuse(graph: OnnxGraph, options: ForecastOptions) -> None:
    names = {entry.name for entry in graph.files}
    if not graph.sample_count or any(f"reference/{n:03d}.npz" not in names for n in range(graph.sample_count)):
        raise _cannot_run("; ".join(note.text for note in graph.notes if note.level == "warning"))
    stored = options.narrow if options.precision == "mixed" else options.precision
    if stored == "bf16" and graph.opset < NEWER["bf16"][0]:
        raise too_old("bf16", graph.opset)


def too_old(precision: str, opset: int) -> UsageError:
    """The error for a graph whose opset has no such numbers."""
    least, words = NEWER[precision]
    return UsageError(
        "CNV-2321",
        f"{precision} can't be written at opset {opset}: ONNX has {words} from {least} on",
        hint=f"bring the model to opset {least} first: convert graph lower MODEL --opset {least}",
    )


def _cannot_run(why: str) -> GateFailed:
    return GateFailed(
        "CNV-8102",
        f"the graph can't be forecast: ONNX Runtime does not run it{f': {why}' if why else ''}",
        hint="a forecast compares an fp32 run with an emulated one; give samples that the model takes (--samples)",
    )


def _planner(study: Study, first: Evaluation) -> tuple[Planner, Progress]:
    """The search for a plan, with what an interrupted one already knew."""
    text = canonical_json([study.graph.digest, study.options])
    key = sha256_bytes(text).removeprefix("sha256:")[:32]
    progress = Progress(Path(load_settings({}).cache_dir) / SEARCHES, key)
    return Planner(study, first, known=progress.checks, tell=progress.add), progress


def _told(first: Evaluation, planned: Planned | None) -> tuple[Note, ...]:
    """The gate's sentences, and what a plan could not do."""
    told = [Note(level="warning", text=text) for text in first.verdict.failures]
    told += [Note(text=text) for text in first.verdict.remarks]
    if planned is not None and planned.reason:
        told.append(Note(level="warning", text=f"plan: {planned.reason}"))
    return tuple(told)
