"""Attention by MatMul and Softmax, as ONNX itself defines it."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.attention import is_plain, plain_attention
from convert.lowering.site import Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node, expand_each


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every Attention; says which."""
    return [*each_node(model, plain_attention, _plain), *expand_each(model, "Attention")]


def _plain(site: Site) -> bool:
    return site.node.op_type == "Attention" and is_plain(site)


RULE = Rewrite(
    name="attention-to-primitives",
    title="Attention as MatMul and Softmax",
    avoids=(Avoided(op="Attention"),),
    run=run,
)
