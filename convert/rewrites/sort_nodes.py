"""Nodes in an order in which every value is made before it is read."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from onnx import GraphProto, ModelProto, NodeProto

from convert.rewrites.base import Avoided, Rewrite
from convert.walking import subgraphs


def run(model: ModelProto, argument: str) -> list[str]:
    """Sort every graph; says which nodes moved. A graph whose nodes read each other in a ring stays."""
    return _sorted(model.graph)


def _sorted(graph: GraphProto) -> list[str]:
    moved = [name for node in graph.node for inner in subgraphs(node) for name in _sorted(inner)]
    order = _order(graph)
    if order == list(range(len(graph.node))):
        return moved
    nodes = []
    for place, index in enumerate(order):
        copy = NodeProto()
        copy.CopyFrom(graph.node[index])
        nodes.append(copy)
        if place != index:
            moved.append(copy.name or next(iter(copy.output), copy.op_type))
    del graph.node[:]
    graph.node.extend(nodes)
    return moved


def _order(graph: GraphProto) -> list[int]:
    """Node numbers in a valid order that is as near to the old one as can be."""
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for index, node in enumerate(graph.node):
        sorter.add(index, *sorted({makers[n] for n in _reads(node) if n in makers and makers[n] != index}))
    order: list[int] = []
    try:
        sorter.prepare()
    except CycleError:
        return list(range(len(graph.node)))
    ready: list[int] = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()])
        order.append(ready[0])
        sorter.done(ready.pop(0))
    return order


def _reads(node: NodeProto) -> set[str]:
    names = set(node.input)
    for graph in subgraphs(node):
        for inner in graph.node:
            names |= _reads(inner)
        names |= {info.name for info in graph.output}
    return names


RULE = Rewrite(
    name="sort-nodes",
    title="nodes in topological order",
    avoids=(Avoided(op="*", fact="unsorted"),),
    run=run,
    repairs=True,
)
