"""RMSNormalization by the root of the mean square."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.normalization import rms_normalization
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every RMSNormalization that can be; says which."""
    return each_node(model, rms_normalization, lambda site: site.node.op_type == "RMSNormalization")


RULE = Rewrite(
    name="rmsnorm-to-primitives",
    title="RMSNormalization as ReduceMean and Sqrt",
    avoids=(Avoided(op="RMSNormalization"),),
    run=run,
)
