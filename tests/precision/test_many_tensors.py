"""Graphs of many small tensors: what is gathered of them is joined as it comes."""

from __future__ import annotations

import itertools

import onnx
from onnx import TensorProto, helper

from convert.precision.probes import JOINED_AT, Prober
from convert.precision.shapes import shapes_of


def _chain(count: int) -> onnx.ModelProto:
    names = ["x", *(f"v{place}" for place in range(count))]
    nodes = [helper.make_node("Tanh", [before], [after]) for before, after in itertools.pairwise(names)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16]) for name in ("x", names[-1])]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_small_tensors_are_joined_as_soon_as_they_are_many():
    model = _chain(2 * JOINED_AT + 100)
    names = [node.output[0] for node in model.graph.node]
    probes = Prober(shapes_of(model, {"x": (1, 16)}), 32).add(model, names, looks="elements")
    assert [len(joined.tensors) for joined in probes.joined] == [JOINED_AT, JOINED_AT, 100]
    assert [name for joined in probes.joined for name in joined.tensors] == names
    concats = [place for place, node in enumerate(model.graph.node) if node.op_type == "Concat"]
    assert concats == [JOINED_AT, 2 * JOINED_AT + 1, len(model.graph.node) - 1]
