"""ONNX Runtime's offline optimizer at its BASIC level, which stays within the standard operators.

What it made is taken only where it kept the inputs, the outputs, the opset and the operator domains, wrote no casts of
its own, and did not make a large model of a small one. Otherwise the graph stays as it was.
"""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto

from convert.bigmodel import hide_weights, show_weights
from convert.graphs import WEIGHTS, input_specs, opset_of, output_specs, read_model, weight_bytes
from convert.ort import BIG_FROM, SessionFailed, SessionSettings, open_session
from convert.precision import make_runnable
from convert.values import Note, OnnxGraph, TensorSpec
from convert.walking import graphs_in

GROWTH, GROWTH_ALWAYS = 1.5, 64 << 10
"""The optimizer may give a model this many times its weights, and this many bytes on top."""
FOLD_LIMIT = 64 << 10
"""Where it gives more, constants are folded only up to this many bytes."""
OWN_CASTS = "InsertedPrecisionFreeCast"
"""How ONNX Runtime names casts around float16 kernels that it lacks."""
STANDARD = ("", "ai.onnx", "ai.onnx.ml")


def optimize(graph: OnnxGraph, source: Path, folder: Path) -> tuple[ModelProto, list[Note]]:
    """The model of a graph as the optimizer leaves it, or as it was, and notes on what was done.

    ``source`` is the graph's file, ``folder`` is for scratch files. External weights, and those of big models, are
    hidden from the optimizer; those of a simplified graph too, where there is nothing left to fold into them.
    Raises :class:`SessionFailed` where ONNX Runtime does not load the graph.
    """
    given, model, hidden = source, None, None
    notes: list[Note] = []
    simplified = graph.made_by == "onnxsim"
    if simplified or graph.weight_bytes >= BIG_FROM or any(entry.name == WEIGHTS for entry in graph.files):
        model = read_model(source)
        hidden = hide_weights(model)
    try:
        made = _run(model or source, folder)
    except SessionFailed as failure:
        model = model or read_model(source)
        notes += make_runnable(model) if failure.kind == "not_implemented" else ()
        if not notes:
            raise
        made = _run(model, folder)
    if constant_weights(made):
        model = made
        made = _run(model, folder)
    if _grew(graph, made):
        made = _run(model or given, folder, fold_limit=FOLD_LIMIT)
    refusal = _refusal(graph, made)
    if refusal:
        notes.append(Note(level="warning", text=f"kept as it was, without ONNX Runtime's offline optimizer: {refusal}"))
        made = model or read_model(source)
    if hidden is not None:
        show_weights(made, hidden)
    return made, notes


def constant_weights(model: ModelProto) -> bool:
    """Take weights off the list of inputs (in place), where old exporters put them: nobody feeds them."""
    weights = {tensor.name for tensor in model.graph.initializer}
    kept = [value.name for value in model.graph.input if value.name not in weights]
    if len(kept) == len(model.graph.input):
        return False
    for index in reversed(range(len(model.graph.input))):
        if model.graph.input[index].name in weights:
            del model.graph.input[index]
    model.ir_version = max(model.ir_version, 4)
    return True


def _run(model: Path | ModelProto, folder: Path, *, fold_limit: int = 0) -> ModelProto:
    saved = folder / "optimized.onnx"
    given = model if isinstance(model, Path) else model.SerializeToString()
    open_session(given, SessionSettings(level="basic", save_to=str(saved), fold_limit=fold_limit))
    try:
        return read_model(saved)
    finally:
        saved.unlink()


def _grew(graph: OnnxGraph, after: ModelProto) -> bool:
    """Whether folding made a large model of a small one: a Tile of a small constant can become many megabytes."""
    return weight_bytes(after) > GROWTH * graph.weight_bytes + GROWTH_ALWAYS


def _refusal(graph: OnnxGraph, after: ModelProto) -> str:
    """Why the optimizer's result can't be taken; empty where it can."""
    known = {op.partition("::")[0] for op in graph.ops if "::" in op}
    added = {node.domain for inner in graphs_in(after.graph) for node in inner.node} - known - set(STANDARD)
    if added:
        return f"it brings in operators of {', '.join(sorted(added))}"
    if _grew(graph, after):
        return f"it makes {weight_bytes(after)} bytes of weights out of {graph.weight_bytes}"
    if any(node.name.startswith(OWN_CASTS) for node in after.graph.node):
        return "it writes its own float32 casts into a graph that has float16 parts"
    inputs = [spec for spec in _kinds(input_specs(after.graph)) if spec in _kinds(graph.inputs)]
    if inputs != _kinds(graph.inputs) or _kinds(output_specs(after.graph)) != _kinds(graph.outputs):
        return "it changed the inputs or outputs"
    if opset_of(after) != graph.opset:
        return f"it changed the opset from {graph.opset} to {opset_of(after)}"
    return ""


def _kinds(specs: tuple[TensorSpec, ...]) -> list[tuple[str, str]]:
    return [(spec.name, spec.dtype) for spec in specs]
