"""DeformConv by sampling every tap of the kernel at its own place, and one product with the weights."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from convert.lowering.rules.vision import Sampler
from convert.lowering.site import Refuse, Site, room_for
from convert.lowering.table import down

T = TensorProto


@down("DeformConv", version=19)
def convolution_at_learned_places(site: Site) -> None:
    """Taps of all kernels are sampled with the offsets added, weighted by the mask, and multiplied with the weights."""
    weights, offsets = site.inp(1), site.inp(2)
    out_channels, per_group, *kernel = site.fixed(weights)
    if len(kernel) != 2:
        raise Refuse("it has two spatial dimensions here")
    rows, columns = (size for size in site.dims(offsets)[2:])
    if rows is None or columns is None:
        raise Refuse("the size of the output is not fixed")
    groups, sets = site.attr("group", 1), site.attr("offset_group", 1)
    channels, taps, places = per_group * groups, kernel[0] * kernel[1], rows * columns
    spatial = site.slice(site.op("Shape", site.inp(0)), site.longs(2), site.longs(4), 0)
    shape = site.op("Concat", site.longs(-1, channels // sets), spatial, axis=0)
    sampler = Sampler(site, site.op("Reshape", site.inp(0), shape), 2, "linear")
    moved = site.reshape(site.cast(offsets, sampler.kind), -1, taps, 2, rows, columns)
    grid = _grid(site, kernel, rows, columns)
    points = []
    for axis in range(2):
        own = site.op("Gather", moved, site.long(axis), axis=2)
        points.append(site.op("Add", own, site.cast(site.tensor(grid[axis]), sampler.kind)))
    values = sampler.sample(points)
    if site.has(4):
        mask = site.reshape(site.cast(site.inp(4), sampler.kind), -1, 1, taps * places)
        values = site.op("Mul", values, mask)
    columns_of = site.reshape(values, -1, groups, per_group * taps, places)
    kernels = site.reshape(site.cast(weights, sampler.kind), 1, groups, out_channels // groups, per_group * taps)
    result = site.reshape(site.op("MatMul", kernels, columns_of), -1, out_channels, rows, columns)
    if site.has(3):
        result = site.op("Add", result, site.unsqueeze(site.cast(site.inp(3), sampler.kind), 1, 2))
    site.end("Cast", result, to=site.dtype(site.inp(0)))


def _grid(site: Site, kernel: list[int], rows: int, columns: int) -> list[np.ndarray]:
    """Where every tap lies without an offset: per axis [taps, rows, columns]."""
    strides, dilations = (site.attr(name) or [1, 1] for name in ("strides", "dilations"))
    pads = site.attr("pads") or [0] * 4
    counts = (rows, columns)
    room_for(*kernel, rows, columns)
    axes = [
        np.arange(kernel[i])[:, None] * dilations[i] + np.arange(counts[i])[None, :] * strides[i] - pads[i]
        for i in (0, 1)
    ]
    height = np.broadcast_to(axes[0][:, None, :, None], (kernel[0], kernel[1], rows, columns))
    width = np.broadcast_to(axes[1][None, :, None, :], (kernel[0], kernel[1], rows, columns))
    return [part.reshape(-1, rows, columns).astype(np.float32) for part in (height, width)]
