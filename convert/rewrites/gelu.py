"""Gelu by Erf or Tanh."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.activations import gelu
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every Gelu that can be; says which."""
    return each_node(model, gelu, lambda site: site.node.op_type == "Gelu")


RULE = Rewrite(name="gelu-to-primitives", title="Gelu as Erf or Tanh", avoids=(Avoided(op="Gelu"),), run=run)
