"""Element types that follow from an operator's definition, for values that the graph itself says nothing of.

Most operators give an output the type of an input, or always the same type; ONNX's schemas say which. That is enough
for most graphs and costs a look-up per node. What it can't tell stays unknown, which refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from op_registry.graph import MAIN_DOMAINS, Scope, attribute_value, type_names

Plan = tuple[tuple[int, str], ...]
"""For each output: the number of the input whose type it has (-1: none) and the fixed type (empty: none)."""

SPECIAL = frozenset(["Cast", "EyeLike", "RandomNormal", "RandomUniform", "Constant", "ConstantOfShape"])
"""Operators whose output type stands in an attribute."""
TYPED_BY_ATTRIBUTE = {"Cast": "to", "EyeLike": "dtype", "RandomNormal": "dtype", "RandomUniform": "dtype"}
VALUE_ATTRIBUTES = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}


@lru_cache(maxsize=4096)
def output_plan(domain: str, op: str, opset: int) -> Plan:
    """How the types of an operator's outputs follow from its inputs; empty where they don't."""
    from onnx import defs

    try:
        schema = defs.get_schema(op, opset, "" if domain in MAIN_DOMAINS else domain)
    except (defs.SchemaError, TypeError):
        # TypeError: an opset beyond what any operator set counts to.
        return ()
    fixed = {item.type_param_str: list(item.allowed_type_strs) for item in schema.type_constraints}
    plan: list[tuple[int, str]] = []
    for output in schema.outputs:
        same = next((i for i, formal in enumerate(schema.inputs) if formal.type_str == output.type_str), -1)
        only = fixed.get(output.type_str, [output.type_str])
        plan.append((same, plain(only[0]) if same < 0 and len(only) == 1 else ""))
    if schema.outputs and schema.outputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic:
        plan += [plan[-1]] * MOST_OUTPUTS
    return tuple(plan)


MOST_OUTPUTS = 64
"""So many outputs of a variadic operator (Split) get a type."""


def possible_types(nodes: Iterable[Any], pairs: Sequence[tuple[str, str]], scope: Scope, opset: int) -> set[str]:
    """Every element type that may occur in a graph, without following them from node to node."""
    plans = {name: output_plan(*name, opset) for name in set(pairs)}
    strangers = any(not plan and name[1] not in SPECIAL for name, plan in plans.items())
    found = scope.present(all_stated=strangers) | {plan[0][1] for plan in plans.values() if plan}
    looked_at = {name for name, plan in plans.items() if name[1] in SPECIAL or any(fixed for _, fixed in plan[1:])}
    if looked_at:
        trial = Scope(scope)
        for node, name in zip(nodes, pairs, strict=True):
            if name not in looked_at:
                continue
            if name[1] in SPECIAL:
                propagate(node, trial, ())
            else:
                found.update(fixed for _, fixed in plans[name][1 : len(node.output)])
        found |= set(trial.types.values())
    return found - {""}


def follow_types(nodes: Iterable[Any], pairs: Iterable[tuple[str, str]], scope: Scope, opset: int) -> list[str]:
    """Give the outputs of all nodes the types that follow, in the order of the graph; the type of each first input."""
    names = type_names()
    scope.types.update({value: names.get(number, "") for value, number in scope.numbers.items() if number})
    types, known = scope.types, scope.types.get
    firsts: list[str] = []
    tell = firsts.append
    plans = {name: output_plan(*name, opset) for name in set(pairs)}
    usual = {name for name, plan in plans.items() if plan and plan[0][0] == 0 and name[1] not in SPECIAL}
    single = {name for name in usual if len(plans[name]) == 1}
    for node, name in zip(nodes, pairs, strict=True):
        try:
            value = node.input[0]
        except IndexError:
            first = ""
        else:
            first = known(value) or scope.dtype(value)
        tell(first)
        if first and (outputs := node.output) and (name in single or (name in usual and len(outputs) == 1)):
            types[outputs[0]] = first
        else:
            propagate(node, scope, plans[name])
    return firsts


def plain(text: str) -> str:
    """``tensor(float)`` → ``float32``."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(name, name)


def propagate(node: Any, scope: Scope, plan: Plan) -> None:
    """Give the outputs of a node a type where one follows; where none does, the graph's own word is asked for later."""
    types, outputs = scope.types, node.output
    if not outputs:
        return
    op = node.op_type
    if op in TYPED_BY_ATTRIBUTE:
        _by_attribute(node, scope, TYPED_BY_ATTRIBUTE[op])
    elif op in ("Constant", "ConstantOfShape"):
        _by_value(node, scope)
    elif plan:
        inputs = node.input
        for name, (source, fixed) in zip(outputs, plan, strict=False):
            if fixed:
                types[name] = fixed
            elif 0 <= source < len(inputs) and (dtype := scope.dtype(inputs[source])):
                types[name] = dtype


def _by_attribute(node: Any, scope: Scope, name: str) -> None:
    for item in node.attribute:
        if item.name == name:
            number = attribute_value(item)
            scope.types[node.output[0]] = type_names().get(number, "") if isinstance(number, int) else ""


def _by_value(node: Any, scope: Scope) -> None:
    dtype = "float32" if node.op_type == "ConstantOfShape" else ""
    for item in node.attribute:
        if item.name == "value" and item.type == 4:
            dtype = type_names().get(item.t.data_type, "")
        elif item.name in VALUE_ATTRIBUTES:
            dtype = VALUE_ATTRIBUTES[item.name]
    if dtype:
        scope.types[node.output[0]] = dtype
