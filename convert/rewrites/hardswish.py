"""HardSwish by HardSigmoid."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.activations import hard_swish
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every HardSwish that can be; says which."""
    return each_node(model, hard_swish, lambda site: site.node.op_type == "HardSwish")


RULE = Rewrite(
    name="hardswish-to-hardsigmoid",
    title="HardSwish as x times HardSigmoid",
    avoids=(Avoided(op="HardSwish"),),
    run=run,
)
