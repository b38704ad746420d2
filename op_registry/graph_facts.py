"""Facts of a graph as a whole, for the rules on ``(graph)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def graph_facts(model: Any, operators: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Numbers that rules may ask for; ``operators`` counts the graph's nodes by domain and operator.

    imports: opset imports; plain-nodes: nodes of the empty domain; spelled-nodes: nodes whose domain is written
    ``ai.onnx``; same-names: nodes whose name another node has; inputs and outputs of the graph (initializers aren't
    inputs); empty-dims: dimensions of size 0 in inputs; functions: local functions.
    """
    graph = model.graph
    names = [name for node in graph.node if (name := node.name)]
    inputs = list(graph.input)
    if inputs:
        initializers = {tensor.name for tensor in graph.initializer}
        inputs = [info for info in inputs if info.name not in initializers]
    dims = [dim for info in inputs for dim in info.type.tensor_type.shape.dim]
    return {
        "imports": len(model.opset_import),
        "plain-nodes": sum(count for (domain, _), count in operators.items() if not domain),
        "spelled-nodes": sum(count for (domain, _), count in operators.items() if domain == "ai.onnx"),
        "spelled-imports": sum(1 for item in model.opset_import if item.domain == "ai.onnx"),
        "same-names": len(names) - len(set(names)),
        "inputs": len(inputs),
        "outputs": len(graph.output),
        "empty-dims": sum(1 for dim in dims if dim.HasField("dim_value") and dim.dim_value == 0),
        "functions": len(model.functions),
    }
