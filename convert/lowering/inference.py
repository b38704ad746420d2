"""ONNX's type and shape inference, the one place that asks for it.

Some of its functions end the process instead of raising (onnx 1.23.2; found by asking those of all operators in all
versions with odd inputs and attributes). Nodes that would do so are out of its sight until what it relies on is known:
then a graph that is odd costs the types behind such a node, and not the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TypeProto

from convert.walking import subgraphs, walk

LONGEST_VECTOR = 1 << 20
MOST_ROUNDS = 4
"""How often what became known may bring nodes back into sight; in a longer chain of such nodes some stay hidden."""
HIDDEN = "?"
"""Behind an operator's name: no operator, so that inference passes it over."""
INFERENCE_FAILURES = (
    RuntimeError,
    ValueError,
    MemoryError,
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
)
"""What onnx raises over a graph that contradicts itself; MemoryError: it takes room for what a size in it promises."""
Types = Mapping[str, TypeProto]


def infer(model: ModelProto) -> ModelProto:
    """The model with the types and shapes that ONNX can find out, subgraphs included; as it is where that fails."""
    hidden = _hide(model)
    try:
        inferred = _inferred(model)
        for _ in range(MOST_ROUNDS):
            if not hidden or not (seen := _show(model, inferred, hidden)):
                break
            hidden -= seen
            inferred = _inferred(model)
    finally:
        _restore(model, hidden)
    _restore(inferred, hidden)
    return inferred


def _inferred(model: ModelProto) -> ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(
            model, check_type=False, strict_mode=False, data_prop=follows_data(model)
        )
    except INFERENCE_FAILURES:
        copy = ModelProto()
        copy.CopyFrom(model)
        return copy


def follows_data(model: ModelProto) -> bool:
    """Whether inference may follow the contents of vectors: onnx takes room for each element of any vector then."""
    infos = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    shapes = (info.type.tensor_type.shape for info in infos if info.type.HasField("tensor_type"))
    longest = max((shape.dim[0].dim_value for shape in shapes if len(shape.dim) == 1), default=0)
    return longest <= LONGEST_VECTOR


# ----------------------------------------------------------------------------------------- what ends the process


def _never(node: NodeProto, types: Types) -> bool:
    return False


def _typed(node: NodeProto, types: Types) -> bool:
    """The input is a tensor: EyeLike and RegexFullMatch take that for granted."""
    return bool(node.input) and node.input[0] in types and types[node.input[0]].HasField("tensor_type")


def _counted(node: NodeProto, types: Types) -> bool:
    """Split has the outputs that it speaks of."""
    return all(attribute.i == len(node.output) for attribute in node.attribute if attribute.name == "num_outputs")


def _narrow(node: NodeProto, types: Types) -> bool:
    """LayerNormalization keeps its axis in 32 bits."""
    return all(abs(attribute.i) < 1 << 31 for attribute in node.attribute if attribute.name == "axis")


def _indexed(node: NodeProto, types: Types) -> bool:
    """GatherND counts dimensions of its data by numbers that nobody looks at: the last dimension of the indices."""
    if any(attribute.i < 0 for attribute in node.attribute if attribute.name == "batch_dims"):
        return False
    found = types.get(node.input[1]) if len(node.input) > 1 else None
    if found is None or not found.tensor_type.HasField("shape"):
        return False
    dims = found.tensor_type.shape.dim
    return not dims or dims[-1].dim_value >= 0


FRAGILE: dict[str, Callable[[NodeProto, Types], bool]] = {
    "EyeLike": _typed,
    "RegexFullMatch": _typed,
    "Split": _counted,
    "LayerNormalization": _narrow,
    "GatherND": _indexed,
    "DictVectorizer": _never,
    "LabelEncoder": _never,
    "TreeEnsemble": _never,
}
"""By operator: whether inference may look at a node, given the types that are known."""


def _hide(model: ModelProto) -> set[int]:
    """Take the nodes that nothing is known for out of sight; which they are, by their place in :func:`_nodes`."""
    hidden = set()
    for place, node in enumerate(_nodes(model)):
        safe = FRAGILE.get(node.op_type)
        if safe is not None and not safe(node, {}):
            node.op_type += HIDDEN
            hidden.add(place)
    return hidden


def _show(model: ModelProto, inferred: ModelProto, hidden: set[int]) -> set[int]:
    """Bring back the hidden nodes that enough is known for now; their places."""
    seen = set()
    for place, (node, (_, types)) in enumerate(zip(_nodes(model), _nodes_in_scope(inferred), strict=True)):
        if place in hidden and FRAGILE[node.op_type.removesuffix(HIDDEN)](node, types):
            node.op_type = node.op_type.removesuffix(HIDDEN)
            seen.add(place)
    return seen


def _restore(model: ModelProto, hidden: set[int]) -> None:
    for place, node in enumerate(_nodes(model) if hidden else ()):
        if place in hidden:
            node.op_type = node.op_type.removesuffix(HIDDEN)


def _nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Every node, in the order of :func:`_nodes_in_scope`."""
    for graph in (model.graph, *model.functions):
        yield from walk(graph)


def _nodes_in_scope(model: ModelProto) -> Iterator[tuple[NodeProto, Types]]:
    """The same nodes in the same order, each with the types that are known where it stands."""
    yield from _of_graph(model.graph, {})
    for function in model.functions:
        for node in function.node:
            yield node, {}
            for graph in subgraphs(node):
                yield from _of_graph(graph, {})


def _of_graph(graph: GraphProto, around: Types) -> Iterator[tuple[NodeProto, Types]]:
    types = dict(around)
    for node in graph.node:
        for name in node.output:
            types.pop(name, None)
    for info in (*graph.value_info, *graph.output, *graph.input):
        types[info.name] = info.type
    for tensor in graph.initializer:
        types.setdefault(tensor.name, onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims)))
    for node in graph.node:
        yield node, types
        for inner in subgraphs(node):
            yield from _of_graph(inner, types)
