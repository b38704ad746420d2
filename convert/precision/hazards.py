"""What will go wrong in float16, told before a compiler runs: by the graph's constants, and by one run in float32.

    constants   weights beyond ±65504 become infinite (and the Softmax that eats such a mask gives NaN where it hides a
                whole row); a single small number becomes zero (an epsilon that is divided by)
    activations values beyond ±65504 become infinite
    reductions  a sum of magnitudes beyond 65504 overflows on the way, however small the mean is

The run is instrumented inside of the graph: each tensor is reduced to its largest magnitude at once, so that it needs
no more memory than the run itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from convert.arrays import load_npz
from convert.bigmodel import external_tensors, nbytes, tensor_array
from convert.links import link_or_copy
from convert.lowering.inference import infer
from convert.ort import SessionFailed, SessionSettings, open_session, run_session
from convert.precision import make_runnable
from convert.values import Note, OnnxGraph, Precision
from convert.walking import graphs_in

LARGEST = 65504.0
"""Float16's largest number."""
LIMITS: Mapping[Precision, tuple[str, float, float]] = {
    "fp16": ("float16", LARGEST, 2.0**-25),
    "mixed": ("float16", LARGEST, 2.0**-25),
    "bf16": ("bfloat16", 3.3895313892515355e38, 2.0**-134),
}
"""The type's name, its largest number, and half of its smallest: what is below rounds to zero."""
SUMS = {
    "ReduceMean": "ReduceL1",
    "ReduceL1": "ReduceL1",
    "ReduceSum": "ReduceSum",
    "ReduceL2": "ReduceSumSquare",
    "ReduceSumSquare": "ReduceSumSquare",
}
"""Reduction → the one of the same form in every opset that gives the sum formed on the way."""
LISTED = 20
PREFIX = "fp16_range_"
STEPS = 6
"""How far a constant is followed to the Softmax that eats it."""
CHUNK = 4 << 20


def hazards(graph: OnnxGraph, precision: Precision, folder: Path) -> tuple[Note, ...]:
    """Warnings about a float32 graph that is to be compiled in fp16, bf16 or mixed; ``folder`` is for scratch files.

    For bf16, whose range is that of float32 but for its very end, only constants are looked at.
    """
    if precision not in LIMITS:
        return ()
    model = onnx.load(str(graph.model_path), load_external_data=False)
    notes = [*_constants(model, graph.model_path.parent, LIMITS[precision])]
    if graph.sample_count and precision != "bf16":
        notes += _ranges(model, graph, folder)
    return _bounded(notes)


def _bounded(notes: list[Note]) -> tuple[Note, ...]:
    if len(notes) <= LISTED:
        return tuple(notes)
    rest = Note(level="warning", text=f"{len(notes) - LISTED} more tensors of this graph do not fit float16")
    return (*notes[:LISTED], rest)


# ----------------------------------------------------------------------------------------------------------- constants


def _constants(model: ModelProto, folder: Path, limits: tuple[str, float, float]) -> Iterator[Note]:
    kind, most, least = limits
    users = _users(model)
    for tensor in _float_tensors(model):
        largest, single = _extremes(tensor, folder)
        if abs(largest) > most:
            fate = f"holds {largest:.6g}, beyond {kind}'s ±{most:.6g}: it becomes infinite"
        elif 0.0 < single < least:
            fate = f"is {single:.6g}, below {kind}'s smallest number: it becomes 0"
        else:
            continue
        text = f"constant {tensor.name!r} {fate}{_eaten_by(tensor.name, users)}"
        yield Note(level="warning", text=text, subject=tensor.name)


def _float_tensors(model: ModelProto) -> Iterator[TensorProto]:
    for graph in graphs_in(model.graph):
        yield from (tensor for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT)
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
                tensor = node.attribute[0].t
                if tensor.data_type == TensorProto.FLOAT:
                    named = TensorProto()
                    named.CopyFrom(tensor)
                    named.name = node.output[0]
                    yield named


def _extremes(tensor: TensorProto, folder: Path) -> tuple[float, float]:
    """The finite number of largest magnitude, with its sign; and the magnitude of a single number, else 0."""
    values = tensor_array(tensor, folder).reshape(-1)
    largest = 0.0
    for begin in range(0, values.size, CHUNK):
        part = values[begin : begin + CHUNK]
        finite = part[np.isfinite(part)] if not np.isfinite(part).all() else part
        if finite.size:
            largest = max(largest, float(finite.min()), float(finite.max()), key=abs)
    return largest, abs(largest) if values.size == 1 else 0.0


def _users(model: ModelProto) -> dict[str, list[NodeProto]]:
    users: dict[str, list[NodeProto]] = {}
    for graph in graphs_in(model.graph):
        for node in graph.node:
            for name in node.input:
                users.setdefault(name, []).append(node)
    return users


def _eaten_by(name: str, users: Mapping[str, list[NodeProto]]) -> str:
    """Which nodes take a constant, and the Softmax that comes soon after, in words."""
    first = users.get(name, [])
    if not first:
        return ""
    told = f" in {_called(first[0])}" + (f" and {len(first) - 1} more nodes" if len(first) > 1 else "")
    seen: list[NodeProto] = list(first)
    for _ in range(STEPS):
        softmax = next((node for node in seen if "Softmax" in node.op_type), None)
        if softmax is not None:
            return f"{told}, and the Softmax {softmax.name!r} gives NaN where it masks a whole row"
        seen = [user for node in seen for output in node.output for user in users.get(output, [])][:64]
    return told


def _called(node: NodeProto) -> str:
    return f"{node.op_type} {node.name!r}"


# ------------------------------------------------------------------------------------------------------------- ranges


def _ranges(model: ModelProto, graph: OnnxGraph, folder: Path) -> Iterator[Note]:
    """Run the graph on the first sample with every float32 tensor of the main graph measured."""
    make_runnable(model)
    probed = _probed(model)
    path = folder / "ranges" / "model.onnx"
    for entry in graph.files:
        if entry.name == "model.onnx.data":
            link_or_copy(graph.path(entry.name), path.with_name(entry.name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    try:
        settings = SessionSettings(level="off", big=bool(external_tensors(model)))
        measured = run_session(open_session(path, settings), load_npz(graph.path("samples/000.npz")))
    except SessionFailed as failure:
        yield Note(level="warning", text=f"float16 ranges were not measured: {failure}")
        return
    finally:
        for left in path.parent.iterdir():
            left.unlink()
        path.parent.rmdir()
    for (name, words), value in zip(probed, measured[len(graph.outputs) :], strict=True):
        size = float(value)
        if LARGEST < size < np.inf:
            text = f"{words.format(size=f'{size:.6g}')}, beyond float16's 65504"
            yield Note(level="warning", text=text, subject=name)


def _probed(model: ModelProto) -> list[tuple[str, str]]:
    """Add outputs to a model that measure its tensors (in place): per output, the tensor and what to say of it."""
    floats = _float_values(model)
    graph = model.graph
    graph.initializer.append(helper.make_tensor(f"{PREFIX}flat", TensorProto.INT64, [1], [-1]))
    graph.initializer.append(helper.make_tensor(f"{PREFIX}zero", TensorProto.FLOAT, [1], [0.0]))
    weights = {tensor.name for tensor in graph.initializer}
    told: list[tuple[str, str]] = []
    for value in list(graph.input):
        if value.name in floats - weights:
            _measure(graph, value.name, len(told))
            told.append((value.name, f"input {value.name!r} reaches {{size}}"))
    for node in list(graph.node):
        for name in node.output:
            if name in floats and node.op_type != "Constant":
                _measure(graph, name, len(told))
                told.append((name, f"tensor {name!r} of {_called(node)} reaches {{size}}"))
        if node.op_type in SUMS and node.input[0] in floats:
            _measure(graph, node.input[0], len(told), summed_by=node)
            told.append((node.output[0], f"{_called(node)} sums magnitudes to {{size}} on the way"))
    return told


def _float_values(model: ModelProto) -> set[str]:
    """Names of the float32 values of the main graph."""
    typed = infer(_without_weights(model)).graph
    values = (*typed.value_info, *typed.output, *typed.input)
    return {value.name for value in values if value.type.tensor_type.elem_type == TensorProto.FLOAT}


def _without_weights(model: ModelProto) -> ModelProto:
    """A copy with types of big weights, but not their values."""
    small = ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import, functions=model.functions)
    graph = small.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    graph.output.extend(model.graph.output)
    graph.input.extend(model.graph.input)
    held = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if nbytes(tensor) <= 1024 and tensor.data_location != TensorProto.EXTERNAL:
            graph.initializer.append(tensor)
        elif tensor.name not in held:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return small


def _measure(graph: GraphProto, name: str, number: int, *, summed_by: NodeProto | None = None) -> None:
    """Append nodes that reduce a tensor to one number: its largest magnitude, or the largest sum of magnitudes."""
    prefix = f"{PREFIX}{number}"
    last = f"{prefix}_abs"
    nodes = [helper.make_node("Abs", [name], [last])]
    if summed_by is not None:
        summed = helper.make_node(SUMS[summed_by.op_type], [last, *summed_by.input[1:]], [f"{prefix}_sum"])
        summed.attribute.extend(summed_by.attribute)
        nodes.append(summed)
        last = summed.output[0]
    # An empty tensor has no largest element: a zero beside it gives it one.
    nodes.append(helper.make_node("Reshape", [last, f"{PREFIX}flat"], [f"{prefix}_flat"]))
    nodes.append(helper.make_node("Concat", [f"{prefix}_flat", f"{PREFIX}zero"], [f"{prefix}_some"], axis=0))
    nodes.append(helper.make_node("ReduceMax", [f"{prefix}_some"], [prefix], keepdims=0))
    graph.node.extend(nodes)
    graph.output.append(helper.make_tensor_value_info(prefix, TensorProto.FLOAT, []))
