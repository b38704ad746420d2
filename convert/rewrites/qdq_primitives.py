"""QuantizeLinear and DequantizeLinear as rounding in float: the same numbers for a target that has no such operators.

A pair becomes Div, Round, Clip and Mul, weights become the floats that they stand for. A target that takes the pair (as
its sign for int8) keeps it: the rewrite is tried only where the operators are refused.
"""

from __future__ import annotations

from onnx import ModelProto, NodeProto, TensorProto

from convert.lowering.rules.quantization import RANGES, axis_shape
from convert.lowering.site import Refuse, Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import drop_idle, each_node
from convert.rewrites.qdq import is_dequantize, quantize_before, stored_as_float


def _rounded(site: Site) -> None:
    pair = quantize_before(site)
    if pair is None:
        stored_as_float(site)
        return
    _round_in_float(site, pair)


def _round_in_float(site: Site, pair: NodeProto) -> None:
    kind = site.dtype(site.inp(0))
    floats = (TensorProto.FLOAT, TensorProto.FLOAT)
    if kind not in RANGES or (site.dtype(site.inp(1)), site.dtype(pair.input[0])) != floats:
        raise Refuse("only float32 rounded to 8 or 16 bits")
    low, high = RANGES[kind]
    scale = axis_shape(site, site.inp(1), site.rank(site.inp(0)))
    value = site.op("Round", site.op("Div", pair.input[0], scale))
    if site.has(2):
        zero = site.cast(axis_shape(site, site.inp(2), site.rank(site.inp(0))), TensorProto.FLOAT)
        value = site.op("Add", value, zero)
    value = site.op("Clip", value, site.scalar(low, TensorProto.FLOAT), site.scalar(high, TensorProto.FLOAT))
    if site.has(2):
        value = site.op("Sub", value, zero)
    site.end("Mul", value, scale)


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every DequantizeLinear that can be, and with it what it undoes; says which."""
    done = each_node(model, _rounded, is_dequantize)
    if done:
        drop_idle(model, "QuantizeLinear")
    return done


RULE = Rewrite(
    name="qdq-to-primitives",
    title="quantizing and dequantizing as rounding in float",
    avoids=(Avoided(op="QuantizeLinear"), Avoided(op="DequantizeLinear")),
    run=run,
)
