"""Reductions whose sum is stored on the way: a mean of 100 over 4096 elements passes 400 000, and fp16 ends at 65504.

Many toolchains split a mean into a sum and a scale, and a norm into a sum of squares and a root, and store the sum in
the narrow type (microsoft/onnxconverter-common#323, ROCm/AMDMIGraphX#2556). Where nothing says that a target sums in
float32, the forecast writes such a sum out beside the reduction: where it becomes infinite, so does the result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from convert.precision.policy import F32
from convert.precision.scope import Names
from convert.precision.types import plain_domain
from convert.walking import graphs_in

EXPONENTIALS = "ReduceLogSumExp"
SUMS = {
    "ReduceMean": "ReduceSum",
    "ReduceL2": "ReduceSumSquare",
    "ReduceLogSum": "ReduceSum",
    EXPONENTIALS: "ReduceMax",
}
"""Reduction → what is summed on the way; of exponentials, what is subtracted before."""
AXES_ARE_INPUTS = {"ReduceSum": 13, "ReduceSumSquare": 18, "ReduceMax": 18}
IS_INF_SINCE = 10


def stored_sums(model: ModelProto, types: Mapping[str, str]) -> tuple[str, ...]:
    """Write the sums of float32 reductions out (in place); the names of the sums. ``types``: of all values.

    The new nodes have the name of the reduction, so that whatever is kept in fp32 is kept with its sum.
    """
    opset = next((entry.version for entry in model.opset_import if not plain_domain(entry.domain)), 0)
    if opset < IS_INF_SINCE:
        return ()
    names = Names(model.graph)
    made: list[str] = []
    for graph in list(graphs_in(model.graph)):
        wanted = [node for node in graph.node if node.op_type in SUMS and types.get(node.input[0]) == F32]
        if wanted:
            _written_out(graph, {node.output[0] for node in wanted}, names, opset, made)
    return tuple(made)


def _written_out(graph: GraphProto, wanted: Collection[str], names: Names, opset: int, made: list[str]) -> None:
    nodes: list[NodeProto] = []
    for node in graph.node:
        if node.op_type not in SUMS or node.output[0] not in wanted:
            nodes.append(node)
            continue
        result, mean = node.output[0], names.fresh(f"{node.output[0]}_alone")
        total, beyond = names.fresh(f"{result}_sum"), names.fresh(f"{result}_sum_is_inf")
        node.output[0] = mean
        if node.op_type == EXPONENTIALS:
            nodes += [node, *_exponentials(graph, node, total, names, opset)]
        else:
            nodes += [_reduced(graph, node, total, names, opset), node]
        nodes.append(helper.make_node("IsInf", [total], [beyond], name=node.name))
        nodes.append(helper.make_node("Where", [beyond, total, mean], [result], name=node.name))
        for added in nodes[-2:]:
            added.metadata_props.extend(node.metadata_props)
        made.append(total)
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _exponentials(graph: GraphProto, node: NodeProto, total: str, names: Names, opset: int) -> list[NodeProto]:
    """The sum of exponentials below the largest, which keeps each of them at most 1: read off its logarithm."""
    most, over = names.fresh(f"{total}_most"), names.fresh(f"{total}_log")
    made = [
        _reduced(graph, node, most, names, opset),
        helper.make_node("Sub", [node.output[0], most], [over], name=node.name),
        helper.make_node("Exp", [over], [total], name=node.name),
    ]
    for added in made[1:]:
        added.metadata_props.extend(node.metadata_props)
    return made


def _reduced(graph: GraphProto, node: NodeProto, total: str, names: Names, opset: int) -> NodeProto:
    op = SUMS[node.op_type]
    summed = helper.make_node(op, list(node.input), [total], name=node.name)
    summed.attribute.extend(node.attribute)
    summed.metadata_props.extend(node.metadata_props)
    axes = next((list(a.ints) for a in node.attribute if a.name == "axes"), None)
    if axes is not None and opset >= AXES_ARE_INPUTS[op]:
        name = names.fresh(f"{total}_axes")
        graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [len(axes)], axes))
        kept = [a for a in summed.attribute if a.name != "axes"]
        del summed.attribute[:]
        summed.attribute.extend(kept)
        summed.input.append(name)
    return summed
