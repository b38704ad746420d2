"""Einsum by transposition, MatMul and sums."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.contraction import einsum_by_matmul
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every Einsum that can be; says which."""
    return each_node(model, einsum_by_matmul, lambda site: site.node.op_type == "Einsum")


RULE = Rewrite(name="einsum-to-matmul", title="Einsum as MatMul", avoids=(Avoided(op="Einsum"),), run=run)
