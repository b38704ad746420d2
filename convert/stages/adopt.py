"""Adopting an ONNX model: the form that later stages rely on, without changing what it computes.

What is brought in order: an opset older than ONNX Runtime takes (raised), a newer IR version than the installed onnx
knows (lowered), local functions (inlined), unsorted nodes, weights listed as inputs, dimensions of -1, node names,
external data (one file, read only inside the model's folder).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper, version_converter

from artifacts.errors import first_line
from convert.arrays import Array, load_npz
from convert.constancy import constancy_notes
from convert.errors import ExportError
from convert.graphs import (
    MODEL,
    carry_calibration,
    facts,
    model_entries,
    opset_of,
    read_model,
    write_model,
    write_samples,
)
from convert.lowering import lower
from convert.lowering.inference import INFERENCE_FAILURES
from convert.lowering.sound import inline_all, require_sound
from convert.normalize import name_nodes, strip_origin
from convert.ort import SessionFailed, exact_settings, run_samples
from convert.ties import write_ties
from convert.values import ExportOptions, LoadedModel, LoadOptions, Note, OnnxGraph
from convert.walking import graphs_of, nodes_of, subgraphs

OLDEST_OPSET = 7
"""ONNX Runtime's kernels begin here; older graphs are raised."""
RAISED_OPSET = 13
MAX_DENSE = 1 << 28
"""Elements of a sparse weight that are written out at most."""
RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")


def adopt_onnx(loaded: LoadedModel, source: LoadOptions, options: ExportOptions, folder: Path) -> OnnxGraph:
    """Take an ONNX model over. The reference outputs are left out, with a note, where ONNX Runtime can't run it.

    Raises :class:`ExportError`: CNV-4006 for a graph that can't be brought in order, CNV-4101 where a node has no
    equivalent at the opset asked for.
    """
    path = Path(source.path).resolve()
    model = read_model(path)
    require_sound(model)
    notes: list[Note] = []
    model = _in_order(model, notes)
    if options.opset and opset_of(model) != options.opset:
        notes.append(Note(text=f"brought from opset {opset_of(model)} to {options.opset}"))
        model = lower(model, options.opset)
    names = write_model(model, folder, weights_from=path.parent, link=False)
    described = facts(model)
    feeds, outputs = _reference(loaded, described, folder, notes)
    ties: list[str] = []
    if outputs:
        notes += _refuse_random(model, folder, feeds)
        ties = write_ties(model, folder / MODEL, feeds)
        notes += constancy_notes(folder / MODEL, feeds, outputs, [spec.name for spec in described["outputs"]])
    calibration = carry_calibration(loaded, [spec.name for spec in described["inputs"]], folder)
    files = model_entries(folder, [*names, *write_samples(folder, feeds, outputs), *ties, *calibration])
    return OnnxGraph(
        parent=loaded.digest,
        stage="export",
        dims=loaded.dims,
        sample_count=len(feeds),
        calibration_count=len(calibration),
        made_by="onnx",
        notes=tuple(notes),
        files=files,
        folder=str(folder),
        **described,
    )


def _in_order(model: ModelProto, notes: list[Note]) -> ModelProto:
    if model.ir_version > onnx.IR_VERSION:
        notes.append(Note(level="warning", text=f"IR version {model.ir_version} lowered to {onnx.IR_VERSION}"))
        model.ir_version = onnx.IR_VERSION
    if model.functions:
        notes.append(Note(text=f"inlined {len(model.functions)} local functions"))
        model = inline_all(model)
    _dense_weights(model, notes)
    model = _sorted(model, notes)
    model = _raised(model, notes)
    _weights_out_of_inputs(model, notes)
    _refuse_other_outputs(model)
    _dynamic_dimensions(model)
    _refuse_training(model)
    strip_origin(model)
    name_nodes(model)
    return model


def _sorted(model: ModelProto, notes: list[Note]) -> ModelProto:
    """Nodes in topological order; onnx's own tools refuse any other."""
    node = _out_of_order(model.graph, {""})
    if node is None:
        return model
    import onnx_ir

    notes.append(Note(text="nodes put in topological order", subject=node.name or node.op_type))
    try:
        graph_model = onnx_ir.from_proto(model)
        graph_model.graph.sort()
        return onnx_ir.to_proto(graph_model)
    except (ValueError, RuntimeError) as error:
        raise ExportError(
            "CNV-4006",
            f"the graph can't be put in order: {' '.join(str(error).split())[:300]}",
            hint="it has a cycle, or a node reads a value that nothing makes; check how the file was written",
        ) from error


def _out_of_order(graph: GraphProto, outer: set[str]) -> NodeProto | None:
    """The first node, bodies included, that reads what no node before it makes. ``outer``: names known around it."""
    known = outer | {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    node: NodeProto
    for node in graph.node:
        if any(name not in known for name in node.input):
            return node
        for body in subgraphs(node):
            if (inner := _out_of_order(body, known)) is not None:
                return inner
        known.update(node.output)
    return None


def _raised(model: ModelProto, notes: list[Note]) -> ModelProto:
    opset = opset_of(model)
    if not 0 < opset < OLDEST_OPSET:
        return model
    notes.append(
        Note(level="warning", text=f"opset {opset} raised to {RAISED_OPSET}: ONNX Runtime starts at {OLDEST_OPSET}")
    )
    # The converter is from the days when every weight was an input, too.
    inputs = {value.name for value in model.graph.input}
    model.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        for tensor in model.graph.initializer
        if tensor.name not in inputs
    )
    try:
        return version_converter.convert_version(model, RAISED_OPSET)
    except (*INFERENCE_FAILURES, version_converter.ConvertError) as error:
        raise ExportError(
            "CNV-4006",
            f"opset {opset} can't be raised to {RAISED_OPSET}: {first_line(error)}",
            hint=f"export the model again at opset {OLDEST_OPSET} or higher",
        ) from error


def _weights_out_of_inputs(model: ModelProto, notes: list[Note]) -> None:
    filled = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in filled]
    if len(kept) < len(model.graph.input):
        notes.append(Note(text=f"{len(model.graph.input) - len(kept)} weights taken out of the graph's inputs"))
        model.ir_version = max(model.ir_version, 4)
        del model.graph.input[:]
        model.graph.input.extend(kept)


def _refuse_training(model: ModelProto) -> None:
    """A node in training mode computes statistics or drops values: never what is meant to be deployed."""
    constants = {tensor.name: tensor for graph in graphs_of(model) for tensor in graph.initializer}
    constants |= {node.output[0]: item.t for node in nodes_of(model) if node.op_type == "Constant" and node.output
                  for item in node.attribute if item.name == "value"}  # fmt: skip
    found = [f"{node.op_type} {node.name!r}" for node in nodes_of(model) if _trains(node, constants)]
    if found:
        raise ExportError(
            "CNV-4007",
            f"the graph is in training mode: {', '.join(found[:5])}{' …' if len(found) > 5 else ''}"
            " (training_mode is set, or statistics are among the outputs)",
            hint="export the model again after model.eval(); a training-mode graph gives other numbers at each run",
        )


def _trains(node: NodeProto, constants: dict[str, TensorProto]) -> bool:
    if node.op_type == "BatchNormalization":
        # Before opset 14 there is no such attribute: outputs beside the first mean training mode.
        asked = {item.name: item.i for item in node.attribute}
        return bool(asked["training_mode"]) if "training_mode" in asked else sum(map(bool, node.output)) > 1
    if node.op_type == "Dropout" and len(node.input) > 2:
        tensor = constants.get(node.input[2])
        return tensor is not None and bool(numpy_helper.to_array(tensor).any())
    return False


def _dense_weights(model: ModelProto, notes: list[Note]) -> None:
    """Sparse initializers written out: no compiler reads them, and simplifiers lose them."""
    for graph in graphs_of(model):
        for sparse in graph.sparse_initializer:
            size = math.prod(sparse.dims)
            if size > MAX_DENSE:
                raise ExportError(
                    "CNV-4006",
                    f"the sparse weight {sparse.values.name!r} has {size:,} elements, too many to write out",
                    hint="store it as a dense initializer, in external data",
                )
            values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
            dense = np.zeros(size, values.dtype)
            places = np.ravel_multi_index(tuple(indices.T), tuple(sparse.dims)) if indices.ndim == 2 else indices
            dense[places] = values
            graph.initializer.append(numpy_helper.from_array(dense.reshape(tuple(sparse.dims)), sparse.values.name))
            notes.append(Note(text="sparse weight written out", subject=sparse.values.name))
        del graph.sparse_initializer[:]


def _refuse_other_outputs(model: ModelProto) -> None:
    others = [
        f"{value.name} ({value.type.WhichOneof('value')})"
        for value in model.graph.output
        if value.type.WhichOneof("value") not in (None, "tensor_type")
    ]
    if others:
        raise ExportError(
            "CNV-4011",
            f"outputs that are no tensors can't be compared or deployed: {', '.join(others)}",
            hint="end the graph in tensors: ConcatFromSequence makes one of a sequence",
        )


def _refuse_random(model: ModelProto, folder: Path, feeds: list[dict[str, Array]]) -> list[Note]:
    """Two runs of a graph that draws random numbers must agree, or nothing about it can be proven.

    Gives a warning where they agree: a branch that these samples do not take, or a value that no output is made of.
    """
    found = [f"{node.op_type} {node.name!r}" for node in nodes_of(model) if node.op_type in RANDOM]
    if not found:
        return []
    # In one session: each new one may begin with the same seed.
    first, again = run_samples(folder / MODEL, [feeds[0], feeds[0]], exact_settings(folder / MODEL))
    if all(one.tobytes() == other.tobytes() for one, other in zip(first, again, strict=True)):
        shown = ", ".join(found[:5])
        return [
            Note(level="warning", text=f"{shown} draws random numbers, which the outputs of these samples do not show")
        ]
    raise ExportError(
        "CNV-4008",
        f"the outputs are random, so nothing can be proven about them: {', '.join(found[:5])}",
        hint="draw the random numbers outside the model and pass them as an input",
    )


def _dynamic_dimensions(model: ModelProto) -> None:
    for graph in graphs_of(model):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                if dim.HasField("dim_value") and dim.dim_value < 0:
                    dim.dim_param = f"{value.name}_{axis}"


def _reference(
    loaded: LoadedModel, described: dict[str, Any], folder: Path, notes: list[Note]
) -> tuple[list[dict[str, Array]], list[list[Array]]]:
    feeds = [load_npz(loaded.path(f"samples/{number:03d}.npz")) for number in range(loaded.sample_count)]
    wanted = [spec.name for spec in described["inputs"]]
    feeds = [{name: feed[name] for name in wanted if name in feed} for feed in feeds]
    try:
        return feeds, run_samples(folder / MODEL, feeds, exact_settings(folder / MODEL))
    except SessionFailed as failure:
        notes.append(Note(level="warning", text=f"ONNX Runtime can't run this graph: {failure}"))
        return feeds, []
