"""Scatter with a reduction as a Loop over plain scatters, so that repeated indices all count."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.scatter import one_by_one
from convert.lowering.site import Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node

OPS = ("ScatterElements", "ScatterND")
REDUCTIONS = ("add", "mul", "max", "min")


def _reduces(site: Site) -> bool:
    return site.node.op_type in OPS and site.attr("reduction", "none") != "none"


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every scatter that reduces; says which."""
    return each_node(model, one_by_one, _reduces)


RULE = Rewrite(
    name="scatter-to-loop",
    title="scatter with a reduction as a Loop",
    avoids=tuple(Avoided(op=op, attribute="reduction", values=REDUCTIONS) for op in OPS),
    run=run,
)
