"""A Loop with a known number of rounds, written out round by round."""

from __future__ import annotations

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from convert.lowering.facts import subgraphs
from convert.lowering.site import Refuse, Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node

MAX_ROUNDS, MAX_NODES = 64, 4096


def _wanted(site: Site) -> bool:
    return site.node.op_type == "Loop" and site.has(0) and site.const(site.inp(0)) is not None


def _unrolled(site: Site) -> None:
    """Rounds are constant and the condition stays what it is: given on as it came, or a constant true."""
    rounds = site.ints(0, "the number of rounds")[0]
    body: GraphProto = site.attr("body")
    start = site.const(site.inp(1)) if site.has(1) else None
    if site.has(1) and (start is None or not start.all()):
        raise Refuse("the condition is computed")
    if not 0 < rounds <= MAX_ROUNDS or rounds * len(body.node) > MAX_NODES:
        raise Refuse(f"{rounds} rounds are too many, or none")
    if not _goes_on(body):
        raise Refuse("the body may stop it")
    carried = list(site.node.input[2:])
    collected: list[list[str]] = [[] for _ in body.output[1 + len(carried) :]]
    going = site.op("Constant", value=_true())
    for number in range(rounds):
        outer = [site.long(number), going, *carried]
        names = dict(zip((info.name for info in body.input), outer, strict=True))
        results = _Round(site, body, names).results()
        carried = results[1 : 1 + len(carried)]
        for scan, name in zip(collected, results[1 + len(carried) :], strict=True):
            scan.append(site.unsqueeze(name, 0))
    for index, name in enumerate(carried):
        site.end_as(name, index)
    for index, parts in enumerate(collected, start=len(carried)):
        if site.wants(index):
            site.emit("Concat", parts, [site.node.output[index]], axis=0)


def _true() -> object:
    from onnx import TensorProto, helper

    return helper.make_tensor("value", TensorProto.BOOL, [], [True])


def _goes_on(body: GraphProto) -> bool:
    """Whether the condition that the body gives back is the one that it got, or constantly true."""
    name, makers = body.output[0].name, {n: node for node in body.node for n in node.output}
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    if name == body.input[1].name:
        return True
    weights = {tensor.name: tensor for tensor in body.initializer}
    if name in weights:
        return _is_true(weights[name])
    node = makers.get(name)
    return (
        node is not None
        and node.op_type == "Constant"
        and any(_is_true(a.t) for a in node.attribute if a.HasField("t"))
    )


def _is_true(tensor: object) -> bool:
    from onnx import numpy_helper

    return bool(numpy_helper.to_array(tensor).all())  # type: ignore[arg-type]


class _Round:
    """One round: the body's nodes with names of their own."""

    def __init__(self, site: Site, body: GraphProto, names: dict[str, str]) -> None:
        self.site, self.body, self.names = site, body, names
        for tensor in body.initializer:
            self.names[tensor.name] = site.op("Constant", value=tensor)
        for node in body.node:
            for name in node.output:
                if name:
                    self.names[name] = site.names.fresh(f"{site.stem}/{name}")

    def results(self) -> list[str]:
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


def run(model: ModelProto, argument: str) -> list[str]:
    """Write out every Loop of at most 64 rounds that nothing stops; says which."""
    return each_node(model, _unrolled, _wanted)


RULE = Rewrite(
    name="unroll-loop",
    title="a Loop of known length written out",
    avoids=(Avoided(op="Loop", attribute="body", fact="constant-trip-count"),),
    run=run,
)
GRAPH = AttributeProto.GRAPH
