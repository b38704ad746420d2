"""GroupNormalization by InstanceNormalization over groups."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.normalization import group_normalization
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every GroupNormalization that can be; says which."""
    return each_node(model, group_normalization, lambda site: site.node.op_type == "GroupNormalization")


RULE = Rewrite(
    name="groupnorm-to-instancenorm",
    title="GroupNormalization as InstanceNormalization",
    avoids=(Avoided(op="GroupNormalization"),),
    run=run,
)
