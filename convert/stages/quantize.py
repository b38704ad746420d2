"""quantize: ``OnnxGraph ─▶ OnnxGraph`` with its products in int8, for targets that read QuantizeLinear pairs.

Static quantization after training: ranges from the inputs to calibrate with (else from the samples), weights per
channel. The reference outputs stay those of the fp32 graph, so that everything after is judged against it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from convert.errors import GateFailed
from convert.graphs import carry_samples, facts, linked_graph, model_entries, read_model, write_model
from convert.ort import SessionFailed
from convert.precision.calibrate import calibrated
from convert.precision.flow import prepared
from convert.precision.int8_study import calibration_feeds, calibration_note
from convert.precision.qdq import PRODUCTS, is_quantized, products, quantized_model
from convert.stages.forecast import NEWER, too_old
from convert.values import Note, OnnxGraph, QuantizeOptions


def quantize_graph(graph: OnnxGraph, options: QuantizeOptions, folder: Path) -> OnnxGraph:
    """Quantize a graph into ``folder``; one that is quantized already, or has no products, stays as it is.

    Raises UsageError CNV-2321 below opset 13 and CNV-2322 for weights that are too big, GateFailed CNV-8102 where
    ONNX Runtime can't run the graph on the inputs to calibrate with.
    """
    model = read_model(graph.model_path)
    if is_quantized(model):
        return _kept(graph, "its own pairs of QuantizeLinear and DequantizeLinear are taken", folder)
    if graph.opset < NEWER["int8"][0]:
        raise too_old("int8", graph.opset)
    model = prepared(model)
    found, weights = products(model), graph.model_path.parent
    scratch = folder / "calibrating"
    folder.mkdir(parents=True, exist_ok=True)
    held = {tensor.name for tensor in model.graph.initializer}
    wanted = {value for values in found.values() for value in values if value not in held}
    try:
        ranges = calibrated(
            model, wanted, calibration_feeds(graph), options.calibration, weights=weights, scratch=scratch
        )
    except SessionFailed as failure:
        raise GateFailed(
            "CNV-8102",
            f"the graph can't be calibrated: ONNX Runtime does not run it: {failure}",
            hint="the inputs to calibrate with must fit the model's; int8 takes its ranges from running it",
        ) from failure
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    made = quantized_model(model, ranges, options.keep, weights=weights)
    names = write_model(made, folder, weights_from=weights)
    count = sum(node.op_type in PRODUCTS for node in made.graph.node)
    kept = [name for name in options.keep if name in found]
    notes = [calibration_note(graph, options.calibration)]
    notes.append(Note(text=f"{count - len(kept)} of {count} products are int8" + (
        f"; in float: {', '.join(kept[:8])}{' …' if len(kept) > 8 else ''}" if kept else "")))  # fmt: skip
    return OnnxGraph(
        parent=graph.digest,
        stage="quantize",
        dims=graph.dims,
        sample_count=graph.sample_count,
        calibration_count=graph.calibration_count,
        made_by="quantize",
        adapted=graph.adapted,
        exporters=graph.exporters,
        notes=tuple(notes),
        files=tuple(sorted((*model_entries(folder, names), *carry_samples(graph, folder)))),
        folder=str(folder),
        **facts(made),
    )


def _kept(graph: OnnxGraph, reason: str, folder: Path) -> OnnxGraph:
    files = linked_graph(graph, folder)
    note = Note(text=f"not quantized: {reason}")
    return msgspec.structs.replace(
        graph, parent=graph.digest, stage="quantize", notes=(note,), files=files, folder=str(folder)
    )
