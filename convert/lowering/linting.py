"""``findings``: everything that is wrong with a model file, in one go; nothing is run and no weight is read.

``error`` is what a checker, ONNX Runtime or a vendor's parser refuses; ``warning`` is what is allowed but known to
surprise: a training mode, a random operator, a name that a compiler can't write into its files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath, PureWindowsPath

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from convert.lowering import schemas
from convert.lowering.facts import small_array
from convert.lowering.refusal import Finding
from convert.lowering.sound import unreadable, unsound
from convert.walking import graphs_in, subgraphs

LEGAL_NAME = re.compile(r"[A-Za-z0-9_.:/\-]*")
RANDOM_OPS = {
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
}  # fmt: skip


def findings(model: ModelProto) -> tuple[Finding, ...]:
    """See ``convert.lowering.lint``."""
    graphs = list(graphs_in(model.graph))
    if reason := unreadable(model):
        return (_error("invalid", "", reason),)
    found = [
        *(_error("invalid", "", text) for text in unsound(model)),
        *_imports(model, graphs),
        *_signature(model),
        *_names(graphs),
        *_order(model.graph, set(), set()),
        *_operators(model, graphs),
        *_tensors(graphs),
    ]
    return tuple(dict.fromkeys(found))


def _error(rule: str, subject: str, text: str) -> Finding:
    return Finding(rule=rule, level="error", subject=subject, text=text)


def _warning(rule: str, subject: str, text: str) -> Finding:
    return Finding(rule=rule, level="warning", subject=subject, text=text)


def _domain(domain: str) -> str:
    return "" if schemas.main_domain(domain) else domain


# ------------------------------------------------------------------------------------------------------------- imports


def _imports(model: ModelProto, graphs: list[GraphProto]) -> Iterator[Finding]:
    """Opset imports that are missing, unused, given twice or too new, and an IR version that does not go with them."""
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = _domain(entry.domain)
        if versions.setdefault(domain, entry.version) != entry.version:
            yield _error("double-import", domain, f"the domain '{domain}' is imported in two versions")
    functions = [node for function in model.functions for node in function.node]
    used = {_domain(node.domain) for graph in graphs for node in graph.node} | {_domain(n.domain) for n in functions}
    for domain in sorted(used - versions.keys()):
        yield _error("missing-import", domain, f"nodes use the domain '{domain}', which has no opset import")
    for domain in sorted(versions.keys() - used):
        if graphs[0].node or domain:
            yield _warning("unused-import", domain, f"the domain '{domain}' is imported, but no node uses it")
    opset = versions.get("", 0)
    if opset > schemas.NEWEST:
        yield _error("unknown-opset", "", f"opset {opset} is newer than the newest known, {schemas.NEWEST}")
    elif opset and model.ir_version < schemas.ir_version(opset):
        text = f"opset {opset} goes with IR version {schemas.ir_version(opset)} or newer, not {model.ir_version}"
        yield _warning("old-ir", "", text)


# ----------------------------------------------------------------------------------------------------------- signature


def _signature(model: ModelProto) -> Iterator[Finding]:
    """Inputs and outputs: none, twice, overridable weights, dimensions below zero."""
    graph = model.graph
    if not graph.output:
        yield _error("no-output", graph.name, "the graph has no output")
    weights = {tensor.name for tensor in graph.initializer}
    made = {name for node in graph.node for name in node.output} | weights | {info.name for info in graph.input}
    for info in graph.input:
        if info.name in weights and model.ir_version >= 4:
            yield _warning("weight-as-input", info.name, f"the weight '{info.name}' is an input too, so it may change")
    for info in graph.output:
        if not info.name:
            yield _error("empty-output", "", "an output has no name")
        elif info.name not in made:
            yield _error("empty-output", info.name, f"nothing makes the output '{info.name}'")
    for kind, infos in (("input", graph.input), ("output", graph.output)):
        for name, count in Counter(info.name for info in infos).items():
            if count > 1:
                yield _error(f"double-{kind}", name, f"'{name}' is an {kind} {count} times")
    for info in (*graph.input, *graph.output, *graph.value_info):
        yield from _dims(info)


def _dims(info: ValueInfoProto) -> Iterator[Finding]:
    dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim if dim.HasField("dim_value")]
    if any(dim < 0 for dim in dims):
        yield _error("negative-dim", info.name, f"'{info.name}' has a dimension below zero: {dims}")


# --------------------------------------------------------------------------------------------------------------- names


def _names(graphs: list[GraphProto]) -> Iterator[Finding]:
    """Node names that come twice, and names that some compilers do not take."""
    counts = Counter(node.name for graph in graphs for node in graph.node if node.name)
    for name, count in counts.items():
        if count > 1:
            yield _error("double-node-name", name, f"{count} nodes are named '{name}'")
    for graph in graphs:
        values = [name for node in graph.node for name in (node.name, *node.output)]
        for name in (*values, *(info.name for info in graph.input), *(t.name for t in graph.initializer)):
            if not LEGAL_NAME.fullmatch(name):
                yield _warning("illegal-name", name, f"the name '{name}' has characters that some compilers refuse")


# --------------------------------------------------------------------------------------------------------------- order


def _order(graph: GraphProto, outer: set[str], later: set[str]) -> Iterator[Finding]:
    """Values read before they are made, never made, made twice, or made and never read."""
    made_here = [name for node in graph.node for name in node.output if name]
    known = outer | {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    known |= {tensor.values.name for tensor in graph.sparse_initializer}
    for name, count in Counter(made_here).items():
        if count > 1 or name in known:
            yield _error("double-value", name, f"the value '{name}' is made more than once")
    coming = later | set(made_here)
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                yield _read_too_early(node, name, coming)
        for inner in subgraphs(node):
            yield from _order(inner, known, coming)
        known.update(name for name in node.output if name)


def _read_too_early(node: NodeProto, name: str, coming: set[str]) -> Finding:
    subject = node.name or next(iter(node.output), "")
    if name in coming:
        return _error("unsorted", subject, f"{node.op_type} '{subject}' reads '{name}', which is made after it")
    return _error("missing-value", subject, f"{node.op_type} '{subject}' reads '{name}', which nothing makes")


# ----------------------------------------------------------------------------------------------------------- operators


def _operators(model: ModelProto, graphs: list[GraphProto]) -> Iterator[Finding]:
    """Operators that the opset does not have, of other domains, random, or in training mode; nodes without effect."""
    opset = next((e.version for e in model.opset_import if schemas.main_domain(e.domain)), 0)
    local = {(function.domain, function.name) for function in model.functions}
    constants = {t.name: t for graph in graphs for t in graph.initializer}
    for node in (node for graph in graphs for node in graph.node):
        if node.op_type == "Constant":
            constants.update((node.output[0], a.t) for a in node.attribute if a.name == "value" and node.output)
    for node in (node for graph in graphs for node in graph.node):
        subject = node.name or next(iter(node.output), node.op_type)
        if (node.domain, node.op_type) in local:
            continue
        if not schemas.main_domain(node.domain):
            if not node.domain.startswith("ai.onnx."):
                yield _warning("custom-domain", subject, f"{node.domain}::{node.op_type} is no operator of ONNX")
            continue
        if opset and schemas.schema(node.op_type, min(opset, schemas.NEWEST)) is None:
            yield _error("unknown-operator", subject, f"opset {opset} has no operator {node.op_type}")
        if node.op_type in RANDOM_OPS:
            yield _warning("random", subject, f"{node.op_type} gives other numbers on every run")
        if _trains(node, constants):
            yield _warning("training-mode", subject, f"{node.op_type} is in training mode")
    yield from _idle(graphs)


def _trains(node: NodeProto, constants: dict[str, TensorProto]) -> bool:
    if node.op_type == "BatchNormalization":
        return any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)
    if node.op_type != "Dropout" or len(node.input) < 3 or node.input[2] not in constants:
        return False
    value = small_array(constants[node.input[2]])
    return value is not None and bool(value.any())


def _idle(graphs: list[GraphProto]) -> Iterator[Finding]:
    read = {name for graph in graphs for node in graph.node for name in node.input}
    read |= {info.name for graph in graphs for info in graph.output}
    for graph in graphs:
        for node in graph.node:
            if node.output and not read.intersection(node.output):
                subject = node.name or node.output[0]
                yield _warning("idle-node", subject, f"nothing reads what {node.op_type} '{subject}' makes")


# ------------------------------------------------------------------------------------------------------------- tensors


def _tensors(graphs: list[GraphProto]) -> Iterator[Finding]:
    """Weights whose data lies outside of the model's folder, is cut short, or holds numbers that are none."""
    for graph in graphs:
        constants = (
            a.t for node in graph.node for a in node.attribute if a.type == AttributeProto.TENSOR and a.name == "value"
        )
        for tensor in (*graph.initializer, *constants):
            yield from _tensor(tensor)


def _tensor(tensor: TensorProto) -> Iterator[Finding]:
    if any(dim < 0 for dim in tensor.dims):
        yield _error("negative-dim", tensor.name, f"the weight '{tensor.name}' has a dimension below zero")
        return
    if tensor.data_location == TensorProto.EXTERNAL:
        places = [entry.value for entry in tensor.external_data if entry.key == "location"]
        if not places or any(_escapes(place) for place in places):
            yield _error("outside-data", tensor.name, f"the data of '{tensor.name}' lies outside of the model's folder")
        return
    if not tensor.HasField("raw_data"):
        return
    try:
        numpy_helper.to_array(tensor) if len(tensor.raw_data) < 1 << 16 else None
    except (ValueError, TypeError, KeyError):
        yield _error("broken-tensor", tensor.name, f"the data of '{tensor.name}' does not fit its shape and type")


def _escapes(place: str) -> bool:
    """Whether a path leads out of the folder that it starts in."""
    path = PurePosixPath(place.replace("\\", "/"))
    return path.is_absolute() or bool(PureWindowsPath(place).drive) or ".." in path.parts
