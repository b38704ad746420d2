"""simplify: ``OnnxGraph ─▶ OnnxGraph`` with onnxsim and :mod:`convert.reshapes`, checked; falls back with a reason.

Each rung of :data:`LADDER` is tried until one gives a graph that keeps inputs, outputs and symbolic dimensions, does
not grow, and gives the reference outputs on ONNX Runtime. Otherwise the graph is kept as it was.
Initializers of a big model are kept out of the simplifier's sight: it folds nothing into them and copies none.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Literal, cast

from onnx import ModelProto

from artifacts.errors import first_line
from convert.bigmodel import external_tensors, hide_weights, show_weights
from convert.graphs import (
    EXTERNAL_FROM,
    MODEL,
    WEIGHTS,
    carry_samples,
    facts,
    input_specs,
    linked_graph,
    model_entries,
    op_counts,
    output_specs,
    read_model,
    read_samples,
    write_model,
)
from convert.inline import MAPPED_FROM, load_weight, operands_only, skeleton
from convert.loading.wire import WireError
from convert.normalize import name_nodes, strip_origin
from convert.ort import SessionFailed, exact_settings, run_samples
from convert.proof import departures
from convert.reshapes import settle_reshapes
from convert.ties import read_ties
from convert.values import Note, OnnxGraph, SimplifyOptions

SAFE = "without folding constant conditions"
FOLDS_NOTHING = "skip_constant_folding"
LEAVES_ONNX = ("fuse_attention", "fuse_gqa")
"""Passes that give ``com.microsoft::Attention`` and its like (onnxsim 0.8.1), which ONNX Runtime alone knows."""
LADDER: tuple[tuple[str, dict[str, Any]], ...] = (
    ("all passes", {"skipped_optimizers": [*LEAVES_ONNX]}),
    (SAFE, {"skipped_optimizers": [*LEAVES_ONNX, "eliminate_if_with_const_cond"]}),
    (
        "without folding constants",
        {"skipped_optimizers": [*LEAVES_ONNX, "eliminate_if_with_const_cond"], FOLDS_NOTHING: True},
    ),
)
HIDE_FROM = 1 << 20
"""In a big model, initializers from this size on are hidden."""
SLACK = 64 << 10
NODE_SLACK = 128
"""Graphs may grow by the one, and by the other for each node: it gets a name, and its output a shape."""
FOLD_LIMIT = "1MB"
"""The simplifier folds no tensor larger than this into the graph."""


class Rejected(Exception):
    """A simplified graph that must not be used; the text says why."""


def simplify_graph(graph: OnnxGraph, options: SimplifyOptions, folder: Path) -> OnnxGraph:
    """Simplify a graph, or keep it and say why in ``notes``. Raises nothing of its own."""
    if options.mode == "off":
        return _kept(graph, options.reason or "asked for", folder)
    if "reference/000.npz" not in {entry.name for entry in graph.files}:
        return _kept(graph, "ONNX Runtime can't run the graph, so a change could not be proven", folder)
    reasons = [options.reason] if options.reason else []
    for name, arguments in LADDER if options.mode == "full" else LADDER[1:]:
        try:
            simplified, settled = _simplified(graph, options, arguments)
            inline = 0 if WEIGHTS in _names(graph) else EXTERNAL_FROM
            names = write_model(simplified, folder, weights_from=Path(graph.folder), inline_below=inline)
            _prove(graph, simplified, options, folder)
        except (Rejected, SessionFailed) as rejection:
            reasons.append(f"{name}: {rejection}")
            continue
        return _changed(graph, simplified, names, folder, _settled_note(settled) + _fewer_note(reasons))
    return _kept(graph, "; ".join(reasons), folder)


def _simplified(graph: OnnxGraph, options: SimplifyOptions, arguments: dict[str, Any]) -> tuple[ModelProto, int]:
    """The graph with fewer nodes, and how many Reshapes had their sizes written down."""
    onnxsim = _onnxsim()
    model, inline = _read(graph)
    hidden = None
    if inline:
        hidden = hide_weights(model, threshold=sys.maxsize)
    elif graph.weight_bytes >= options.big_model or any(entry.name.endswith(".data") for entry in graph.files):
        hidden = hide_weights(model, threshold=HIDE_FROM)
    try:
        simplified, _ = onnxsim.simplify(model, check_n=0, tensor_size_threshold=FOLD_LIMIT, **arguments)
    except Exception as error:
        raise Rejected(f"onnxsim failed: {first_line(error)}") from error
    settled = settle_reshapes(simplified) if FOLDS_NOTHING not in arguments else 0
    if hidden is not None:
        show_weights(simplified, hidden)
    strip_origin(simplified)
    name_nodes(simplified)
    return cast(ModelProto, simplified), settled


def _read(graph: OnnxGraph) -> tuple[ModelProto, bool]:
    """The graph's proto, and whether big weights inside its file were left there, as references.

    That is done where no pass could do anything with them: see :func:`operands_only`.
    """
    path = graph.model_path
    if not MAPPED_FROM <= path.stat().st_size < EXTERNAL_FROM or any(name.endswith(".data") for name in _names(graph)):
        return read_model(path), False
    try:
        model = ModelProto.FromString(skeleton(path, threshold=HIDE_FROM))
    except WireError:
        return read_model(path), False
    left = operands_only(model)
    for tensor in external_tensors(model):
        if tensor.name not in left:
            load_weight(tensor, path.parent)
    return model, True


def _names(graph: OnnxGraph) -> list[str]:
    return [entry.name for entry in graph.files]


UNUSED = ("torch", "sympy")
"""What onnxsim imports where it is there, for parts that are not called here: three seconds and 200 MB."""


def _onnxsim() -> Any:
    """The simplifier, imported without what it has no use for."""
    hidden = [name for name in UNUSED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        return importlib.import_module("onnxsim")
    finally:
        for name in hidden:
            del sys.modules[name]


def _prove(graph: OnnxGraph, simplified: ModelProto, options: SimplifyOptions, folder: Path) -> None:
    """Check what must survive; raises :class:`Rejected`."""
    if not simplified.graph.node:
        raise Rejected("nothing is left of the graph: its outputs do not depend on its inputs")
    if input_specs(simplified.graph) != graph.inputs:
        raise Rejected("inputs or symbolic dimensions changed")
    if brought := [name for name in op_counts(simplified) if "::" in name and name not in graph.ops]:
        raise Rejected(f"it brings operators that ONNX does not define: {', '.join(brought)}")
    before = [(spec.name, spec.dtype, len(spec.shape)) for spec in graph.outputs]
    after = [(spec.name, spec.dtype, len(spec.shape)) for spec in output_specs(simplified.graph)]
    if before != after:
        raise Rejected("outputs changed")
    old = sum(entry.bytes for entry in graph.files if "/" not in entry.name)
    new = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    if new > old * options.growth + SLACK + NODE_SLACK * len(simplified.graph.node):
        raise Rejected(f"the file grew from {old} to {new} bytes")
    feeds, wanted = read_samples(graph)
    ties = [read_ties(graph, number) for number in range(graph.sample_count)]
    outputs = run_samples(folder / MODEL, feeds, exact_settings(folder / MODEL))
    if departed := departures([spec.name for spec in graph.outputs], wanted, outputs, ties):
        raise Rejected(f"the numbers changed: {'; '.join(departed)}")


def _settled_note(settled: int) -> list[Note]:
    if not settled:
        return []
    one, more = "the sizes of one Reshape were", f"the sizes of {settled} Reshapes were"
    return [Note(text=f"{one if settled == 1 else more} computed from other sizes, and are written down")]


def _fewer_note(reasons: list[str]) -> list[Note]:
    return [Note(level="warning", text=f"simplified with fewer passes: {'; '.join(reasons)}")] if reasons else []


def _changed(
    graph: OnnxGraph, simplified: ModelProto, names: tuple[str, ...], folder: Path, more: list[Note]
) -> OnnxGraph:
    described = facts(simplified)
    notes = [Note(text=f"simplified from {graph.nodes} to {described['nodes']} nodes"), *more]
    return OnnxGraph(
        parent=graph.digest,
        stage="simplify",
        dims=graph.dims,
        sample_count=graph.sample_count,
        calibration_count=graph.calibration_count,
        made_by="onnxsim",
        exporters=graph.exporters,
        notes=tuple(notes),
        files=tuple(sorted((*model_entries(folder, names, graph.files), *carry_samples(graph, folder)))),
        folder=str(folder),
        **described,
    )


def _kept(graph: OnnxGraph, reason: str, folder: Path) -> OnnxGraph:
    for path in folder.glob("model.onnx*"):
        path.unlink()
    level: Literal["info", "warning"] = "info" if reason == "asked for" else "warning"
    return OnnxGraph(
        parent=graph.digest,
        stage="simplify",
        opset=graph.opset,
        inputs=graph.inputs,
        outputs=graph.outputs,
        dims=graph.dims,
        nodes=graph.nodes,
        ops=graph.ops,
        weight_bytes=graph.weight_bytes,
        sample_count=graph.sample_count,
        calibration_count=graph.calibration_count,
        made_by=graph.made_by,
        exporters=graph.exporters,
        notes=(Note(level=level, text=f"kept unsimplified: {reason}"),),
        files=linked_graph(graph, folder),
        folder=str(folder),
    )
