"""GridSample, RoiAlign and Col2Im."""

from __future__ import annotations

import itertools
import math

import numpy as np
from onnx import TensorProto

from convert.lowering.site import Refuse, Site, room_for
from convert.lowering.table import down, up

T = TensorProto
OLD_MODES = {"linear": "bilinear", "cubic": "bicubic"}
NEW_MODES = {"bilinear": "linear", "bicubic": "cubic"}
CUBIC_A = -0.75


@down("GridSample", version=20)
def flat_sampling(site: Site) -> None:
    """Before 20 there are two spatial dimensions, and the modes have older names."""
    mode = site.attr("mode", "linear")
    if site.rank(site.inp(0)) != 4:
        sample_by_gather(site, mode)
        return
    site.same(mode=OLD_MODES.get(mode, mode))


@up("GridSample", version=20)
def renamed_modes(site: Site) -> None:
    """The modes have new names."""
    mode = site.attr("mode", "bilinear")
    site.same(mode=NEW_MODES.get(mode, mode))


@down("GridSample", version=16)
def sampling_before_16(site: Site) -> None:
    """By gathering and weighting."""
    mode = site.attr("mode", "bilinear")
    sample_by_gather(site, NEW_MODES.get(mode, mode))


def sample_by_gather(site: Site, mode: str) -> None:
    """Every neighbour of every sampled point is gathered, weighted and added."""
    data, grid = site.inp(0), site.inp(1)
    sampler = Sampler(site, data, site.rank(data) - 2, mode)
    sampler.padding = site.attr("padding_mode", "zeros")
    sampler.align = bool(site.attr("align_corners", 0))
    places = [site.op("Gather", grid, site.long(sampler.rank - 1 - i), axis=-1) for i in range(sampler.rank)]
    result = sampler.sample([sampler.unnormalized(i, place) for i, place in enumerate(places)])
    head = site.slice(site.op("Shape", data), site.longs(0), site.longs(2), 0)
    tail = site.slice(site.op("Shape", grid), site.longs(1), site.longs(-1), 0)
    flat = site.op("Reshape", result, site.op("Concat", head, tail, axis=0))
    site.end("Cast", flat, to=site.dtype(data))


class Sampler:
    """Reads a tensor [N, C, D1 … Dk] at computed points, in float (double for double)."""

    def __init__(self, site: Site, data: str, rank: int, mode: str) -> None:
        self.site, self.rank, self.mode = site, rank, mode
        given = site.dtype(site.inp(0))
        self.kind = T.DOUBLE if given == T.DOUBLE else T.FLOAT
        self.padding, self.align = "zeros", False
        if mode == "cubic" and self.rank != 2:
            raise Refuse("cubic sampling has two spatial dimensions")
        self.sizes = [site.squeeze(site.dim(data, i + 2), 0) for i in range(self.rank)]
        self.widths = [site.cast(size, self.kind) for size in self.sizes]
        flat = site.reshape(data, 0, 0, -1)
        self.flat = flat if given == self.kind else site.cast(flat, self.kind)

    def number(self, value: float) -> str:
        return self.site.scalar(value, self.kind)

    def unnormalized(self, axis: int, place: str) -> str:
        """From -1 … 1 to pixels."""
        site = self.site
        wide = site.cast(place, self.kind)
        moved = site.op("Add", wide, self.number(1))
        half, one = self.number(0.5), self.number(1)
        if self.align:
            return site.op("Mul", moved, site.op("Mul", site.op("Sub", self.widths[axis], one), half))
        return site.op("Mul", site.op("Sub", site.op("Mul", moved, self.widths[axis]), one), half)

    def sample(self, points: list[str]) -> str:
        """The values at points given per axis as [N, …], as [N, C, all points]."""
        site = self.site
        flat = [site.op("Flatten", point, axis=1) for point in points]
        if self.mode != "cubic":
            flat = [self._inside(i, point) for i, point in enumerate(flat)]
        per_axis = [
            [self._readable(axis, place, share) for place, share in self._neighbours(axis, point)]
            for axis, point in enumerate(flat)
        ]
        total = ""
        for choice in itertools.product(*per_axis):
            weight, index = "", ""
            for axis, (inner, share) in enumerate(choice):
                weight = share if not weight else (site.op("Mul", weight, share) if share else weight)
                step = inner if not index else site.op("Add", site.op("Mul", index, self.sizes[axis]), inner)
                index = step
            value = self._read(index)
            if weight:
                value = site.op("Mul", value, site.unsqueeze(weight, 1))
            total = value if not total else site.op("Add", total, value)
        return total

    def _read(self, index: str) -> str:
        site = self.site
        wide = site.unsqueeze(index, 1)
        channels = site.op("Gather", site.op("Shape", self.flat), site.longs(1), axis=0)
        shape = site.op("Concat", site.longs(1), channels, site.longs(1), axis=0)
        return site.op("GatherElements", self.flat, site.op("Expand", wide, shape), axis=2)

    def _inside(self, axis: int, point: str) -> str:
        """Where the padding moves points: to the border, or mirrored."""
        if self.padding == "border":
            return self._bounded(axis, point)
        if self.padding == "reflection":
            return self._mirrored(axis, point)
        return point

    def _bounded(self, axis: int, point: str) -> str:
        site = self.site
        top = site.op("Sub", self.widths[axis], self.number(1))
        return site.op("Min", site.op("Max", point, self.number(0)), top)

    def _mirrored(self, axis: int, point: str) -> str:
        """Mirrored at the borders, which lie on the outer pixels or half a pixel further out."""
        site = self.site
        low = self.number(0.0 if self.align else -0.5)
        span = site.op("Sub", self.widths[axis], self.number(1)) if self.align else self.widths[axis]
        period = site.op("Max", site.op("Mul", span, self.number(2)), self.number(1))
        offset = site.op("Sub", point, low)
        turns = site.op("Floor", site.op("Div", offset, period))
        rest = site.op("Sub", offset, site.op("Mul", turns, period))
        folded = site.op("Sub", span, site.op("Abs", site.op("Sub", rest, span)))
        return site.op("Add", low, folded)

    def _neighbours(self, axis: int, point: str) -> list[tuple[str, str]]:
        """Pixels (as floats) around a point, and their weights; no weight stands for one."""
        site = self.site
        if self.mode == "nearest":
            return [(site.op("Round", point), "")]
        first = site.op("Floor", point)
        part = site.op("Sub", point, first)
        rest = site.op("Sub", self.number(1), part)
        if self.mode == "linear":
            return [(first, rest), (site.op("Add", first, self.number(1)), part)]
        places = [site.op("Add", first, self.number(offset)) for offset in (-1, 0, 1, 2)]
        ahead = [site.op("Add", part, self.number(1)), site.op("Add", rest, self.number(1))]
        weights = [self._far(ahead[0]), self._near(part), self._near(rest), self._far(ahead[1])]
        return list(zip(places, weights, strict=True))

    def _near(self, x: str) -> str:
        """((A + 2) x - (A + 3)) x² + 1."""
        site = self.site
        line = site.op("Sub", site.op("Mul", x, self.number(CUBIC_A + 2)), self.number(CUBIC_A + 3))
        return site.op("Add", site.op("Mul", line, site.op("Mul", x, x)), self.number(1))

    def _far(self, x: str) -> str:
        """((A x - 5 A) x + 8 A) x - 4 A."""
        site = self.site
        value = site.op("Sub", site.op("Mul", x, self.number(CUBIC_A)), self.number(5 * CUBIC_A))
        value = site.op("Add", site.op("Mul", value, x), self.number(8 * CUBIC_A))
        return site.op("Sub", site.op("Mul", value, x), self.number(4 * CUBIC_A))

    def _readable(self, axis: int, place: str, weight: str) -> tuple[str, str]:
        """A pixel number that exists, and its weight: outside it is zero, on the border, or mirrored."""
        site = self.site
        if self.padding == "reflection":
            place = self._mirrored(axis, place)
        bounded = self._bounded(axis, place)
        if self.padding == "zeros":
            same = site.cast(site.op("Equal", site.cast(place, T.INT64), site.cast(bounded, T.INT64)), self.kind)
            weight = site.op("Mul", weight, same) if weight else same
        return site.cast(bounded, T.INT64), weight


@up("RoiAlign", version=16)
def pixels_from_corner(site: Site) -> None:
    """What was the only way has a name."""
    site.same(coordinate_transformation_mode="output_half_pixel")


@down("RoiAlign", version=16)
def roi_by_sampling(site: Site) -> None:
    """Without the half-pixel shift it is version 10; with it, regions below one pixel are no longer made one pixel."""
    if site.attr("coordinate_transformation_mode", "half_pixel") == "output_half_pixel":
        site.same(drop=["coordinate_transformation_mode"])
        return
    rois, scale = site.const(site.inp(1)), site.attr("spatial_scale", 1.0)
    kind = site.dtype(site.inp(1))
    if rois is None:
        raise Refuse("half_pixel came with version 16, and the regions are computed while the model runs")
    if ((rois[:, 2:] - rois[:, :2]) * scale < 1).any():
        raise Refuse("half_pixel came with version 16, and a region is smaller than a pixel")
    moved = site.op("Sub", site.inp(1), site.scalar(0.5 / scale, kind))
    site.same([site.inp(0), moved, site.inp(2)], drop=["coordinate_transformation_mode"])


@down("Col2Im", version=18)
def columns_by_transposed_convolution(site: Site) -> None:
    """Every column is one channel of a transposed convolution whose kernels have a single one."""
    data, dtype = site.inp(0), site.dtype(site.inp(0))
    image, block = site.ints(1, "the image's shape"), site.ints(2, "the block's shape")
    rank = len(image)
    strides = site.attr("strides") or [1] * rank
    dilations = site.attr("dilations") or [1] * rank
    pads = site.attr("pads") or [0] * (2 * rank)
    spans = [(b - 1) * d + 1 for b, d in zip(block, dilations, strict=True)]
    room = [image[i] + pads[i] + pads[i + rank] - spans[i] for i in range(rank)]
    counts = [r // s + 1 for r, s in zip(room, strides, strict=True)]
    columns = math.prod(block)
    rows = site.reshape(data, -1, columns, *counts)
    room_for(columns, columns)
    kernel = np.eye(columns, dtype=np.float32).reshape(columns, 1, *block)
    weights = site.tensor(kernel) if dtype == T.FLOAT else site.cast(site.tensor(kernel), dtype)
    given = {"strides": strides, "dilations": dilations, "pads": pads}
    extra = [r % s for r, s in zip(room, strides, strict=True)]
    folded = site.op("ConvTranspose", rows, weights, output_padding=extra, **given)
    batch, depth = site.dims(data)[:2]
    if depth is None and batch is None:
        raise Refuse("neither the batch size nor the number of channels is fixed")
    lead = (-1, depth // columns) if depth is not None else (batch, -1)
    site.end("Reshape", folded, site.longs(*(size for size in lead if size is not None), *image))
