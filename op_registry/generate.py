"""The support table of ONNX Runtime's CPU provider, read from the installed package.

``python -m op_registry.generate`` writes it to ``data/onnxruntime/ops.csv``. Where another version is installed than
the one that was written down, ``support.load_support`` reads the installed one instead, so that the table is always
true of what runs.

A kernel serves a node where its range of versions holds the version at which the node's operator last changed. A
kernel whose range has no end serves its first version only; this is ONNX Runtime's own rule. An operator without a
kernel is taken where ONNX defines it as a function: ONNX Runtime expands it.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from op_registry.tables import DATA, format_opsets
from op_registry.values import OpRow

NO_END = 2**31 - 1
DOMAINS = ("", "ai.onnx.ml", "com.microsoft")
COLUMNS = ("domain", "op", "state", "grade", "opsets", "types", "limits", "source")
TYPE_NAMES = {"float": "float32", "double": "float64"}
AT_LOAD = frozenset(["Constant"])
"""Operators that become initializers when a model is loaded."""
HOW = {
    "kernel": ("kernel registry of the CPU provider", ""),
    "function": ("ONNX function body", "no kernel of its own: expanded into its function body"),
    "load": ("ONNX Runtime model loader", "turned into an initializer"),
}

Types = dict[str, frozenset[str]]


def installed_rows() -> tuple[list[OpRow], int]:
    """The rows of the installed ONNX Runtime, sorted, and the newest opset that it loads."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    schemas = [s for s in state.get_all_operator_schema() if s.domain in DOMAINS]
    newest = {domain: max(s.since_version for s in schemas if s.domain == domain) for domain in DOMAINS}
    kernels: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for kernel in state.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider":
            kernels[kernel.domain, kernel.op_name].append(kernel)
    by_op: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for schema in schemas:
        by_op[schema.domain, schema.name].append(schema)
    rows: list[OpRow] = []
    for (domain, name), found in sorted(by_op.items()):
        rows.extend(_rows_of(sorted(found, key=lambda s: s.since_version), kernels[domain, name], newest[domain]))
    return rows, newest[""]


def _rows_of(schemas: list[Any], kernels: list[Any], newest: int) -> Iterable[OpRow]:
    """One row for each stretch of opsets with the same kernels."""
    merged: dict[tuple[str, str], tuple[Types, set[int]]] = {}
    for index, schema in enumerate(schemas):
        if schema.deprecated:
            continue
        until = schemas[index + 1].since_version if index + 1 < len(schemas) else newest + 1
        opsets = set(range(schema.since_version, until))
        fitting = [kernel for kernel in kernels if _serves(kernel.version_range, schema.since_version)]
        if fitting:
            types, how = _types(schema, fitting), "kernel"
        elif schema.name in AT_LOAD and not schema.domain:
            types, how = {}, "load"
        elif _is_function(schema):
            types, how = {}, "function"
        else:
            continue
        merged.setdefault((how, format_types(types)), (types, set()))[1].update(opsets)
    for (how, _), (types, opsets) in sorted(merged.items(), key=lambda item: min(item[1][1])):
        yield _row(schemas[0], how, types, frozenset(opsets))


def _row(schema: Any, how: str, types: Types, opsets: frozenset[int]) -> OpRow:
    source, limits = HOW[how]
    return OpRow(
        domain=schema.domain,
        op=schema.name,
        opsets=opsets,
        state="ok",
        grade="read",
        source=source,
        types=types,
        lacking="refused",
        limits=limits,
    )


def _serves(span: tuple[int, int], since: int) -> bool:
    start, end = span
    return start == since or (start < since <= end and end != NO_END)


def _is_function(schema: Any) -> bool:
    import onnx.defs

    try:
        known = onnx.defs.get_schema(schema.name, schema.since_version, schema.domain)
    except onnx.defs.SchemaError:
        return False
    return bool(getattr(known, "has_function", False) or getattr(known, "has_context_dependent_function", False))


def _types(schema: Any, kernels: list[Any]) -> Types:
    """Element types by the first input (``0``) or output (``o0``) that each type parameter binds.

    A parameter whose kernels take every type that ONNX allows isn't written: there is nothing to ask.
    """
    taken: dict[str, set[str]] = defaultdict(set)
    for kernel in kernels:
        for name, types in kernel.type_constraints.items():
            taken[name].update(plain_type(text) for text in types)
    places: Types = {}
    bound: set[str] = set()
    allowed = {item.type_param_str: set(map(plain_type, item.allowed_type_strs)) for item in schema.type_constraints}
    formals = [(str(i), p) for i, p in enumerate(schema.inputs)] + [(f"o{i}", p) for i, p in enumerate(schema.outputs)]
    for place, parameter in formals:
        for name in (parameter.typeStr, parameter.name):
            if name in taken and name not in bound:
                bound.add(name)
                if not allowed.get(parameter.typeStr, {plain_type(parameter.typeStr)}) <= taken[name]:
                    places[place] = frozenset(taken[name])
    return places


def plain_type(text: str) -> str:
    """``tensor(float)`` as ``float32``; sequences and optionals stay as ONNX writes them, without spaces."""
    match = re.fullmatch(r"tensor\((\w+)\)", text)
    return TYPE_NAMES.get(match[1], match[1]) if match else text.replace(" ", "")


def format_types(types: Types) -> str:
    """Types as a cell: ``0=float32|float64 1=int64``."""
    return " ".join(f"{place}={'|'.join(sorted(names))}" for place, names in types.items())


def table_text(rows: Iterable[OpRow]) -> str:
    """The rows as ``ops.csv``."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        opsets = format_opsets(row.opsets)
        types = format_types(row.types)
        writer.writerow([row.domain, row.op, row.state, row.grade, opsets, types, row.limits, row.source])
    return stream.getvalue()


def main() -> None:
    """Write the table and the version that it is of."""
    import onnxruntime

    rows, newest = installed_rows()
    folder = DATA / "onnxruntime"
    (folder / "ops.csv").write_text(table_text(rows), encoding="utf-8")
    version = f'version = "{onnxruntime.__version__}"\nnewest_opset = {newest}\n'
    (folder / "measured.toml").write_text(version, encoding="utf-8")


if __name__ == "__main__":
    main()
