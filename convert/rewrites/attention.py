"""Attention by MatMul and Softmax, as ONNX itself defines it."""

from __future__ import annotations

from onnx import ModelProto

from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import expand_each


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every Attention; says which."""
    return expand_each(model, "Attention")


RULE = Rewrite(
    name="attention-to-primitives",
    title="Attention as MatMul and Softmax",
    avoids=(Avoided(op="Attention"),),
    run=run,
)
