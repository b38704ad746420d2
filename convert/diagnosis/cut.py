"""A small model of the nodes that a compiler failed on, cut out of the graph: what to experiment with, or to report.

It holds the nodes, the weights and constants that they read, and their inputs with the dtypes and shapes that they
have in the graph. Its operators and opsets are the graph's own.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from convert.bigmodel import external_tensors, write_weights
from convert.errors import ConvertError
from convert.graphs import MODEL, WEIGHTS, read_model, spec_of
from convert.lowering.inference import infer
from convert.values import OnnxGraph, TensorSpec
from convert.walking import graphs_of

FOLDER = "failing"
MOST = 8
"""Nodes that are cut out at most."""
FAULTS = (
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
    DecodeError,
    EncodeError,
    ConvertError,
    OSError,
    ValueError,
)
"""What a cut may meet: it is a help beside an error, and must not hide that error."""


def cut_around(graph: OnnxGraph, nodes: Collection[str], folder: Path) -> Path | None:
    """Write ``folder/failing/model.onnx``: the nodes of these names (those of a subgraph with the node around it).

    Gives None where none of the names is a node's, where a dtype or shape that the model needs is not known, or
    where onnx.checker refuses the result. External weights are copied into ``model.onnx.data``, the needed ones only.
    """
    made = folder / FOLDER
    try:
        model = read_model(graph.model_path)
        chosen = _chosen(model, frozenset(nodes))
        cut = _cut(model, chosen) if chosen else None
        if cut is None:
            return None
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        tensors = external_tensors(cut)
        if tensors:
            write_weights(tensors, made / WEIGHTS, graph.model_path.parent)
        (made / MODEL).write_bytes(cut.SerializeToString())
        onnx.checker.check_model(str(made / MODEL))
    except FAULTS:
        shutil.rmtree(made, ignore_errors=True)
        return None
    return made / MODEL


def inputs_of(path: Path) -> tuple[TensorSpec, ...]:
    """The inputs of a model that was cut out."""
    return tuple(spec_of(value) for value in read_model(path).graph.input)


def _chosen(model: ModelProto, names: frozenset[str]) -> list[NodeProto]:
    """The main graph's nodes of these names, or with a node of such a name inside of them."""
    found = [node for node in model.graph.node if node.name in names or _inner_names(node) & names]
    return found[:MOST]


def _inner_graphs(node: NodeProto) -> list[GraphProto]:
    if not any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
        return []
    return list(graphs_of(ModelProto(graph=GraphProto(node=[node]))))[1:]


def _inner_names(node: NodeProto) -> set[str]:
    return {inner.name for graph in _inner_graphs(node) for inner in graph.node}


def _cut(model: ModelProto, chosen: list[NodeProto]) -> ModelProto | None:
    """A model of the chosen nodes; None where it can't be typed."""
    constants = {node.output[0]: node for node in model.graph.node if node.op_type == "Constant" and node.output}
    weights = {tensor.name for tensor in model.graph.initializer}
    sparse = {tensor.values.name for tensor in model.graph.sparse_initializer}
    made = {name for node in chosen for name in node.output}
    read = list(dict.fromkeys(name for node in chosen for name in _read_by(node) if name and name not in made))
    known = _types(model)
    inputs = _specs((name for name in read if name not in constants and name not in weights | sparse), known)
    ends = [name for node in chosen for name in node.output if name]
    outputs = _specs(ends, known)
    if inputs is None or not outputs:
        return None
    nodes = [*(constants[name] for name in read if name in constants), *chosen]
    graph = helper.make_graph(nodes, "failing", inputs, outputs)
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in read)
    graph.sparse_initializer.extend(tensor for tensor in model.graph.sparse_initializer if tensor.values.name in read)
    return helper.make_model(
        graph,
        functions=list(model.functions),
        opset_imports=list(model.opset_import),
        ir_version=model.ir_version,
        producer_name="model-convert",
        doc_string="cut out around: " + ", ".join(node.name or node.op_type for node in chosen),
    )


def _read_by(node: NodeProto) -> list[str]:
    """What a node reads, the values that its subgraphs take from outside included."""
    names = list(node.input)
    graphs = _inner_graphs(node)
    inside = {value.name for graph in graphs for value in graph.input}
    inside |= {tensor.name for graph in graphs for tensor in graph.initializer}
    inside |= {name for graph in graphs for inner in graph.node for name in inner.output}
    names += [name for graph in graphs for inner in graph.node for name in inner.input if name not in inside]
    names += [value.name for graph in graphs for value in graph.output if value.name not in inside]
    return names


def _types(model: ModelProto) -> dict[str, ValueInfoProto]:
    graph = infer(model).graph
    return {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}


def _specs(names: Iterable[str], known: dict[str, ValueInfoProto]) -> list[ValueInfoProto] | None:
    """Types of tensors; None where one has no dtype or no shape."""
    specs = []
    for name in dict.fromkeys(names):
        value = known.get(name)
        if value is None or not value.type.tensor_type.elem_type or not value.type.tensor_type.HasField("shape"):
            return None
        specs.append(value)
    return specs
