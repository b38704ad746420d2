"""Nodes of a graph in an order in which each comes after what it needs."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from onnx import GraphProto, NodeProto

from convert.walking import graphs_in


def in_order(graph: GraphProto) -> list[NodeProto]:
    """Copies of the nodes of a graph, sorted where they are not; nodes that already stand right keep their order.

    A cycle can't be sorted: its nodes come last, as they stood.
    """
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    needs = _needs(nodes)
    if _is_sorted(needs):
        return nodes
    users: list[list[int]] = [[] for _ in nodes]
    for number, needed in enumerate(needs):
        for maker in needed:
            users[maker].append(number)
    ready = [number for number, needed in enumerate(needs) if not needed]
    order: list[int] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for user in users[number]:
            needs[user].discard(number)
            if not needs[user]:
                heapq.heappush(ready, user)
    placed = set(order)
    return [nodes[number] for number in (*order, *(n for n in range(len(nodes)) if n not in placed))]


def sort_nodes(graph: GraphProto) -> None:
    """Put the nodes of a graph in order (in place)."""
    if _is_sorted(_needs(graph.node)):
        return
    nodes = in_order(graph)
    del graph.node[:]
    graph.node.extend(nodes)


def _needs(nodes: Sequence[NodeProto]) -> list[set[int]]:
    """Per node, the numbers of the nodes whose outputs it reads."""
    makers = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    return [{makers[name] for name in _needed(node) if name in makers} - {number} for number, node in enumerate(nodes)]


def _is_sorted(needs: Sequence[set[int]]) -> bool:
    return all(maker < number for number, needed in enumerate(needs) for maker in needed)


def _needed(node: NodeProto) -> set[str]:
    """Names that a node reads, those that its bodies take from around them included."""
    needed = set(node.input)
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
            for inner in graphs_in(body):
                needed |= {name for one in inner.node for name in one.input}
                needed |= {value.name for value in inner.output}
    return needed
