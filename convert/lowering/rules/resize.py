"""Resize and Upsample."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from convert.lowering.rules.interpolation import resize_by_matrix
from convert.lowering.site import Refuse, Site
from convert.lowering.table import down, up

T = TensorProto


@down("Resize", version=19)
def symmetric_centre(site: Site) -> None:
    """``half_pixel_symmetric`` is ``half_pixel`` where the output's size times the scale comes out whole."""
    if site.attr("coordinate_transformation_mode", "half_pixel") != "half_pixel_symmetric":
        site.same()
        return
    if site.has(3):
        site.same(coordinate_transformation_mode="half_pixel")
        return
    scales, dims = site.const(site.inp(2)), site.dims(site.inp(0))
    if scales is None:
        raise Refuse("half_pixel_symmetric came with version 19, and its scales are computed while the model runs")
    axes = [axis % len(dims) for axis in site.attr("axes") or range(len(dims))]
    sizes = [dims[axis] for axis in axes]
    whole = all(s == 1 or (d is not None and float(s * d).is_integer()) for s, d in zip(scales, sizes, strict=True))
    if whole:
        site.same(coordinate_transformation_mode="half_pixel")
        return
    given = {axis: float(scale) for axis, scale in zip(axes, scales, strict=True) if scale != 1}
    resize_by_matrix(site, given, _scaled_sizes(site, given))


@down("Resize", version=18)
def resize_all_axes(site: Site) -> None:
    """Sizes and scales of some axes are put among those of the others."""
    data = site.inp(0)
    drop = ["axes", "keep_aspect_ratio_policy", "antialias"]
    if site.attr("antialias", 0) and site.attr("mode", "nearest") != "nearest" and not _only_grows(site):
        smoothed(site)
        return
    if site.attr("keep_aspect_ratio_policy", "stretch") != "stretch" and site.has(3):
        scale = _common_scale(site)
        site.same([data, site.inp(1), scale], drop=drop)
        return
    axes = site.attr("axes")
    if axes is None:
        site.same(drop=drop)
        return
    rank = site.rank(data)
    axes = [axis % rank for axis in axes]
    roi, scales, sizes = (site.inp(i) for i in (1, 2, 3))
    if site.has(1) and site.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        kind = np.float32 if site.dtype(roi) == T.FLOAT else np.float64
        whole = site.tensor(np.array([0] * rank + [1] * rank, dtype=kind))
        whole = whole if site.dtype(roi) in (T.FLOAT, T.DOUBLE) else site.cast(whole, site.dtype(roi))
        roi = _put(site, whole, [*axes, *(a + rank for a in axes)], roi)
    else:
        roi = ""
    if site.has(2):
        scales = _put(site, site.tensor(np.ones(rank, dtype=np.float32)), axes, scales)
    if site.has(3):
        sizes = _put(site, site.op("Shape", data), axes, sizes)
    site.same([data, roi, scales, sizes], drop=drop)


def smoothed(site: Site) -> None:
    """Shrinking with ``antialias``: a product with a matrix along every axis."""
    if site.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Refuse("antialias and keep_aspect_ratio_policy came with version 18")
    dims = site.dims(site.inp(0))
    axes = [axis % len(dims) for axis in site.attr("axes") or range(len(dims))]
    if site.has(2):
        scales = site.const(site.inp(2))
        if scales is None:
            raise Refuse("antialias came with version 18, and the scales are computed while the model runs")
        given = {axis: float(scale) for axis, scale in zip(axes, scales, strict=True) if scale != 1}
        resize_by_matrix(site, given, _scaled_sizes(site, given))
        return
    known = site.const(site.inp(3))
    output = site.dims(site.node.output[0])
    sizes = {axis: output[axis] if known is None else int(known[i]) for i, axis in enumerate(axes)}
    ratios = {}
    for axis, size in sizes.items():
        before = dims[axis]
        symbol = site.scope.symbol(site.inp(0), axis)
        if size is None and symbol and symbol == site.scope.symbol(site.node.output[0], axis):
            continue
        if size is None or not before:
            raise Refuse("antialias came with version 18, and the sizes are not fixed")
        ratios[axis] = size / before
    resize_by_matrix(site, ratios, {axis: size for axis, size in sizes.items() if size is not None})


def _scaled_sizes(site: Site, scales: dict[int, float]) -> dict[int, int]:
    """The sizes that scales lead to, rounded down; refuses where they depend on how a product is rounded."""
    dims, sizes = site.dims(site.inp(0)), {}
    for axis, scale in scales.items():
        size = dims[axis]
        if size is None:
            raise Refuse("the size of a resized axis is not fixed")
        sizes[axis] = math.floor(size * scale)
        if sizes[axis] != math.floor(float(np.float32(size) * np.float32(scale))):
            raise Refuse("the size of the output depends on how the scale is rounded")
    return sizes


def _put(site: Site, whole: str, places: list[int], values: str) -> str:
    """A vector with some of its places overwritten."""
    known, base = site.const(values), site.const(whole)
    if known is not None and base is not None:
        full = base.copy()
        full[places] = known
        return site.tensor(full)
    return site.op("ScatterElements", whole, site.longs(*places), values, axis=0)


def _only_grows(site: Site) -> bool:
    """Whether it is known that no axis shrinks; smoothing only happens where one does."""
    if site.has(2):
        scales = site.const(site.inp(2))
        return scales is not None and bool((scales >= 1).all())
    sizes, dims = site.const(site.inp(3)), site.dims(site.inp(0))
    axes = site.attr("axes") or range(len(dims))
    if sizes is None:
        return False
    known = [dims[axis] for axis in axes]
    return all(d is not None and s >= d for s, d in zip(sizes, known, strict=True))


def _common_scale(site: Site) -> str:
    """The one scale of all axes that keeps the aspect ratio, where sizes are known and it gives the same sizes."""
    sizes, dims = site.const(site.inp(3)), site.dims(site.inp(0))
    if sizes is None:
        raise Refuse("keep_aspect_ratio_policy came with version 18, and the sizes are computed while the model runs")
    axes = [a % len(dims) for a in site.attr("axes") or range(len(dims))]
    known = [dims[axis] for axis in axes]
    if any(d is None for d in known):
        raise Refuse("keep_aspect_ratio_policy came with version 18, and the size of the input is not fixed")
    ratios = [int(s) / d for s, d in zip(sizes, known, strict=True) if d]
    scale = min(ratios) if site.attr("keep_aspect_ratio_policy") == "not_larger" else max(ratios)
    stored = float(np.float32(scale))
    for size in known:
        wanted = 0 if size is None else math.floor(size * scale + 0.5)
        rounded = 0 if size is None else math.floor(float(np.float32(size) * np.float32(scale)))
        if size is not None and not math.floor(size * stored) == rounded == wanted:
            raise Refuse("keep_aspect_ratio_policy came with version 18, and no scale gives these sizes")
    full = np.ones(len(dims), dtype=np.float32)
    full[axes] = scale
    return site.tensor(full)


@down("Resize", version=13)
def roi_and_scales_present(site: Site) -> None:
    """Version 11 wants a roi and scales; an empty one stands for none."""
    roi = site.inp(1) or site.tensor(np.zeros(0, dtype=np.float32))
    scales = site.inp(2) or site.tensor(np.zeros(0, dtype=np.float32))
    site.same([site.inp(0), roi, scales, site.inp(3)])


@up("Resize", version=11)
def resize_from_corner(site: Site) -> None:
    """Version 10 measures from the corner, and takes the pixel before; its shrinking by nearest is unwritten."""
    if site.attr("mode", "nearest") == "nearest" and not _at_least_one(site, site.inp(1)):
        raise Refuse("how version 10 shrinks by the nearest pixel is not defined")
    empty = site.tensor(np.zeros(0, dtype=np.float32))
    site.end(
        "Resize",
        site.inp(0),
        empty,
        site.inp(1),
        mode=site.attr("mode", "nearest"),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@up("Upsample", version=9)
def upsample_scales_to_input(site: Site) -> None:
    """The attribute becomes an input."""
    site.same([site.inp(0), site.tensor(np.array(site.attr("scales"), dtype=np.float32))], drop=["scales"])


@up("Upsample", version=10)
def upsample_is_resize(site: Site) -> None:
    """Upsample is Resize, with scales of one or more."""
    mode = site.attr("mode", "nearest")
    scales = site.inp(1)
    if site.const(scales) is None:
        scales = site.op("Max", scales, site.scalar(1, T.FLOAT))
    site.end("Resize", site.inp(0), scales, mode="linear" if mode in ("linear", "bilinear") else mode)


def _at_least_one(site: Site, name: str) -> bool:
    """Whether scales are known not to shrink: constant, or a maximum with one (as Upsample's are)."""
    known = site.const(name)
    if known is not None:
        return bool((known >= 1).all())
    scope = site.scope.defines(name)
    maker = scope.makers.get(name) if scope is not None else None
    if maker is None or maker.op_type != "Max":
        return False
    parts = [site.const(part) for part in maker.input]
    return any(part is not None and bool((part >= 1).all()) for part in parts)
