"""Activations that came after opset 11, by the operators that were there before; Dropout."""

from __future__ import annotations

import math

from onnx import TensorProto, helper

from convert.lowering.site import Refuse, Site
from convert.lowering.table import down, up


@down("Gelu", version=20)
def gelu(site: Site) -> None:
    """x/2 · (1 + erf(x/√2)), or its tanh form."""
    x = site.inp(0)
    dtype = site.dtype(x)
    half, one = site.scalar(0.5, dtype), site.scalar(1, dtype)
    if site.attr("approximate", "none") == "tanh":
        cube = site.op("Mul", site.op("Mul", x, x), x)
        inner = site.op("Add", x, site.op("Mul", cube, site.scalar(0.044715, dtype)))
        curve = site.op("Tanh", site.op("Mul", inner, site.scalar(math.sqrt(2 / math.pi), dtype)))
    else:
        curve = site.op("Erf", site.op("Div", x, site.scalar(math.sqrt(2), dtype)))
    site.end("Mul", site.op("Mul", x, half), site.op("Add", curve, one))


@down("HardSwish", version=14)
def hard_swish(site: Site) -> None:
    """x · HardSigmoid(x) with slope 1/6."""
    site.end("Mul", site.inp(0), site.op("HardSigmoid", site.inp(0), alpha=1 / 6, beta=0.5))


@down("Mish", version=18)
def mish(site: Site) -> None:
    """x · tanh(softplus(x))."""
    site.end("Mul", site.inp(0), site.op("Tanh", site.op("Softplus", site.inp(0))))


@down("Swish", version=24)
def swish(site: Site) -> None:
    """x · sigmoid(alpha · x)."""
    x, alpha = site.inp(0), site.attr("alpha", 1.0)
    scaled = x if alpha == 1.0 else site.op("Mul", x, site.scalar(alpha, site.dtype(x)))
    site.end("Mul", x, site.op("Sigmoid", scaled))


@down("Celu", version=28)
def celu_of_other_types(site: Site) -> None:
    """Before 28 only float."""
    if site.dtype(site.inp(0)) == TensorProto.FLOAT:
        site.same()
    else:
        celu(site)


@down("Celu", version=12)
def celu(site: Site) -> None:
    """max(0, x) + min(0, alpha · (exp(x/alpha) - 1))."""
    x, alpha = site.inp(0), site.attr("alpha", 1.0)
    dtype = site.dtype(x)
    zero, scale = site.scalar(0, dtype), site.scalar(alpha, dtype)
    grown = site.op("Sub", site.op("Exp", site.op("Div", x, scale)), site.scalar(1, dtype))
    below = site.op("Min", zero, site.op("Mul", scale, grown))
    site.end("Add", site.op("Max", zero, x), below)


@down("Dropout", version=12)
def dropout_without_switch(site: Site) -> None:
    """Before 12 there is no training mode: off is the identity, on is drawn by RandomUniformLike."""
    x = site.inp(0)
    training = site.const(site.inp(2))
    ratio = site.const(site.inp(1)) if site.has(1) else None
    if not site.has(2) or (training is not None and not training) or (ratio is not None and not ratio):
        site.end_as(x)
        if site.wants(1):
            every = helper.make_tensor("value", TensorProto.BOOL, [1], [True])
            site.emit("ConstantOfShape", [site.op("Shape", x)], [site.out(1)], value=every)
        return
    dtype = site.dtype(x)
    share = site.cast(site.inp(1), TensorProto.FLOAT) if site.has(1) else site.scalar(0.5, TensorProto.FLOAT)
    share = site.op("Where", site.inp(2), share, site.scalar(0, TensorProto.FLOAT))
    drawn = site.op("RandomUniformLike", x, dtype=TensorProto.FLOAT, seed=site.attr("seed"))
    kept = site.op("Not", site.op("Less", drawn, share))
    scale = site.cast(site.op("Sub", site.scalar(1, TensorProto.FLOAT), share), dtype)
    site.end("Where", kept, site.op("Div", x, scale), site.scalar(0, dtype))
    site.end_as(kept, 1)


@up("Dropout", version=12)
def dropout_ratio_to_input(site: Site) -> None:
    """The ratio was an attribute; there was no training."""
    ratio = site.scalar(site.attr("ratio", 0.5), TensorProto.FLOAT)
    site.same([site.inp(0), ratio], drop=["ratio"])


@up("Dropout", version=10)
def mask_of_numbers(site: Site) -> None:
    """The mask was a tensor of numbers before."""
    if site.wants(1):
        raise Refuse("its mask has another type since opset 10")
    site.same()
