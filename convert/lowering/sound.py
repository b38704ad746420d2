"""``unsound``: what ONNX's own checks hold against the parts of a model, one by one.

Everything behind relies on nodes that have the inputs, outputs and attributes of their operator, on weights whose data
fit their type and shape, and on names that are text. ``onnx.checker`` says so of a whole model at its first fault, and
reads external data; here it is asked part by part. What a compiler or a later stage judges better is left to it:
operators that an opset does not have, the order of nodes, shapes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import onnx
import onnx.inliner
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

from convert.errors import ExportError
from convert.lowering.inference import INFERENCE_FAILURES
from convert.lowering.schemas import main_domain
from convert.walking import graphs_in, subgraphs

MAX_OPSET = 1 << 20
LISTED = 5
JUDGED_LATER = ("No Op registered for", "No opset import for domain", "is deprecated in domain_version", "No Schema")
"""Words of the checker about operators that are not known: the support check and lint say more about them."""


def require_sound(model: ModelProto) -> None:
    """Raise :class:`ExportError` CNV-4221 where parts of a model are not what ONNX says they must be."""
    twice = (text for graph in graphs_in(model.graph) for text in _made_twice(graph))
    found = list(dict.fromkeys([*unsound(model), *_two_versions(model), *twice]))
    if found:
        shown = "; ".join(found[:LISTED]) + (f"; and {len(found) - LISTED} more" if len(found) > LISTED else "")
        raise ExportError(
            "CNV-4221",
            f"the graph is no valid ONNX: {shown}",
            hint="`convert graph lint FILE` lists all that is wrong with it; export the model again, or mend the file",
        )


def _two_versions(model: ModelProto) -> Iterator[str]:
    """Domains that are imported in two versions: which of them a node means nobody can tell."""
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if main_domain(entry.domain) else entry.domain
        if versions.setdefault(domain, entry.version) != entry.version:
            yield f"the domain '{domain}' is imported in two versions"


def inline_all(model: ModelProto) -> ModelProto:
    """The model with its local functions in the place of their calls. Raises :class:`ExportError` CNV-4006."""
    if not model.functions:
        return model
    try:
        return onnx.inliner.inline_local_functions(model)
    except INFERENCE_FAILURES as error:
        raise ExportError(
            "CNV-4006",
            f"the graph can't be put in order: its functions can't be inlined: {' '.join(str(error).split())[:300]}",
            hint="functions that call each other in a circle, or call what is not there, are no ONNX: export it again",
        ) from error


def unsound(model: ModelProto) -> Iterator[str]:
    """Every part that is not as it must be, in one line each. Reads no external data."""
    if reason := unreadable(model):
        yield reason
        return
    versions = {"" if main_domain(entry.domain) else entry.domain: entry.version for entry in model.opset_import}
    context = onnx.checker.C.CheckerContext()
    context.ir_version = min(max(model.ir_version, 3), onnx.IR_VERSION)
    context.opset_imports = {**versions, "": versions.get("", 0) or onnx.defs.onnx_opset_version()}
    yield from _in_graph(model.graph, context)
    for function in model.functions:
        for node in function.node:
            yield from _in_node(node, context, inside=True)


def unreadable(model: ModelProto) -> str:
    """Why nothing else can be told of a model: a name that is no text, or an opset that is no version; else empty."""
    imports = [*model.opset_import, *(entry for function in model.functions for entry in function.opset_import)]
    if any(not _is_text(entry.domain) or not 0 <= entry.version <= MAX_OPSET for entry in imports):
        return "it imports an opset that is none"
    told = (model.producer_name, model.producer_version, model.domain, model.doc_string)
    if not all(map(_is_text, (*told, *(text for entry in model.metadata_props for text in (entry.key, entry.value))))):
        return "what it says of itself is no text"
    nodes = [node for function in model.functions for node in function.node]
    for function in model.functions:
        texts = (function.name, function.domain, function.overload, *function.input, *function.output)
        if not all(map(_is_text, (*texts, *function.attribute))):
            return "a local function has a name that is no text"
    graphs = [model.graph]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            if not all(map(_is_text, _texts_of(graph))):
                return "a value has a name that is no text"
            nodes += graph.node
        for node in nodes:
            if not node.op_type or not all(map(_is_text, _texts_of_node(node))):
                return "a node has a name that is no text, or no operator"
            graphs += subgraphs(node)
        nodes = []
    return ""


def _texts_of(graph: GraphProto) -> Iterator[str | bytes]:
    yield from (graph.name, graph.doc_string)
    for info in (*graph.input, *graph.output, *graph.value_info):
        yield from (info.name, info.doc_string)
        if info.type.HasField("tensor_type"):
            yield from (dim.dim_param for dim in info.type.tensor_type.shape.dim)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)


def _texts_of_node(node: NodeProto) -> Iterator[str | bytes]:
    yield from (node.op_type, node.domain, node.name, node.doc_string, node.overload, *node.input, *node.output)
    for attribute in node.attribute:
        yield from (attribute.name, attribute.ref_attr_name)
        if attribute.HasField("t"):
            yield attribute.t.name


def _made_twice(graph: GraphProto) -> Iterator[str]:
    """Values of one graph that more than one node makes, or that are given as well."""
    made = Counter(name for node in graph.node for name in node.output if name)
    given = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    for name, count in made.items():
        if count > 1 or name in given:
            yield f"the value '{name}' is made more than once"


def _in_graph(graph: GraphProto, context: Any, *, inside: bool = False) -> Iterator[str]:
    for info in (*graph.input, *graph.output):
        # No element type at all is common for the outputs of bodies.
        if info.type.HasField("tensor_type") and info.type.tensor_type.elem_type not in TYPES:
            yield f"'{info.name}' has the element type {info.type.tensor_type.elem_type}, which is none"
    for tensor in graph.initializer:
        yield from _in_tensor(tensor, context)
    for sparse in graph.sparse_initializer:
        yield from _told(lambda part=sparse: onnx.checker.check_sparse_tensor(part, context))
    for node in graph.node:
        yield from _in_node(node, context, inside=inside)


def _in_node(node: NodeProto, context: Any, *, inside: bool = False) -> Iterator[str]:
    """``inside``: a node of a local function, whose attributes may be those of its call."""
    bare = _shallow(node)
    refers = any(attribute.ref_attr_name for attribute in node.attribute)
    if refers and not inside:
        yield f"the node '{node.name}' ({node.op_type}) refers to an attribute of a function, and is in none"
    elif not main_domain(node.domain) or refers:
        for attribute in bare.attribute:
            if not attribute.ref_attr_name:
                yield from _told(lambda part=attribute: onnx.checker.check_attribute(part, context))
    else:
        yield from _told(lambda: onnx.checker.check_node(bare, context))
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            yield from _in_tensor(attribute.t, context)
    for inner in subgraphs(node):
        yield from _in_graph(inner, context, inside=inside)


def _shallow(node: NodeProto) -> NodeProto:
    """The node without what its bodies and tensors hold: that is checked by itself, and reads values from around it."""
    if not any(attribute.type in (AttributeProto.TENSOR, *GRAPHS) for attribute in node.attribute):
        return node
    bare = NodeProto()
    bare.CopyFrom(node)
    for attribute in bare.attribute:
        if attribute.HasField("t"):
            attribute.t.CopyFrom(TensorProto(data_type=TensorProto.FLOAT, dims=[0]))
        for graph in (attribute.g,) if attribute.HasField("g") else attribute.graphs:
            graph.Clear()
            graph.name = "body"
    return bare


GRAPHS = (AttributeProto.GRAPH, AttributeProto.GRAPHS)


def _in_tensor(tensor: TensorProto, context: Any) -> Iterator[str]:
    if not _is_type(tensor.data_type) or any(dim < 0 for dim in tensor.dims):
        yield f"the weight '{tensor.name}' has no element type, or a dimension below zero"
    elif tensor.data_location != TensorProto.EXTERNAL:
        if too_long := _too_long(tensor):
            yield f"the weight '{tensor.name}' of {list(tensor.dims)} holds {too_long}"
        else:
            yield from _told(lambda: onnx.checker.check_tensor(tensor, context))


def _too_long(tensor: TensorProto) -> str:
    """What a tensor holds beyond its shape, which onnx's checker lets pass and ONNX Runtime does not; else empty."""
    kind, elements = tensor.data_type, math.prod(tensor.dims)
    if tensor.HasField("raw_data"):
        bits = PACKED.get(kind) or 8 * helper.tensor_dtype_to_np_dtype(kind).itemsize
        size = -(-elements * bits // 8)
        return f"more than its {size} bytes" if kind != TensorProto.STRING and len(tensor.raw_data) > size else ""
    values = len(getattr(tensor, helper.tensor_dtype_to_field(kind)))
    most = elements * (2 if kind in (TensorProto.COMPLEX64, TensorProto.COMPLEX128) else 1)
    return f"{values} values" if values > most else ""


def _told(check: Any) -> Iterator[str]:
    """What a check of onnx says, in one line."""
    try:
        check()
    except (*INFERENCE_FAILURES, TypeError) as error:
        line = " ".join(str(error).split())[:200] or type(error).__name__
        if not any(words in line for words in JUDGED_LATER):
            yield "".join(letter if letter.isprintable() else "?" for letter in line)


def _is_text(name: str | bytes) -> bool:
    """Protobuf gives bytes for a text that is no UTF-8."""
    return isinstance(name, str)


def _is_type(number: int) -> bool:
    return number != TensorProto.UNDEFINED and number in TYPES


PACKED = {
    number: int(found[0])
    for name, number in TensorProto.DataType.items()
    if (found := re.findall(r"^(?:U?INT|FLOAT)([246])(?:E|$)", name))
}
"""Types that share bytes of raw data: the bits of an element."""
TYPES = frozenset(TensorProto.DataType.values())
