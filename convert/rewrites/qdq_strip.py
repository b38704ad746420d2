"""QuantizeLinear and DequantizeLinear left out: the float graph again, as it was before it was quantized.

Activations are no longer rounded, so numbers change by up to a step of their scale; weights stay the rounded ones. It
is done only where asked for, and kept only where outputs stay within ``ALLOWED`` (relative L2).
"""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.site import Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import drop_idle, each_node
from convert.rewrites.qdq import is_dequantize, quantize_before, stored_as_float

ALLOWED = 0.15
"""The share that the gate gives int8 (``rel_l2``)."""


def _stripped(site: Site) -> None:
    pair = quantize_before(site)
    if pair is None:
        stored_as_float(site)
    else:
        site.end_as(pair.input[0])


def run(model: ModelProto, argument: str) -> list[str]:
    """Leave out every pair, and give weights as floats; says where."""
    done = each_node(model, _stripped, is_dequantize)
    if done:
        drop_idle(model, "QuantizeLinear")
    return done


RULE = Rewrite(
    name="qdq-strip",
    title="quantizing and dequantizing left out",
    avoids=(Avoided(op="QuantizeLinear"), Avoided(op="DequantizeLinear")),
    run=run,
    opt_in=True,
    allowed=ALLOWED,
)
