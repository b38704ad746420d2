"""The types that a node's schema and its inputs give it; shared by the caster and the forecast."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import NodeProto
from onnx.defs import OpSchema

from convert.precision.kernels import types_elsewhere
from convert.precision.policy import F32
from convert.precision.scope import Scope, type_text

TYPE_ATTRIBUTES = ("to", "dtype", "output_datatype", "output_dtype")


def plain_domain(domain: str) -> str:
    """The domain as schemas are asked for: empty for ONNX's own."""
    return "" if domain == "ai.onnx" else domain


def formals(names: Sequence[str], types: Sequence[str]) -> list[tuple[str, str]]:
    """Each name with the type text of its formal parameter; a repeating last one serves all that follow."""
    last = types[-1] if types else ""
    return [(name, types[index] if index < len(types) else last) for index, name in enumerate(names)]


def bound_types(node: NodeProto, schema: OpSchema, scope: Scope) -> dict[str, str]:
    """The original types of the type parameters, where all that is known of them agrees."""
    bound: dict[str, str] = {}
    variables = {constraint.type_param_str for constraint in schema.type_constraints}
    unknown: set[str] = set()
    for name, formal in formals(node.input, [formal.type_str for formal in schema.inputs]):
        if name and formal in variables:
            kind = scope.type_of(name)
            if not kind or bound.setdefault(formal, kind) != kind:
                unknown.add(formal)
    if schema.outputs and schema.outputs[0].type_str in variables - set(bound) - unknown:
        kind = _type_by_attribute(node)
        if kind:
            bound[schema.outputs[0].type_str] = kind
    return {name: kind for name, kind in bound.items() if name not in unknown}


def output_types_elsewhere(node: NodeProto, scope: Scope) -> dict[str, str]:
    """The types of the outputs of a node that ONNX does not define: as the graph says, else ONNX Runtime's schema."""
    taken, given = types_elsewhere(node.op_type, node.domain)
    bound: dict[str, str] = {}
    for name, formal in formals(node.input, taken):
        if name and formal and scope.type_of(name):
            bound.setdefault(formal, scope.type_of(name))
    found = {}
    for name, formal in formals(node.output, given):
        if name:
            told = formal if formal.startswith("tensor(") else bound.get(formal, "")
            found[name] = scope.declared.get(name, "") or told
    return found


def _type_by_attribute(node: NodeProto) -> str:
    if node.op_type == "ConstantOfShape":
        return next((type_text(a.t.data_type) for a in node.attribute if a.name == "value"), F32)
    number = next((a.i for a in node.attribute if a.name in TYPE_ATTRIBUTES), 0)
    return type_text(number) if number else ""
