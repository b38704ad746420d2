"""Which element types ONNX Runtime's CPU kernels take, asked of the installed ONNX Runtime itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from onnx import defs
from onnx.defs import OpSchema
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema, get_all_opkernel_def

CPU = "CPUExecutionProvider"
NEVER = (1 << 31) - 1
"""The end of a version range that has none."""

Constraints = Mapping[str, frozenset[str]]


@cache
def schema_of(op: str, domain: str, opset: int) -> OpSchema | None:
    """The schema of an operator in an opset; None for operators that ONNX does not define."""
    if not defs.has(op, opset, domain):
        return None
    found = defs.get_schema(op, opset, domain)
    return None if found.deprecated else found


@lru_cache(maxsize=1)
def _elsewhere() -> Mapping[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]]:
    table: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {}
    for schema in sorted(get_all_operator_schema(), key=lambda schema: schema.since_version):
        if schema.domain not in ("", "ai.onnx"):
            taken, given = ([one.typeStr for one in formals] for formals in (schema.inputs, schema.outputs))
            table[schema.domain, schema.name] = tuple(taken), tuple(given)
    return table


def types_elsewhere(op: str, domain: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The types of inputs and outputs of an operator that ONNX Runtime alone defines; empty where it does not."""
    return _elsewhere().get((domain, op), ((), ()))


@lru_cache(maxsize=1)
def _kernels() -> Mapping[tuple[str, str], tuple[tuple[int, int, Constraints], ...]]:
    table: dict[tuple[str, str], list[tuple[int, int, Constraints]]] = {}
    for kernel in get_all_opkernel_def():
        if kernel.provider != CPU:
            continue
        first, last = kernel.version_range
        constraints = {name: frozenset(types) for name, types in kernel.type_constraints.items()}
        table.setdefault((kernel.domain or "", kernel.op_name), []).append((first, last, constraints))
    return {key: tuple(rows) for key, rows in table.items()}


@cache
def _kernels_since(op: str, domain: str, since: int) -> tuple[Constraints, ...]:
    """The constraints of the kernels that serve an operator's version, by ONNX Runtime's own rule."""
    rows = _kernels().get((domain, op), ())
    return tuple(c for first, last, c in rows if first == since or (last != NEVER and first <= since <= last))


def has_kernel(schema: OpSchema, types: Mapping[str, str]) -> bool:
    """Whether a CPU kernel takes these types. An operator that ONNX Runtime expands into others has none.

    Types are given by the schema's type parameters (``T`` → ``tensor(float)``).
    """
    kernels = _kernels_since(schema.name, schema.domain, schema.since_version)
    return any(all(types[name] in taken for name, taken in kernel.items() if name in types) for kernel in kernels)
