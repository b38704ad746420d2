"""DeformConv by sampling every tap at its own place."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.deformable import convolution_at_learned_places
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every DeformConv that can be; says which."""
    return each_node(model, convolution_at_learned_places, lambda site: site.node.op_type == "DeformConv")


RULE = Rewrite(
    name="deformconv-to-gather",
    title="DeformConv as GatherElements and MatMul",
    avoids=(Avoided(op="DeformConv"),),
    run=run,
)
