"""Pad by reflection, by the edge, or around, as Gather along each padded axis."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from convert.lowering.site import Refuse, Site, room_for
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node

MODES = ("reflect", "edge", "wrap")


def _wanted(site: Site) -> bool:
    return site.node.op_type == "Pad" and site.attr("mode", "constant") in MODES


def _by_gather(site: Site) -> None:
    """Every padded axis is read at constant places; its size and its pads must be known."""
    data, dims = site.inp(0), site.dims(site.inp(0))
    pads = site.const(site.inp(1))
    axes = site.const(site.inp(3)) if site.has(3) else np.arange(len(dims))
    if pads is None or axes is None:
        raise Refuse("the pads are not constant")
    value, count = data, len(axes)
    for place, axis in enumerate(int(a) % len(dims) for a in axes):
        before, after = int(pads[place]), int(pads[place + count])
        if not before and not after:
            continue
        size = dims[axis]
        if size is None or size < 1:
            raise Refuse("the size of a padded axis is not fixed")
        places = _places(site.attr("mode"), size, before, after)
        value = site.op("Gather", value, site.tensor(places), axis=axis)
    site.end_as(value)


def _places(mode: str, size: int, before: int, after: int) -> np.ndarray:
    room_for(before + size + after)
    numbers = np.arange(-before, size + after, dtype=np.int64)
    if mode == "edge":
        return numbers.clip(0, size - 1)
    if mode == "wrap":
        return numbers % size
    if max(before, after) >= size:
        raise Refuse("a reflection that is longer than the axis is not defined")
    numbers = np.abs(numbers)
    return np.where(numbers >= size, 2 * (size - 1) - numbers, numbers)


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every Pad that copies its input; says which."""
    return each_node(model, _by_gather, _wanted)


RULE = Rewrite(
    name="pad-to-gather",
    title="Pad by reflection or edge as Gather",
    avoids=(Avoided(op="Pad", attribute="mode", values=MODES),),
    run=run,
)
