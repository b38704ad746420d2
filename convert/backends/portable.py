"""How the ``onnxruntime`` backend makes a portable ``.onnx`` (in the worker: imports onnx and onnxruntime).

read ─▶ hide big weights ─▶ optimize ─▶ show them again ─▶ cast ─▶ tidy ─▶ write ─▶ prove that it loads
"""

from __future__ import annotations

from pathlib import Path

from onnx import ModelProto, TensorProto, version_converter

from convert.backends.base import MODEL_IN, OUT
from convert.backends.optimizing import constant_weights, optimize
from convert.backends.recipe import Recipe
from convert.bigmodel import external_tensors, externalize, hide_weights, nbytes, place_weights, show_weights
from convert.errors import UsageError
from convert.graphs import PRODUCER, WEIGHTS, opset_of, read_model
from convert.ort import SessionFailed, clean_line, open_session
from convert.precision import cast_model
from convert.precision.sorting import sort_nodes
from convert.values import Note, OnnxGraph
from convert.walking import graphs_in

INLINE_LIMIT = (2 << 30) - (64 << 20)
"""A proto may have 2 GiB; weights of this many bytes go into a file of their own."""
BFLOAT16_SINCE = 13
_UNRAISED = "bfloat16 casts need opset 13, and the graph can't be raised from opset {}"


def make_portable(recipe: Recipe, graph: OnnxGraph, folder: Path) -> tuple[tuple[str, ...], tuple[Note, ...]]:
    """Make ``out/model.onnx`` of ``model/model.onnx`` in a working folder; the names of the files made, and notes.

    Raises :class:`SessionFailed` where ONNX Runtime does not load the graph, or the result.
    """
    source = folder / MODEL_IN
    notes: list[Note] = []
    if recipe.level == "basic":
        model, notes = optimize(graph, source, folder)
    else:
        model = read_model(source)
        constant_weights(model)
    if recipe.precision == "bf16":
        model, told = _with_bfloat16(model)
        notes += told
    notes += _doubles(model, recipe.precision)
    notes += cast_model(model, recipe.precision, keep=frozenset(recipe.keep_fp32))
    tidy(model)
    if recipe.ir_version:
        model.ir_version = min(model.ir_version, recipe.ir_version)
    external = any(entry.name == WEIGHTS for entry in graph.files)
    files = write_portable(model, source.parent, folder / OUT / source.name, external=external)
    if recipe != Recipe(precision="fp32"):
        # What the optimizer wrote has been through a session; what the caster wrote has not.
        open_session(folder / OUT / source.name)
    return files, tuple(notes)


def _doubles(model: ModelProto, precision: str) -> list[Note]:
    """A graph of float64 keeps its width whatever is asked for: said, and refused where less was asked for."""
    wide = [
        tensor.name
        for graph in graphs_in(model.graph)
        for tensor in graph.initializer
        if tensor.data_type == TensorProto.DOUBLE and nbytes(tensor) > 64
    ]
    if not wide:
        return []
    if precision != "fp32":
        raise UsageError(
            "CNV-2076",
            f"{len(wide)} weights are float64 ({', '.join(wide[:3])}), and {precision} is made of float32",
            hint="make the model float32 first (model.float()), or leave --precision out",
        )
    return [Note(level="warning", text=f"{len(wide)} weights are float64 and stay so", subject=wide[0])]


def _with_bfloat16(model: ModelProto) -> tuple[ModelProto, list[Note]]:
    """The model at an opset where Cast knows bfloat16."""
    before = opset_of(model)
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


# ------------------------------------------------------------------------------------------------------------- writing


def tidy(model: ModelProto) -> None:
    """Leave nothing in a model that depends on the tool's mood, the machine or the moment (in place).

    Nodes stand in order, initializers are sorted by name, operator sets that no node uses are dropped, and doc strings
    and metadata of nodes and values go. Metadata of the model itself is the user's and stays.
    """
    model.producer_name, model.producer_version, model.doc_string = PRODUCER, "", ""
    used = (
        {node.domain for graph in graphs_in(model.graph) for node in graph.node}
        | {""}
        | {node.domain for function in model.functions for node in function.node}
    )
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
    path.write_bytes(model.SerializeToString())
    return (path.name, data.name) if data.exists() else (path.name,)
