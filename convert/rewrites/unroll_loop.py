"""A Loop with a known number of rounds, written out round by round."""

from __future__ import annotations

from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from convert.lowering.site import Refuse, Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.body import Round
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
        results = Round(site, body, names).results()
        carried = results[1 : 1 + len(carried)]
        for scan, name in zip(collected, results[1 + len(carried) :], strict=True):
            scan.append(site.unsqueeze(name, 0))
    for index, name in enumerate(carried):
        site.end_as(name, index)
    for index, parts in enumerate(collected, start=len(carried)):
        if site.wants(index):
            site.emit("Concat", parts, [site.node.output[index]], axis=0)


def _true() -> TensorProto:
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


def _is_true(tensor: TensorProto) -> bool:
    return bool(numpy_helper.to_array(tensor).all())


def run(model: ModelProto, argument: str) -> list[str]:
    """Write out every Loop of at most 64 rounds that nothing stops; says which."""
    return each_node(model, _unrolled, _wanted)


RULE = Rewrite(
    name="unroll-loop",
    title="a Loop of known length written out",
    avoids=(Avoided(op="Loop", attribute="body", fact="constant-trip-count"),),
    run=run,
)
