"""Swish by Sigmoid."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.activations import swish
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every Swish that can be; says which."""
    return each_node(model, swish, lambda site: site.node.op_type == "Swish")


RULE = Rewrite(name="swish-to-sigmoid", title="Swish as x times Sigmoid", avoids=(Avoided(op="Swish"),), run=run)
