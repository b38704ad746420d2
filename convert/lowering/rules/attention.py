"""Cache updates and gated activations of attention layers. Attention itself is expanded by ONNX's own definition."""

from __future__ import annotations

from onnx import TensorProto

from convert.lowering.site import Refuse, Site
from convert.lowering.table import down

T = TensorProto


@down("TensorScatter", version=24)
def cache_by_scatter(site: Site) -> None:
    """The place of every update as an index along the sequence axis."""
    cache, update = site.inp(0), site.inp(1)
    rank = site.rank(cache)
    axis = site.attr("axis", -2) % rank
    if axis == 0:
        raise Refuse("the batch can't be the axis that is written along")
    one = site.long(1)
    numbers = site.op("Range", site.long(0), site.squeeze(site.dim(update, axis), 0), one)
    places = site.unsqueeze(numbers, *(i for i in range(rank) if i != axis))
    if site.has(2):
        start = site.unsqueeze(site.inp(2), *range(1, rank))
        places = site.op("Add", places, start)
    if site.attr("mode", "linear") == "circular":
        places = site.op("Mod", places, site.squeeze(site.dim(cache, axis), 0))
    where = site.op("Expand", places, site.op("Shape", update))
    site.end("ScatterElements", cache, where, update, axis=axis)


@down("SwiGLU", version=28)
def swiglu(site: Site) -> None:
    """Swish of the gate times the value."""
    gate, value = site.inp(0), site.inp(1)
    alpha = site.attr("alpha", 1.0)
    scaled = gate if alpha == 1.0 else site.op("Mul", gate, site.scalar(alpha, site.dtype(gate)))
    swish = site.op("Mul", gate, site.op("Sigmoid", scaled))
    site.end("Mul", swish, value)
