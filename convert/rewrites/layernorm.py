"""LayerNormalization by mean and deviation."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.normalization import layer_normalization
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every LayerNormalization that can be; says which."""
    return each_node(model, layer_normalization, lambda site: site.node.op_type == "LayerNormalization")


RULE = Rewrite(
    name="layernorm-to-primitives",
    title="LayerNormalization as ReduceMean and Sqrt",
    avoids=(Avoided(op="LayerNormalization"),),
    run=run,
)
