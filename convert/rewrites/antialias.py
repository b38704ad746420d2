"""Resize that smooths while it shrinks, as products with constant matrices along its axes."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.resize import smoothed
from convert.lowering.site import Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node


def _smooths(site: Site) -> bool:
    wanted = site.node.op_type == "Resize" and bool(site.attr("antialias", 0))
    return wanted and site.attr("mode", "nearest") != "nearest"


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every Resize with antialias whose sizes are fixed; says which."""
    return each_node(model, smoothed, _smooths)


RULE = Rewrite(
    name="antialias-to-matmul",
    title="Resize with antialias as MatMul",
    avoids=(Avoided(op="Resize", attribute="antialias", values=(1,)),),
    run=run,
)
