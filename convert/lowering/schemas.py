"""Questions asked of ONNX's operator schemas, remembered."""

from __future__ import annotations

from functools import cache

import onnx
from onnx.defs import OpSchema

NEWEST = onnx.defs.onnx_opset_version()
OLDEST_TARGET = 11


def main_domain(domain: str) -> bool:
    """Whether a domain is ONNX's own."""
    return domain in ("", "ai.onnx")


@cache
def schema(op: str, opset: int, domain: str = "") -> OpSchema | None:
    """The schema of an operator in an opset, or None where it does not exist or is deprecated there."""
    if not onnx.defs.has(op, opset, domain):
        return None
    found = onnx.defs.get_schema(op, opset, domain)
    return None if found.deprecated else found


@cache
def since(op: str, opset: int) -> int:
    """The version of an operator that an opset uses, deprecated ones included; 0 where it does not exist."""
    return int(onnx.defs.get_schema(op, opset, "").since_version) if onnx.defs.has(op, opset, "") else 0


@cache
def allowed_types(op: str, opset: int) -> tuple[dict[str, frozenset[str]], tuple[str, ...], bool]:
    """Types allowed per type name, the type name of each input, and whether the last input repeats."""
    found = schema(op, opset)
    if found is None:
        return {}, (), False
    constraints = {c.type_param_str: frozenset(c.allowed_type_strs) for c in found.type_constraints}
    names = tuple(i.type_str for i in found.inputs)
    for name in names:
        constraints.setdefault(name, frozenset([name]))
    repeats = bool(found.inputs) and found.inputs[-1].option == OpSchema.FormalParameterOption.Variadic
    return constraints, names, repeats


@cache
def homogeneous(op: str, opset: int) -> bool:
    """Whether a repeating last input takes one type for all."""
    found = schema(op, opset)
    return found is None or not found.inputs or bool(found.inputs[-1].is_homogeneous)


@cache
def type_name(elem: int) -> str:
    """``tensor(float)`` for ``TensorProto.FLOAT``."""
    return f"tensor({onnx.TensorProto.DataType.Name(elem).lower()})"


def ir_version(opset: int) -> int:
    """The lowest IR version that ONNX pairs with an opset; 3 for the opsets before its table begins."""
    if opset < 7:
        return 3
    return int(onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)]))
