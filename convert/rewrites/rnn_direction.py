"""Recurrent nodes that run backwards, as forward ones over the reversed sequence."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.recurrent import STATES
from convert.lowering.site import Refuse, Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node

INT_MIN = -(1 << 63)


def _backwards(site: Site) -> bool:
    return site.node.op_type in STATES and site.attr("direction", "forward") == "reverse"


def _turned(site: Site) -> None:
    """The sequence is turned round before and after; the last state is the same."""
    if site.has(4) or site.attr("layout", 0):
        raise Refuse("sequences of their own lengths are turned round each by itself")
    inputs = list(site.node.input)
    inputs[0] = _reversed(site, inputs[0])
    written = site.same(inputs, direction="forward")
    if site.wants(0):
        written.output[0] = site.names.fresh(f"{site.stem}/forward")
        site.end_as(_reversed(site, written.output[0]))


def _reversed(site: Site, name: str) -> str:
    return site.slice(name, site.longs(-1), site.longs(INT_MIN), 0, site.longs(-1))


def run(model: ModelProto, argument: str) -> list[str]:
    """Turn every recurrent node that runs backwards; says which."""
    return each_node(model, _turned, _backwards)


RULE = Rewrite(
    name="rnn-direction",
    title="recurrent nodes that run forwards",
    avoids=tuple(Avoided(op=op, attribute="direction", values=("reverse",)) for op in STATES),
    run=run,
)
