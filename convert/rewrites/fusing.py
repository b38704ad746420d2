"""Patterns of nodes as one node, by onnxscript's rewriter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir
from onnx import ModelProto

if TYPE_CHECKING:
    from onnxscript.rewriter import pattern


def fused(model: ModelProto, rules: pattern.RewriteRuleSet, op: str) -> list[str]:
    """Apply rules that write an operator; in place. Says what the new nodes make."""
    try:
        graph = ir.from_proto(model)
        before = {id(node) for node in graph.graph.all_nodes() if node.op_type == op}
    except (RuntimeError, TypeError):
        # A graph that onnx_ir can't read (nodes out of order, a value made twice) has no pattern to find.
        return []
    if not rules.apply_to_model(graph):
        return []
    made = [node for node in graph.graph.all_nodes() if node.op_type == op and id(node) not in before]
    model.CopyFrom(ir.to_proto(graph))
    return [node.outputs[0].name or node.name or op for node in made]
