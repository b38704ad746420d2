"""GridSample by gathering and weighting."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.vision import sampling_before_16
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every GridSample that can be; says which."""
    return each_node(model, sampling_before_16, lambda site: site.node.op_type == "GridSample")


RULE = Rewrite(
    name="gridsample-to-gather", title="GridSample as GatherElements", avoids=(Avoided(op="GridSample"),), run=run
)
