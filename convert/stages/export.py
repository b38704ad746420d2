"""export: ``LoadedModel ─▶ OnnxGraph``, checked against torch right away.

A torch model is exported by ``dynamo`` (modules and exported programs) or ``torchscript`` (archives, and as the
fallback). Each attempt is run on ONNX Runtime beside torch, on every sample and on a second size of each symbolic
dimension; the first exporter whose numbers are right is taken, and what was wrong with the others is noted.
An ONNX model is adopted: brought into the form that every later stage relies on (``convert.stages.adopt``).
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from onnx import ModelProto

from convert.arrays import Array, load_npz
from convert.constancy import constancy_notes
from convert.errors import ExportError, LoadError, UsageError
from convert.graphs import MODEL, carry_calibration, facts, model_entries, opset_of, write_model, write_samples
from convert.loading.torch_models import Call, OpenModel, open_model, sample_calls
from convert.lowering import LoweringRefused, lower
from convert.normalize import NameMismatch, normalize_export
from convert.ort import SessionFailed, exact_settings, run_samples
from convert.proof import departures
from convert.stages.adopt import adopt_onnx
from convert.ties import TieCount, write_ties
from convert.torch_export import ExporterFailed, TorchRun, export_with, probes, run_torch, second_size, tidy
from convert.values import ExportOptions, LoadedModel, LoadOptions, Note, OnnxGraph

EXPORTERS = {"torchscript": ("torchscript",), "exported_program": ("dynamo",)}
OWN_OPSET = {"dynamo": 18, "torchscript": 17}
"""The opset at which each exporter is at its best: dynamo's own, and the last before Reduce and Split changed."""


def export_graph(loaded: LoadedModel, source: LoadOptions, options: ExportOptions, folder: Path) -> OnnxGraph:
    """Export a model to ONNX and prove it against torch.

    Raises :class:`ExportError`: CNV-4001 no exporter could do it, CNV-4002 the exported graph gives other numbers,
    CNV-4003 the exporter asked for can't take this format, CNV-4004 the opset asked for was not reached.
    """
    if loaded.format == "onnx":
        return adopt_onnx(loaded, source, options, folder)
    model = open_model(loaded, source)
    calls = sample_calls(loaded)
    second = second_size(loaded, calls)
    runs = [_run(model, call) for call in calls] + [_run(model, call, another_size=True) for call in second]
    _refuse_without_numbers(runs[0])
    return _first_right(model, loaded, _Samples(calls + second, runs), options, folder)


def _first_right(
    model: OpenModel, loaded: LoadedModel, samples: _Samples, options: ExportOptions, folder: Path
) -> OnnxGraph:
    """The graph of the first exporter that gives torch's numbers on the samples, and on the probes where one does."""
    exporters = _exporters(loaded, options)
    probing = _Probing(model, loaded, samples.calls[0]) if len(exporters) > 1 else None
    refusals: list[str] = []
    for last, exporter in enumerate(exporters, start=1):
        try:
            graph = _attempt(exporter, model, loaded, samples, options, folder, refusals)
        except (ExporterFailed, SessionFailed, NameMismatch) as failure:
            refusals.append(f"{exporter}: {failure}")
            continue
        fault = probing.fault_of(graph) if probing else ""
        if not fault:
            return graph
        if last == len(exporters):
            warning = Note(level="warning", text=f"right on the samples, but {fault}; no exporter is right there")
            return msgspec.structs.replace(graph, notes=(warning, *graph.notes))
        refusals.append(f"{exporter}: right on the samples, but {fault}")
    if probing and len(refusals) > 1 and "right on the samples" in refusals[0]:
        # The second could not do it at all: the first, which is right on the samples, is better than nothing.
        graph = _attempt(exporters[0], model, loaded, samples, options, folder, refusals[1:])
        warning = Note(level="warning", text=refusals[0])
        return msgspec.structs.replace(graph, notes=(warning, *graph.notes))
    _refuse_state(model, samples)
    raise _refused(refusals)


def _refuse_state(model: OpenModel, samples: _Samples) -> None:
    """Before an exporter is blamed: a model that keeps state between calls gives other numbers by itself."""
    again = run_torch(model, samples.calls[0]).outputs
    if any(one.tobytes() != other.tobytes() for one, other in zip(samples.runs[0].outputs, again, strict=True)):
        raise LoadError(
            "CNV-3040",
            "the model gives another answer when it is run again on the same inputs: it keeps state between calls",
            hint="pass the state in as an input and out as an output; a graph has no memory of earlier calls",
        )


class _Probing:
    """Trying exported graphs on calls that bring out known silent faults; what the model refuses is left out."""

    def __init__(self, model: OpenModel, loaded: LoadedModel, call: Call) -> None:
        self._loaded = loaded
        self._runs: list[tuple[str, Call, TorchRun]] = []
        for what, probe in probes(loaded, call):
            with contextlib.suppress(ExporterFailed):
                self._runs.append((what, probe, run_torch(model, probe)))

    def fault_of(self, graph: OnnxGraph) -> str:
        """Where a graph departs from torch; empty where it gives torch's numbers on every probe."""
        wanted = [spec.name for spec in graph.inputs]
        for what, probe, run in self._runs:
            try:
                outputs = run_samples(
                    graph.model_path, [_feed(wanted, self._loaded, probe)], exact_settings(graph.model_path)
                )
            except SessionFailed as failure:
                return f"it fails on {what}: {failure}"
            if departed := departures(run.names, [run.outputs], outputs):
                return f"it gives other numbers than torch on {what}: {departed[0]}"
        return ""


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


class _Samples:
    """The calls that the export is checked with, and what torch gave for each."""

    def __init__(self, calls: list[Call], runs: list[TorchRun]) -> None:
        self.calls = calls
        self.runs = runs


def _exporters(loaded: LoadedModel, options: ExportOptions) -> tuple[str, ...]:
    able = EXPORTERS.get(loaded.format, ("dynamo", "torchscript"))
    if options.exporter == "auto":
        return able
    if options.exporter not in able:
        raise ExportError(
            "CNV-4003",
            f"the {options.exporter} exporter can't take a model in the format {loaded.format}",
            hint=f"leave --exporter out, or use --exporter {able[0]}",
        )
    return (options.exporter,)


def _attempt(
    exporter: str,
    model: OpenModel,
    loaded: LoadedModel,
    samples: _Samples,
    options: ExportOptions,
    folder: Path,
    refusals: list[str],
) -> OnnxGraph:
    opset = _opset_for(exporter, options)
    raw = folder / "raw"
    raw.mkdir(exist_ok=True)
    call, plain = samples.calls[0], samples.runs[0].plain
    proto = export_with(exporter, model, loaded, call, opset, folder=raw, plain=plain)
    normalize_export(proto, loaded.inputs, samples.runs[0].names)
    reached = opset_of(proto)
    if options.opset and reached != options.opset:
        proto = _brought_to(proto, options.opset)
    names = write_model(proto, folder, weights_from=raw)
    tidy(raw)
    described = facts(proto)
    feeds = [_feed([spec.name for spec in described["inputs"]], loaded, call) for call in samples.calls]
    outputs = run_samples(folder / MODEL, feeds, exact_settings(folder / MODEL))
    ties = write_ties(proto, folder / MODEL, feeds)
    count = _check_against_torch(samples.runs, outputs, [load_npz(folder / name) for name in ties])
    calibration = carry_calibration(loaded, [spec.name for spec in described["inputs"]], folder)
    files = model_entries(folder, [*names, *write_samples(folder, feeds, outputs), *ties, *calibration])
    notes = [*constancy_notes(folder / MODEL, feeds, outputs, samples.runs[0].names), *count.notes("torch")]
    notes += [*_notes(loaded, samples, described, refusals, exporter, reached)]
    return OnnxGraph(
        parent=loaded.digest,
        stage="export",
        dims=loaded.dims,
        sample_count=len(feeds),
        calibration_count=len(calibration),
        made_by=exporter,
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


def _feed(wanted: list[str], loaded: LoadedModel, call: Call) -> dict[str, Array]:
    """The inputs that the graph kept, by name; leaves of a call come in the order of the signature."""
    leaves = {spec.name: leaf for spec, leaf in zip(loaded.inputs, call.leaves(), strict=True)}
    missing = [name for name in wanted if name not in leaves]
    if missing:
        raise ExporterFailed(f"the graph has inputs that the model does not have: {', '.join(missing)}")
    return {name: leaves[name] for name in wanted}


def _check_against_torch(runs: list[TorchRun], outputs: list[list[Array]], ties: list[dict[str, Array]]) -> TieCount:
    count = TieCount(runs[0].names)
    if departed := departures(runs[0].names, [run.outputs for run in runs], outputs, ties, count):
        raise ExporterFailed(f"ONNX Runtime gives other numbers than torch: {'; '.join(departed)}")
    return count


def _notes(
    loaded: LoadedModel, samples: _Samples, described: dict[str, Any], refusals: list[str], exporter: str, opset: int
) -> list[Note]:
    notes = [Note(text=f"exported by {exporter} at opset {opset}")]
    if refusals:
        notes.append(Note(level="warning", text=f"fell back to the {exporter} exporter: {' | '.join(refusals)}"))
    kept = {spec.name for spec in described["inputs"]}
    notes += [
        Note(level="warning", text="the model does not use this input; the graph does not have it", subject=spec.name)
        for spec in loaded.inputs
        if spec.name not in kept
    ]
    notes += [Note(text=text) for text in samples.runs[0].left_out]
    return notes


def _refused(refusals: list[str]) -> ExportError:
    wrong = [text for text in refusals if "gives other numbers" in text]
    if wrong:
        return ExportError(
            "CNV-4002",
            f"the exported graph is wrong: {' | '.join(refusals)}",
            hint="try the other exporter (--exporter) or another --opset; the outputs named are where it departs",
        )
    if all("asked for opset" in text for text in refusals):
        return ExportError(
            "CNV-4004",
            f"the opset was not reached: {' | '.join(refusals)}",
            hint="leave --opset out: the graph is brought to the opset that the target wants after the export",
        )
    return ExportError(
        "CNV-4001",
        f"the model can't be exported: {' | '.join(refusals)}",
        hint="what is named above has no ONNX form: rewrite it in the model, or export by hand and convert the .onnx",
    )
