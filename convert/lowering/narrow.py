"""Types that an older operator does not take: the value goes through a type that it takes, where nothing is lost.

An operator that moves data (Reshape, Gather, …) or compares may run in any type that holds every value of the given
one. Floating-point arithmetic in float16 or bfloat16 may run in float and be rounded at the end, and integer arithmetic
in a wider integer, whose low bits are the same. Everything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import NodeProto, TensorProto, TypeProto

from convert.lowering import schemas
from convert.lowering.facts import Scope
from convert.lowering.site import Names, Refuse, Site

T = TensorProto
FLOAT8 = (T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ)
HOLDERS: dict[int, tuple[int, ...]] = {
    T.BFLOAT16: (T.FLOAT, T.DOUBLE),
    T.FLOAT16: (T.FLOAT, T.DOUBLE),
    **dict.fromkeys(FLOAT8, (T.FLOAT16, T.FLOAT)),
    T.FLOAT: (T.DOUBLE,),
    T.BOOL: (T.UINT8, T.INT32, T.FLOAT),
    T.UINT4: (T.UINT8,),
    T.INT4: (T.INT8,),
    T.UINT8: (T.INT32, T.UINT32, T.INT64, T.FLOAT),
    T.INT8: (T.INT32, T.INT64, T.FLOAT),
    T.UINT16: (T.INT32, T.UINT32, T.INT64, T.FLOAT),
    T.INT16: (T.INT32, T.INT64, T.FLOAT),
    T.UINT32: (T.INT64, T.DOUBLE),
    T.INT32: (T.INT64, T.DOUBLE),
}
"""Types that hold every value of a type, nearest first."""

MOVING = frozenset([
    "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Concat", "Split", "Slice", "Gather",
    "GatherElements", "GatherND", "Expand", "Tile", "Pad", "Where", "DepthToSpace", "SpaceToDepth", "Compress",
    "ScatterElements", "ScatterND", "Trilu", "ReverseSequence", "Unique", "NonZero", "Shape", "Size", "IsNaN",
    "IsInf", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "ReduceMax", "ReduceMin", "ArgMax",
    "ArgMin", "TopK", "MaxPool", "Max", "Min", "Clip", "Relu", "Sign", "Abs", "OneHot", "GlobalMaxPool",
])  # fmt: skip
"""Results are elements of the inputs, or how they compare: exact in any type that holds the values."""
ROUNDED = frozenset([
    "Add", "Sub", "Mul", "Div", "Neg", "Sqrt", "Exp", "Log", "Pow", "Erf", "Tanh", "Sigmoid", "Softmax",
    "LogSoftmax", "Hardmax", "Sum", "Mean", "MatMul", "Gemm", "Floor", "Ceil", "Reciprocal", "ReduceSum",
    "ReduceMean", "ReduceL1", "ReduceL2", "ReduceProd", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare",
    "Conv", "ConvTranspose", "AveragePool", "GlobalAveragePool", "LpPool", "GlobalLpPool", "BatchNormalization",
    "InstanceNormalization", "LRN", "LpNormalization", "MeanVarianceNormalization", "LeakyRelu", "PRelu", "Elu",
    "Selu", "Celu", "HardSigmoid", "HardSwish", "Mish", "Softplus", "Softsign", "ThresholdedRelu", "Sin", "Cos",
    "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Round", "Mod", "CumSum",
    "Einsum", "GridSample", "RoiAlign", "Resize", "Det", "Range", "LayerNormalization", "DeformConv",
    "MaxUnpool", "MaxRoiPool", "RNN", "GRU", "LSTM",
])  # fmt: skip
"""Floating-point arithmetic: in float16 and bfloat16 done in float and rounded at the end."""
WRAPPED = frozenset(["Add", "Sub", "Mul", "Div", "Neg", "Mod", "Sum"])
"""Integer arithmetic whose low bits are the same in a wider integer."""


def bad_types(node: NodeProto, scope: Scope, opset: int) -> dict[str, set[int]]:
    """Per type name of the schema, the element types that do not fit: not allowed, or several where one may be."""
    constraints, names, repeats = schemas.allowed_types(node.op_type, opset)
    found: dict[str, set[int]] = {}
    for index, value in enumerate(node.input):
        if not value or (index >= len(names) and not repeats):
            continue
        type_name = names[min(index, len(names) - 1)]
        elem = scope.dtype(value)
        if elem:
            alone = repeats and index >= len(names) - 1 and not schemas.homogeneous(node.op_type, opset)
            key = f"{type_name}@{index}" if alone else type_name
            found.setdefault(key, set()).add(elem)
    bad = {}
    for key, elems in found.items():
        allowed = constraints[key.split("@")[0]]
        if len(elems) > 1 or any(schemas.type_name(elem) not in allowed for elem in elems):
            bad[key] = elems
    return bad


def narrowed(node: NodeProto, scope: Scope, names: Names, opset: int) -> list[NodeProto] | None:
    """The nodes that stand for one whose types do not fit; None where they fit."""
    if not schemas.main_domain(node.domain) or schemas.schema(node.op_type, opset) is None:
        return None
    bad = bad_types(node, scope, opset)
    if not bad:
        _check_outputs(node, scope, opset)
        return None
    site = Site(node, scope, names, opset)
    carriers = {key: _carrier(node, opset, key.split("@")[0], elems) for key, elems in bad.items()}
    _sandwich(site, carriers)
    return site.nodes


def _check_outputs(node: NodeProto, scope: Scope, opset: int) -> None:
    """What an operator makes, and sequences and optionals that it takes, must be allowed there."""
    found = schemas.schema(node.op_type, opset)
    if found is None:
        return
    allowed = {c.type_param_str: c.allowed_type_strs for c in found.type_constraints}
    for formals, values in ((found.inputs, node.input), (found.outputs, node.output)):
        for index, value in enumerate(values):
            formal = formals[min(index, len(formals) - 1)]
            text = type_text(scope.type_of(value)) if value else ""
            if text and text not in allowed.get(formal.type_str, (formal.type_str,)):
                raise Refuse(f"{node.op_type} does not take or make {text} at opset {opset}")


def type_text(proto: TypeProto | None) -> str:
    """A type as schemas write it, ``seq(tensor(float))``; empty where it is not known."""
    if proto is None:
        return ""
    match proto.WhichOneof("value"):
        case "tensor_type":
            return schemas.type_name(proto.tensor_type.elem_type) if proto.tensor_type.elem_type else ""
        case "sequence_type":
            inner = type_text(proto.sequence_type.elem_type)
            return f"seq({inner})" if inner else ""
        case "optional_type":
            inner = type_text(proto.optional_type.elem_type)
            return f"optional({inner})" if inner else ""
    return ""


def _carrier(node: NodeProto, opset: int, type_name: str, elems: set[int]) -> int:
    """The type in which an operator may run in the place of the given ones."""
    op = node.op_type
    allowed = schemas.allowed_types(op, opset)[0][type_name]
    for candidate in _candidates(op, elems):
        fits = all(elem == candidate or candidate in HOLDERS.get(elem, ()) for elem in elems)
        fits = fits or (op in WRAPPED and candidate in (T.INT32, T.INT64))
        if fits and schemas.type_name(candidate) in allowed and _castable(opset, {*elems, candidate}):
            return candidate
    words = ", ".join(schemas.type_name(elem) for elem in sorted(elems))
    raise Refuse(f"{op} does not take {words} at opset {opset}, and no other type gives the same result")


def _candidates(op: str, elems: set[int]) -> Sequence[int]:
    floating = all(elem in (T.FLOAT16, T.BFLOAT16, T.FLOAT) for elem in elems)
    if op in MOVING:
        first = next(iter(elems))
        return (*sorted(elems), *HOLDERS.get(first, ()))
    if op in ROUNDED and floating:
        return (T.FLOAT,)
    if op in WRAPPED and not floating:
        first = next(iter(elems))
        return [c for c in HOLDERS.get(first, ()) if c in (T.INT32, T.INT64)]
    return ()


def _castable(opset: int, elems: set[int]) -> bool:
    allowed = schemas.allowed_types("Cast", opset)[0]["T1"]
    return all(schemas.type_name(elem) in allowed for elem in elems)


def _sandwich(site: Site, carriers: dict[str, int]) -> None:
    """Cast the inputs in, run the operator, cast the outputs of the same type name back."""
    node, opset = site.node, site.opset
    _, names, _ = schemas.allowed_types(node.op_type, opset)
    inputs, before = [], dict[str, int]()
    for index, value in enumerate(node.input):
        type_name = names[min(index, len(names) - 1)]
        key = type_name if type_name in carriers else f"{type_name}@{index}"
        if value and key in carriers and site.scope.dtype(value) != carriers[key]:
            before.setdefault(type_name, site.scope.dtype(value))
            inputs.append(site.cast(value, carriers[key]))
        else:
            inputs.append(value)
    written = site.same(inputs)
    found = schemas.schema(node.op_type, opset)
    assert found is not None
    for index, output in enumerate(node.output):
        formal = found.outputs[min(index, len(found.outputs) - 1)]
        if output and formal.type_str in before:
            wanted = site.scope.dtype(output) or before[formal.type_str]
            written.output[index] = site.names.fresh(f"{site.stem}/wide")
            site.emit("Cast", [written.output[index]], [output], to=wanted)


def require_same_types(nodes: Sequence[NodeProto], version: int, target: int) -> None:
    """Where types are not known (in local functions), refuse operators that take fewer of them at the target."""
    for node in nodes:
        if not schemas.main_domain(node.domain) or node.op_type == "Constant":
            continue
        new, old = schemas.allowed_types(node.op_type, version)[0], schemas.allowed_types(node.op_type, target)[0]
        if any(types - old.get(name, types) for name, types in new.items()):
            raise Refuse(f"the types of {node.op_type} '{node.name}' are not known")


def elem_name(elem: int) -> str:
    """``float`` for ``TensorProto.FLOAT``, for messages."""
    return str(TensorProto.DataType.Name(elem)).lower()
