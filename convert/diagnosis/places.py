"""Where in the user's model a compiler failed: the graph's nodes, their PyTorch modules, and a cut of them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from convert.backends.base import Diagnosis
from convert.values import OnnxGraph, TensorSpec

SHOWN = 5
TYPED = 16
"""Nodes of an operator type that are named where the log names the type only."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes a log speaks of, as the graph calls them (as the log does where the graph has none such).

    ``modules`` are paths in the PyTorch model by node, where they are known. ``cut`` is a model of those nodes alone.
    """

    nodes: tuple[str, ...] = ()
    modules: dict[str, str] = {}
    cut: str = ""
    cut_inputs: str = ""

    def words(self) -> str:
        """The nodes in brackets, for the end of an error's line; empty where there are none."""
        if not self.nodes:
            return ""
        named = [
            f"{node} in module {self.modules[node]}" if self.modules.get(node) else node for node in self.nodes[:SHOWN]
        ]
        return f" (nodes: {', '.join(named)}{' …' if len(self.nodes) > SHOWN else ''})"


def place_of(diagnosis: Diagnosis, graph: OnnxGraph, folder: Path) -> Place:
    """Find a diagnosis in the graph, and cut its nodes out into ``folder``. A log that names nothing gives nothing."""
    if not diagnosis.nodes and not diagnosis.ops:
        return Place()
    from convert.diagnosis.cut import FAULTS, cut_around, inputs_of
    from convert.diagnosis.names import bare_op, real_names
    from convert.graphs import read_model
    from convert.walking import nodes_of
    from op_registry.graph import module_path

    try:
        nodes = list(nodes_of(read_model(graph.model_path)))
    except FAULTS:
        return Place(nodes=diagnosis.nodes)
    real = real_names(diagnosis.nodes, {node.name for node in nodes if node.name})
    if not real:
        # Tools that put a domain before a type part them by a dot or a colon.
        ops = {re.split("[.:]", bare_op(op))[-1].lower() for op in diagnosis.ops}
        real = tuple(node.name for node in nodes if node.name and node.op_type.lower() in ops)[:TYPED]
    if not real:
        return Place(nodes=diagnosis.nodes)
    modules = {node.name: path for node in nodes if node.name in real and (path := module_path(node))}
    cut = cut_around(graph, real, folder)
    inputs = ", ".join(_spelled(spec) for spec in inputs_of(cut)) if cut else ""
    return Place(nodes=real, modules=modules, cut=str(cut or ""), cut_inputs=inputs)


def _spelled(spec: TensorSpec) -> str:
    return f"{spec.name}:{spec.dtype}[{','.join(map(str, spec.shape))}]"
