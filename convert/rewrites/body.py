"""The body of a Loop or Scan written out once, with names of its own."""

from __future__ import annotations

from onnx import GraphProto, NodeProto

from convert.lowering.site import Site
from convert.walking import subgraphs


class Round:
    """One round: the body's nodes with its inputs bound to ``names``."""

    def __init__(self, site: Site, body: GraphProto, names: dict[str, str]) -> None:
        self.site, self.body, self.names = site, body, names
        for tensor in body.initializer:
            self.names[tensor.name] = site.op("Constant", value=tensor)
        for node in body.node:
            for name in node.output:
                if name:
                    self.names[name] = site.names.fresh(f"{site.stem}/{name}")

    def results(self) -> list[str]:
        """Write the nodes, and return the names of the body's outputs."""
        self.site.nodes.extend(self._copy(node, self.names) for node in self.body.node)
        return [self.names.get(info.name, info.name) for info in self.body.output]

    def _copy(self, node: NodeProto, names: dict[str, str]) -> NodeProto:
        copy = NodeProto()
        copy.CopyFrom(node)
        copy.name = self.site.names.fresh(f"{self.site.stem}/{node.op_type}")
        for field in (copy.input, copy.output):
            for index, name in enumerate(field):
                field[index] = names.get(name, name)
        for graph in subgraphs(copy):
            self._inside(graph, names)
        return copy

    def _inside(self, graph: GraphProto, names: dict[str, str]) -> None:
        own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
        own |= {name for node in graph.node for name in node.output}
        inner = {name: new for name, new in names.items() if name not in own}
        nodes = [self._copy(node, inner) for node in graph.node]
        del graph.node[:]
        graph.node.extend(nodes)
        for info in graph.output:
            info.name = inner.get(info.name, info.name)
