"""Mish by Softplus and Tanh."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.activations import mish
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every Mish that can be; says which."""
    return each_node(model, mish, lambda site: site.node.op_type == "Mish")


RULE = Rewrite(name="mish-to-softplus", title="Mish as Tanh of Softplus", avoids=(Avoided(op="Mish"),), run=run)
