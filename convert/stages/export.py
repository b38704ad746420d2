"""export: ``LoadedModel ─▶ OnnxGraph``, checked against torch right away.

A torch model is exported by ``dynamo`` (modules and exported programs) or ``torchscript`` (archives, and modules too).
Each attempt is run on ONNX Runtime beside torch: on every sample, on a second size of each symbolic dimension, and on
inputs that bring out known silent faults. Where one of those can concern the graph in hand
(``convert.exporter_faults``), both exporters are judged; the first whose numbers are right is taken, and every verdict
is kept.
An ONNX model is adopted: brought into the form that every later stage relies on (``convert.stages.adopt``).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from convert.arrays import Array, load_npz
from convert.constancy import constancy_notes
from convert.errors import ExportError, LoadError, UsageError
from convert.exporter_faults import ExporterName, concerning
from convert.graphs import (
    EXTERNAL_FROM,
    MODEL,
    carry_calibration,
    facts,
    model_entries,
    opset_of,
    write_model,
    write_samples,
)
from convert.loading.torch_models import Call, OpenModel, open_model, sample_calls
from convert.lowering import LoweringRefused, lower
from convert.normalize import NameMismatch, normalize_export
from convert.ort import SessionFailed, exact_settings, run_samples
from convert.proof import departures
from convert.stages.adopt import adopt_onnx
from convert.stages.exporters import Attempt, Probing, best_of, feed_of, told
from convert.ties import TieCount, write_ties
from convert.torch_export import ExporterFailed, Route, TorchRun, export_with, run_torch, second_size, tidy
from convert.values import ExportOptions, LoadedModel, LoadOptions, Note, OnnxGraph, moved

EXPORTERS: dict[str, tuple[ExporterName, ...]] = {"torchscript": ("torchscript",), "exported_program": ("dynamo",)}
BOTH: tuple[ExporterName, ...] = ("dynamo", "torchscript")
PROGRAM = Route("dynamo", detour="program")
DETOURS = (
    ("masked-rows", Route("dynamo", asked=23)),
    ("frozen-branch", Route("torchscript", detour="script")),
    ("repeated-index", PROGRAM),
    ("floor-division", PROGRAM),
)
"""Ways around a silent fault, tried where no exporter is right. From opset 23 on dynamo writes attention as one
operator; a script keeps the branches that a trace freezes; dynamo is right where the other loses an addition. It can
also do some of what the other refuses."""
OWN_OPSET: dict[str, int] = {"dynamo": 18, "torchscript": 17}
"""The opset at which each exporter is at its best: dynamo's own, and the last before Reduce and Split changed."""


def export_graph(loaded: LoadedModel, source: LoadOptions, options: ExportOptions, folder: Path) -> OnnxGraph:
    """Export a model to ONNX and prove it against torch.

    Raises :class:`ExportError`: CNV-4001 no exporter could do it, CNV-4002 the exported graph gives other numbers,
    CNV-4003 the exporter asked for can't take this format, CNV-4004 the opset asked for was not reached.
    """
    if loaded.format == "onnx":
        return adopt_onnx(loaded, source, options, folder)
    _refuse_complex(loaded)
    model = open_model(loaded, source)
    calls = sample_calls(loaded)
    second = second_size(loaded, calls)
    runs = [_run(model, call) for call in calls] + [_run(model, call, another_size=True) for call in second]
    _refuse_without_numbers(runs[0])
    job = _Job(model, loaded, calls + second, runs, options, folder)
    attempts = _attempts(job, _routes(loaded, options))
    chosen = best_of(attempts)
    if chosen is None:
        _refuse_state(model, job)
        raise _refused([one.refusal for one in attempts])
    return _settled(told(chosen, attempts, _unjudged(loaded, options, attempts)), folder)


@dataclass(frozen=True)
class _Job:
    """A model to export, the calls that every export of it is checked with, and what torch gave for each."""

    model: OpenModel
    loaded: LoadedModel
    calls: list[Call]
    runs: list[TorchRun]
    options: ExportOptions
    folder: Path


def _attempts(job: _Job, routes: Sequence[Route]) -> list[Attempt]:
    """Exports in order of preference, until one is right that no known silent fault of its exporter can concern."""
    probing = Probing(job.model, job.loaded, job.calls[0])
    attempts: list[Attempt] = []
    for route in routes:
        attempts.append(_attempt(route, job))
        probing.judge(attempts)
        if attempts[-1].right and not attempts[-1].faults and job.options.exporter != "both":
            return attempts
    for route in _detours(attempts, job.loaded, job.options):
        if not any(one.right for one in attempts):
            attempts.append(_attempt(route, job))
            probing.judge(attempts)
    return attempts


def _detours(attempts: Sequence[Attempt], loaded: LoadedModel, options: ExportOptions) -> list[Route]:
    """The ways around the silent faults that concern the attempts, and last what an exporter refused goes through."""
    named = {fault.name for attempt in attempts for fault in attempt.faults}
    routes = dict.fromkeys([*(route for fault, route in DETOURS if fault in named), PROGRAM])
    served = [route for route in routes if options.exporter in ("auto", "both", route.exporter)]
    return [route for route in served if route.detour != "program" or loaded.format == "torchscript"]


def _settled(graph: OnnxGraph, folder: Path) -> OnnxGraph:
    """The chosen attempt's files in the stage's own folder, and nothing of the others."""
    for path in list(Path(graph.folder).iterdir()):
        path.rename(folder / path.name)
    for name in {Path(graph.folder).name, *(path.name for path in folder.glob("attempt-*"))}:
        shutil.rmtree(folder / name, ignore_errors=True)
    return moved(graph, folder)


def _refuse_complex(loaded: LoadedModel) -> None:
    """Complex inputs: exporters make pairs of real numbers of them, or fail far from the cause."""
    found = [f"{spec.name} ({spec.dtype})" for spec in loaded.inputs if spec.dtype.startswith("complex")]
    if found:
        raise ExportError(
            "CNV-4001",
            f"the model can't be exported: no compiler takes complex inputs: {', '.join(found)}",
            hint="let forward() take torch.view_as_real of them, and begin with torch.view_as_complex",
        )


def _refuse_state(model: OpenModel, job: _Job) -> None:
    """Before an exporter is blamed: a model that keeps state between calls gives other numbers by itself."""
    first, again = job.runs[0], run_torch(model, job.calls[0])
    if departures(first.names, [first.outputs], [again.outputs]):
        raise LoadError(
            "CNV-3040",
            "the model gives another answer when it is run again on the same inputs: it keeps state between calls",
            hint="pass the state in as an input and out as an output; a graph has no memory of earlier calls",
        )


def _refuse_without_numbers(run: TorchRun) -> None:
    """A model that gives NaN or Inf everywhere can't be proven right by anything."""
    lost = [
        name
        for name, output in zip(run.names, run.outputs, strict=True)
        if output.size and output.dtype.kind == "f" and not np.isfinite(output).any()
    ]
    if lost:
        raise ExportError(
            "CNV-4010",
            f"the model itself gives no finite number on the sample: {', '.join(lost)}",
            hint="give real inputs (--samples); random ones may lie where the model overflows",
        )


def _run(model: OpenModel, call: Call, *, another_size: bool = False) -> TorchRun:
    try:
        return run_torch(model, call)
    except ExporterFailed as failure:
        if another_size:
            raise ExportError(
                "CNV-4005",
                f"a symbolic dimension is fixed inside the model: at another size of it, {failure}",
                hint="give that dimension as a number (--input), or make the model take its size from its input",
            ) from failure
        raise ExportError(
            "CNV-4009", str(failure), hint="check the sample inputs (--samples, --input) against what forward() takes"
        ) from failure


def _routes(loaded: LoadedModel, options: ExportOptions) -> tuple[Route, ...]:
    able = EXPORTERS.get(loaded.format, BOTH)
    if options.exporter == "auto" or options.exporter == "both":
        return tuple(Route(name) for name in able)
    if options.exporter not in able:
        raise ExportError(
            "CNV-4003",
            f"the {options.exporter} exporter can't take a model in the format {loaded.format}",
            hint=f"leave --exporter out, or use --exporter {able[0]}",
        )
    return (Route(options.exporter),)


def _unjudged(loaded: LoadedModel, options: ExportOptions, attempts: Sequence[Attempt]) -> list[tuple[str, str]]:
    """The exporters that were not tried, each with why; empty where it could have told nothing."""
    able = EXPORTERS.get(loaded.format, BOTH)
    tried = {one.exporter for one in attempts}
    why = {name: "" for name in able if name not in tried}
    if options.exporter not in ("auto", "both"):
        why = dict.fromkeys(why, f"--exporter {options.exporter}")
    return [
        *why.items(),
        *((name, f"it can't take a model in the format {loaded.format}") for name in OWN_OPSET if name not in able),
    ]


def _attempt(route: Route, job: _Job) -> Attempt:
    """Export one way, and judge what comes out on every sample."""
    attempt = Attempt(exporter=route.name, opset=0)
    try:
        _made(attempt, route, job)
    except (ExporterFailed, SessionFailed, NameMismatch) as failure:
        attempt.graph, attempt.failure = None, str(failure)
    return attempt


def _made(attempt: Attempt, route: Route, job: _Job) -> None:
    folder = job.folder / f"attempt-{route.exporter}-{route.asked}{route.detour}"
    raw = folder / "raw"
    raw.mkdir(parents=True)
    loaded, names = job.loaded, job.runs[0].names
    opset = route.asked or _opset_for(route.exporter, job.options)
    exported = export_with(route, job.model, loaded, job.calls[0], opset, folder=raw, plain=job.runs[0].plain)
    attempt.faults = concerning(route.exporter, exported)
    proto = exported.proto
    normalize_export(proto, loaded.inputs, names)
    reached = opset_of(proto)
    wanted = job.options.opset or (OWN_OPSET[route.exporter] if route.asked else 0)
    if wanted and reached != wanted:
        proto = _brought_to(proto, wanted)
    written = write_model(proto, folder, weights_from=raw, inline_below=EXTERNAL_FROM)
    tidy(raw)
    attempt.opset = opset_of(proto)
    described = facts(proto)
    feeds = [feed_of([spec.name for spec in described["inputs"]], loaded, call) for call in job.calls]
    outputs = run_samples(folder / MODEL, feeds, exact_settings(folder / MODEL))
    ties = write_ties(proto, folder / MODEL, feeds)
    count = TieCount(names)
    if departed := _departed(job.runs, outputs, [load_npz(folder / name) for name in ties], count):
        attempt.wrong = True
        raise ExporterFailed(f"ONNX Runtime gives other numbers than torch: {departed}")
    calibration = carry_calibration(loaded, [spec.name for spec in described["inputs"]], folder)
    files = model_entries(folder, [*written, *write_samples(folder, feeds, outputs), *ties, *calibration])
    notes = [*constancy_notes(folder / MODEL, feeds, outputs, names), *count.notes("torch")]
    notes += _notes(job, described, route, reached)
    attempt.graph = OnnxGraph(
        parent=loaded.digest,
        stage="export",
        dims=loaded.dims,
        sample_count=len(feeds),
        calibration_count=len(calibration),
        made_by=route.exporter,
        notes=tuple(notes),
        files=files,
        folder=str(folder),
        **described,
    )


def _opset_for(exporter: str, options: ExportOptions) -> int:
    """The opset to ask of an exporter; dynamo is right from its own on, and is lowered by us below that."""
    own = OWN_OPSET[exporter]
    return (max(options.opset, own) if exporter == "dynamo" else options.opset) or own


def _brought_to(proto: ModelProto, opset: int) -> ModelProto:
    try:
        return lower(proto, opset)
    except (LoweringRefused, UsageError) as refused:
        raise ExporterFailed(f"asked for opset {opset}, made {opset_of(proto)}: {refused}") from refused


def _departed(runs: list[TorchRun], outputs: list[list[Array]], ties: list[dict[str, Array]], count: TieCount) -> str:
    return "; ".join(departures(runs[0].names, [run.outputs for run in runs], outputs, ties, count))


def _notes(job: _Job, described: dict[str, Any], route: Route, reached: int) -> list[Note]:
    notes = [Note(text=f"exported by {route.exporter} at opset {reached}")]
    kept = {spec.name for spec in described["inputs"]}
    notes += [
        Note(level="warning", text="the model does not use this input; the graph does not have it", subject=spec.name)
        for spec in job.loaded.inputs
        if spec.name not in kept
    ]
    notes += [Note(text=text) for text in job.runs[0].left_out]
    return notes


def _refused(refusals: list[str]) -> ExportError:
    wrong = [text for text in refusals if "gives other numbers" in text]
    if wrong:
        return ExportError(
            "CNV-4002",
            f"the exported graph is wrong: {' | '.join(refusals)}",
            hint="try the other exporter (--exporter) or another --opset; the outputs named are where it departs",
        )
    if any("asked for opset" in text for text in refusals):
        return ExportError(
            "CNV-4004",
            f"the opset was not reached: {' | '.join(refusals)}",
            hint="leave --opset out: the graph is brought to the opset that the target wants after the export",
        )
    return ExportError(
        "CNV-4001",
        f"the model can't be exported: {' | '.join(refusals)}",
        hint="what is named above has no ONNX form: rewrite it in the model (a trace may go through where a script does"
        " not), or export by hand and convert the .onnx",
    )
