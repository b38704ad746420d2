"""Walking over a graph and what is inside it: bodies of If, Loop and Scan, and local functions.

A body is what an attribute holds, whatever type it says that it is of: ONNX's own readers of external data look alike.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """The graphs in a node's attributes, in order."""
    found: list[GraphProto] = []
    for attribute in node.attribute:
        if attribute.HasField("g"):
            found.append(attribute.g)
        found.extend(attribute.graphs)
    return found


def graphs_in(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and every graph in its nodes, outermost first."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from graphs_in(inner)


def graphs_of(model: ModelProto) -> Iterator[GraphProto]:
    """The main graph and every subgraph of its nodes and of local functions, outermost first."""
    yield from graphs_in(model.graph)
    for function in model.functions:
        for node in function.node:
            for inner in subgraphs(node):
                yield from graphs_in(inner)


def walk(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """All nodes of a graph or a local function in order, those of a node's bodies behind it."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from walk(inner)


def nodes_of(model: ModelProto) -> Iterator[NodeProto]:
    """Every node, those of bodies and of local functions included, graph by graph."""
    for graph in graphs_of(model):
        yield from graph.node
    for function in model.functions:
        yield from function.node
