"""How the ``onnxruntime`` backend makes a portable ``.onnx`` (in the worker: imports onnx and onnxruntime).

    read ─▶ hide big weights ─▶ optimize (BASIC) ─▶ show them again ─▶ cast ─▶ tidy ─▶ write ─▶ prove that it loads

What the optimizer made is taken only where it kept the inputs, the outputs, the opset and the standard operators.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto, version_converter

from convert.backends.base import MODEL_IN, OUT
from convert.backends.recipe import Recipe
from convert.bigmodel import (
    external_tensors,
    externalize,
    graphs_in,
    hide_weights,
    nbytes,
    place_weights,
    show_weights,
)
from convert.ort import BIG_FROM, SessionFailed, SessionSettings, clean_line, open_session
from convert.precision import cast_model, make_runnable
from convert.precision.sorting import sort_nodes
from convert.values import Note

PRODUCER = "model-convert"
INLINE_LIMIT = (2 << 30) - (64 << 20)
"""A proto may have 2 GiB; weights of this many bytes go into a file of their own."""
BFLOAT16_SINCE = 13
OWN_CASTS = "InsertedPrecisionFreeCast"
"""How ONNX Runtime names casts around float16 kernels that it lacks."""
_UNRAISED = "bfloat16 casts need opset 13, and the graph can't be raised from opset {}"
STANDARD = ("", "ai.onnx", "ai.onnx.ml")


def make_portable(recipe: Recipe, folder: Path) -> tuple[tuple[str, ...], tuple[Note, ...]]:
    """Make ``out/model.onnx`` of ``model/model.onnx`` in a working folder; the names of the files made, and notes.

    Raises :class:`SessionFailed` where ONNX Runtime does not load the graph, or the result.
    """
    source = folder / MODEL_IN
    model = onnx.load(str(source), load_external_data=False)
    changed = _constant_weights(model)
    external = bool(external_tensors(model))
    notes: list[Note] = []
    if recipe.level == "basic":
        model, told = _optimized(model, None if changed else source, folder)
        notes += told
    if recipe.precision == "bf16":
        model, told = _with_bfloat16(model)
        notes += told
    notes += cast_model(model, recipe.precision, keep=frozenset(recipe.keep_fp32))
    tidy(model)
    files = write_portable(model, source.parent, folder / OUT / source.name, external=external)
    if recipe != Recipe(precision="fp32"):
        # What the optimizer wrote has been through a session; what the caster wrote has not.
        open_session(folder / OUT / source.name)
    return files, tuple(notes)


def _constant_weights(model: ModelProto) -> bool:
    """Take weights off the list of inputs, where old exporters put them: nobody feeds them."""
    weights = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in weights]
    if len(kept) == len(model.graph.input):
        return False
    names = {value.name for value in kept}
    for index in reversed(range(len(model.graph.input))):
        if model.graph.input[index].name not in names:
            del model.graph.input[index]
    model.ir_version = max(model.ir_version, 4)
    return True


# --------------------------------------------------------------------------------------------------------- optimizing


def _optimized(model: ModelProto, path: Path | None, folder: Path) -> tuple[ModelProto, list[Note]]:
    """The model as ONNX Runtime's BASIC level leaves it, or as it was where that is no portable model."""
    notes: list[Note] = []
    weights = sum(nbytes(tensor) for graph in graphs_in(model.graph) for tensor in graph.initializer)
    big = weights >= BIG_FROM or bool(external_tensors(model))
    hidden = hide_weights(model) if big else None
    try:
        made = _run_optimizer(path if path and not big else model.SerializeToString(), folder)
    except SessionFailed as failure:
        if failure.kind != "not_implemented":
            raise
        notes += make_runnable(model)
        if not notes:
            raise
        made = _run_optimizer(model.SerializeToString(), folder)
    refusal = _refusal(model, made)
    if refusal:
        notes.append(Note(level="warning", text=f"kept as it was, without ONNX Runtime's offline optimizer: {refusal}"))
        made = model
    if hidden is not None:
        show_weights(made, hidden)
    return made, notes


def _run_optimizer(model: Path | bytes, folder: Path) -> ModelProto:
    saved = folder / "optimized.onnx"
    open_session(model, SessionSettings(level="basic", save_to=str(saved)))
    try:
        return onnx.load(str(saved), load_external_data=False)
    finally:
        saved.unlink()


def _refusal(before: ModelProto, after: ModelProto) -> str:
    """Why the optimizer's result can't be taken; empty where it can."""
    added = _domains(after) - _domains(before) - set(STANDARD)
    if added:
        return f"it brings in operators of {', '.join(sorted(added))}"
    if any(node.name.startswith(OWN_CASTS) for node in after.graph.node):
        return "it writes its own float32 casts into a graph that has float16 parts"
    if _signature(before) != _signature(after):
        return "it changed the inputs or outputs"
    if _opset(before) != _opset(after):
        return f"it changed the opset from {_opset(before)} to {_opset(after)}"
    return ""


def _with_bfloat16(model: ModelProto) -> tuple[ModelProto, list[Note]]:
    """The model at an opset where Cast knows bfloat16."""
    before = _opset(model)
    if before == 0 or before >= BFLOAT16_SINCE:
        return model, []
    hidden = hide_weights(model)
    try:
        raised = version_converter.convert_version(model, BFLOAT16_SINCE)
    except RuntimeError as error:
        raise SessionFailed("invalid", f"{_UNRAISED.format(before)}: {clean_line(str(error))}") from error
    if [value.SerializeToString() for value in raised.graph.input] != [
        value.SerializeToString() for value in model.graph.input
    ]:
        raise SessionFailed("invalid", f"{_UNRAISED.format(before)}: its inputs would change")
    show_weights(raised, hidden)
    text = f"the opset is {BFLOAT16_SINCE} instead of {before}: there are no bfloat16 casts before"
    return raised, [Note(level="warning", text=text)]


def _domains(model: ModelProto) -> set[str]:
    return {node.domain for graph in graphs_in(model.graph) for node in graph.node}


def _signature(model: ModelProto) -> list[tuple[str, int]]:
    values = (*model.graph.input, *model.graph.output)
    return [(value.name, value.type.tensor_type.elem_type) for value in values]


def _opset(model: ModelProto) -> int:
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


# ------------------------------------------------------------------------------------------------------------- writing


def tidy(model: ModelProto) -> None:
    """Leave nothing in a model that depends on the tool's mood, the machine or the moment (in place).

    Nodes stand in order, initializers are sorted by name, operator sets that no node uses are dropped, and doc strings
    and metadata of nodes and values go. Metadata of the model itself is the user's and stays.
    """
    model.producer_name, model.producer_version, model.doc_string = PRODUCER, "", ""
    used = _domains(model) | {""} | {node.domain for function in model.functions for node in function.node}
    imports = {entry.domain.replace("ai.onnx", "") if entry.domain == "ai.onnx" else entry.domain: entry.version
               for entry in model.opset_import}  # fmt: skip
    del model.opset_import[:]
    for domain in sorted(imports):
        if domain in used:
            model.opset_import.add(domain=domain, version=imports[domain])
    for graph in graphs_in(model.graph):
        sort_nodes(graph)
        graph.doc_string = ""
        del graph.metadata_props[:]
        graph.initializer.sort(key=_name)
        graph.value_info.sort(key=lambda value: value.name)
        for thing in (*graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
            thing.doc_string = ""
            del thing.metadata_props[:]


def _name(tensor: TensorProto) -> str:
    return tensor.name


def write_portable(model: ModelProto, source: Path, path: Path, *, external: bool) -> tuple[str, ...]:
    """Write a model whose external weights lie in ``source``; the names of the files made, the model first.

    Weights go into ``<name>.data`` where they did before, or where the proto could not hold them.
    """
    data = path.with_name(f"{path.name}.data")
    inline = sum(nbytes(tensor) for graph in graphs_in(model.graph) for tensor in graph.initializer)
    if external_tensors(model):
        place_weights(model, source, data)
    elif external or inline >= INLINE_LIMIT:
        externalize(model, data)
    path.write_bytes(model.SerializeToString(deterministic=True))
    return (path.name, data.name) if data.exists() else (path.name,)
