"""Bringing a graph into the form that every later stage relies on.

Names of inputs and outputs are the user's, every output is a value of its own, nothing of the machine that exported
(stack traces, paths) is left, nodes have names, and nothing stands in the proto that isn't needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from onnx import GraphProto, ModelProto, helper

from convert.graphs import PRODUCER
from convert.values import TensorSpec
from convert.walking import graphs_of, nodes_of

KEPT_METADATA = ("namespace", "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy")
"""What torch's exporter tells of a node that is about the model, not about the exporting machine."""


class NameMismatch(Exception):
    """The graph's inputs can't be matched with the model's."""


def normalize_export(model: ModelProto, inputs: Sequence[TensorSpec], outputs: Sequence[str]) -> None:
    """Give an exported graph the model's own input names and dimensions, and the output names given (in place).

    Raises :class:`NameMismatch` where inputs or outputs can't be told apart.
    """
    strip_origin(model)
    _only_real_inputs(model)
    matched = match_inputs([value.name for value in model.graph.input], [spec.name for spec in inputs])
    name_dimensions(model, matched, {spec.name: spec for spec in inputs})
    rename_values(model, matched)
    name_outputs(model, outputs)
    name_nodes(model)


def _only_real_inputs(model: ModelProto) -> None:
    """Below opset 9 an exporter lists the weights among the inputs."""
    filled = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in filled]
    if len(kept) < len(model.graph.input):
        model.ir_version = max(model.ir_version, 4)
        inputs = [type(value).FromString(value.SerializeToString()) for value in kept]
        del model.graph.input[:]
        model.graph.input.extend(inputs)


def strip_origin(model: ModelProto) -> None:
    """Drop what tells of the machine and the moment (stack traces, doc strings, foreign metadata); unused imports."""
    drop_unused_imports(model)
    model.producer_name, model.producer_version = PRODUCER, ""
    model.doc_string = ""
    for graph in graphs_of(model):
        graph.doc_string = ""
        for value in (*graph.input, *graph.output, *graph.value_info):
            value.doc_string = ""
            del value.metadata_props[:]
        for tensor in graph.initializer:
            tensor.doc_string = ""
    for node in nodes_of(model):
        node.doc_string = ""
        kept = [(entry.key, entry.value) for entry in node.metadata_props if entry.key in KEPT_METADATA]
        del node.metadata_props[:]
        for key, value in kept:
            node.metadata_props.add(key=key, value=value)


def drop_unused_imports(model: ModelProto) -> None:
    """Drop opset imports of domains that no node and no function has: ATC up to 9.2.0-beta.1 takes one import only."""
    used = {"", "ai.onnx"} | {node.domain for node in nodes_of(model)} | {own.domain for own in model.functions}
    for entry in [entry for entry in model.opset_import if entry.domain not in used]:
        model.opset_import.remove(entry)


def match_inputs(found: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """Which graph input is which input of the model: by name as exporters spell it, else by position."""
    by_spelling = {_spelled(name): name for name in wanted}
    if all(_spelled(name) in by_spelling for name in found):
        return {name: by_spelling[_spelled(name)] for name in found}
    if len(found) == len(wanted):
        return dict(zip(found, wanted, strict=True))
    raise NameMismatch(f"the graph has the inputs {', '.join(found)}, the model {', '.join(wanted)}")


def _spelled(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")


def name_dimensions(model: ModelProto, matched: Mapping[str, str], specs: Mapping[str, TensorSpec]) -> None:
    """Call symbolic dimensions what the user calls them, wherever the exporter's names stand."""
    names: dict[str, str] = {}
    for value in model.graph.input:
        spec = specs[matched[value.name]]
        for dim, wanted in zip(value.type.tensor_type.shape.dim, spec.shape, strict=False):
            if dim.dim_param and isinstance(wanted, str):
                names[dim.dim_param] = wanted
    if not any(old != new for old, new in names.items()):
        return
    for graph in graphs_of(model):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_param = _renamed_dimension(dim.dim_param, names)


def _renamed_dimension(text: str, names: Mapping[str, str]) -> str:
    """A dimension may be an expression of others: ``2*s77 + 1``."""
    return re.sub(r"[A-Za-z_][A-Za-z_0-9]*", lambda match: names.get(match[0], match[0]), text)


def rename_values(model: ModelProto, names: Mapping[str, str]) -> None:
    """Rename values everywhere; a value that already has one of the new names steps aside."""
    changed = {old: new for old, new in names.items() if old != new}
    if not changed:
        return
    taken = {value for node in nodes_of(model) for value in (*node.input, *node.output)}
    taken |= {value.name for graph in graphs_of(model) for value in (*graph.input, *graph.initializer)}
    for new in list(changed.values()):
        if new in taken and new not in changed:
            changed[new] = _unused(new, taken | set(changed.values()))
    for graph in graphs_of(model):
        _rename_in(graph, changed)


def _rename_in(graph: GraphProto, names: Mapping[str, str]) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        if value.name in names:
            value.name = names[value.name]
    for sparse in graph.sparse_initializer:
        if sparse.values.name in names:
            sparse.values.name = names[sparse.values.name]
    for node in graph.node:
        for values in (node.input, node.output):
            for index, name in enumerate(values):
                if name in names:
                    values[index] = names[name]


def name_outputs(model: ModelProto, wanted: Sequence[str]) -> None:
    """Give outputs their names by position. One that is an input, a weight or named twice gets an Identity."""
    graph = model.graph
    if len(graph.output) != len(wanted):
        raise NameMismatch(f"the graph has {len(graph.output)} outputs, the model gives {len(wanted)}")
    produced = {name for node in graph.node for name in node.output}
    first: dict[str, int] = {}
    for index, value in enumerate(graph.output):
        if value.name in produced:
            first.setdefault(value.name, index)
    rename_values(model, {old: wanted[index] for old, index in first.items()})
    own = set(first.values())
    taken = {name for node in graph.node for name in node.output} | {value.name for value in graph.input}
    for index, (value, name) in enumerate(zip(graph.output, wanted, strict=True)):
        if index in own:
            continue
        final = name if name not in taken else _unused(name, taken)
        taken.add(final)
        graph.node.append(helper.make_node("Identity", [value.name], [final], name=f"Identity_{final}"))
        value.name = final


def name_nodes(model: ModelProto) -> None:
    """Give every node a name of its own: ONNX Runtime and ATC refuse a graph where two share one."""
    taken: set[str] = set()
    for node in nodes_of(model):
        if not node.name or node.name in taken:
            node.name = _unused(node.name or node.op_type, taken)
        taken.add(node.name)


def _unused(name: str, taken: set[str]) -> str:
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"
