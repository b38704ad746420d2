"""Trilu by Where."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.shape import triangle_by_where
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every Trilu that can be; says which."""
    return each_node(model, triangle_by_where, lambda site: site.node.op_type == "Trilu")


RULE = Rewrite(name="trilu-to-where", title="Trilu as Where", avoids=(Avoided(op="Trilu"),), run=run)
