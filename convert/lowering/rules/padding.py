"""Pad: axes given by input, wrapping around, and bounds as attributes."""

from __future__ import annotations

from onnx import TensorProto

from convert.lowering.site import Refuse, Site
from convert.lowering.table import down, up


@down("Pad", version=18)
def pads_of_all_axes(site: Site) -> None:
    """Pads of some axes are put among zeros for the others."""
    if not site.has(3):
        site.same(list(site.node.input[:3]))
        return
    rank = site.rank(site.inp(0))
    axes, pads = site.const(site.inp(3)), site.const(site.inp(1))
    if axes is not None and pads is not None:
        full = [0] * (2 * rank)
        for place, axis in enumerate(axes.reshape(-1)):
            full[int(axis) % rank] = int(pads[place])
            full[int(axis) % rank + rank] = int(pads[place + axes.size])
        site.same([site.inp(0), site.longs(*full), site.inp(2)])
        return
    given = site.cast(site.inp(3), TensorProto.INT64)
    size = site.longs(rank)
    counted = site.op("Where", site.op("Less", given, site.long(0)), site.op("Add", given, size), given)
    places = site.op("Concat", counted, site.op("Add", counted, size), axis=0)
    spread = site.op("ScatterElements", site.longs(*[0] * (2 * rank)), places, site.inp(1), axis=0)
    site.same([site.inp(0), spread, site.inp(2)])


@down("Pad", version=19)
def wrap_by_gather(site: Site) -> None:
    """``wrap`` reads every axis at positions modulo its size."""
    if site.attr("mode", "constant") != "wrap":
        site.same()
        return
    data, rank = site.inp(0), site.rank(site.inp(0))
    axes = [a % rank for a in site.ints(3, "the axes to wrap")] if site.has(3) else list(range(rank))
    value = data
    for place, axis in enumerate(axes):
        before, after = (
            site.op("Slice", site.inp(1), site.longs(at), site.longs(at + 1)) for at in (place, place + len(axes))
        )
        size = site.dim(data, axis)
        start, end = site.op("Neg", before), site.op("Add", size, after)
        numbers = site.op("Range", site.squeeze(start, 0), site.squeeze(end, 0), site.long(1))
        value = site.op("Gather", value, site.op("Mod", numbers, size), axis=axis)
    site.end_as(value)


@up("Pad", version=11)
def pads_to_input(site: Site) -> None:
    """The attributes become inputs."""
    dtype = site.dtype(site.inp(0))
    if dtype == 0:
        raise Refuse("the type of its input is not known")
    value = site.scalar(site.attr("value", 0.0), dtype)
    site.same([site.inp(0), site.longs(*site.attr("pads")), value], drop=["pads", "value"])
