"""Resize along axes of known size as products with constant matrices: for what older versions of Resize can't say.

The weights follow ONNX's definition: an output pixel lies between two input pixels, and its neighbours are weighted by
their distance; with ``antialias`` the window is stretched while shrinking, so that every input pixel counts.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from convert.lowering.site import Refuse, Site, room_for

T = TensorProto
MAX_MATRIX = 1 << 22
Array = np.ndarray


def resize_by_matrix(site: Site, scales: dict[int, float], sizes: dict[int, int]) -> None:
    """One product for every axis that changes. ``scales`` and ``sizes`` are by axis, of the output."""
    mode, place = site.attr("mode", "nearest"), site.attr("coordinate_transformation_mode", "half_pixel")
    if mode not in ("linear", "cubic") or place == "tf_crop_and_resize":
        raise Refuse(f"{mode} sampling with {place} is no product with a matrix")
    dtype, dims = site.dtype(site.inp(0)), site.dims(site.inp(0))
    if dtype not in (T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16):
        raise Refuse("integers would be rounded at another place")
    kind = T.DOUBLE if dtype == T.DOUBLE else T.FLOAT
    value = site.inp(0) if dtype == kind else site.cast(site.inp(0), kind)
    for axis, scale in scales.items():
        size = dims[axis]
        if size is None or size * sizes[axis] > MAX_MATRIX:
            raise Refuse("the size of a resized axis is not fixed, or too large for a matrix")
        if size == sizes[axis] and scale == 1.0:
            continue
        matrix = axis_weights(site, size, sizes[axis], scale).astype(np.float64 if kind == T.DOUBLE else np.float32)
        value = _along(site, value, matrix, axis, len(dims))
    site.end("Cast", value, to=dtype)


def _along(site: Site, value: str, matrix: Array, axis: int, rank: int) -> str:
    """A matrix [input, output] applied along one axis."""
    if axis == rank - 1:
        return site.op("MatMul", value, site.tensor(matrix))
    if axis == rank - 2:
        return site.op("MatMul", site.tensor(matrix.T), value)
    order = [i for i in range(rank) if i != axis] + [axis]
    turned = site.op("MatMul", site.op("Transpose", value, perm=order), site.tensor(matrix))
    return site.op("Transpose", turned, perm=[order.index(i) for i in range(rank)])


def axis_weights(site: Site, size: int, output: int, scale: float) -> Array:
    """The matrix [size, output] of one axis."""
    room_for(size, output)
    weights = np.zeros((size, output))
    outside_counts = not site.attr("exclude_outside", 0)
    for column in range(output):
        point = _origin(site.attr("coordinate_transformation_mode", "half_pixel"), column, size, output, scale)
        base = math.ceil(point) - 1
        shares = _shares(site, point - base, scale)
        first = base - len(shares) // 2 + 1
        places = np.arange(first, first + len(shares))
        if not outside_counts:
            shares = np.where((places >= 0) & (places < size), shares, 0)
            shares = shares / shares.sum()
        np.add.at(weights[:, column], places.clip(0, size - 1), shares)
    return weights


def _origin(mode: str, column: int, size: int, output: int, scale: float) -> float:
    """Where an output pixel lies among the input pixels."""
    whole = scale * size
    if mode == "align_corners":
        return 0.0 if whole == 1 else column * (size - 1) / (whole - 1)
    if mode == "asymmetric":
        return column / scale
    if mode == "pytorch_half_pixel" and whole == 1:
        return -0.5
    moved = (column + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return size / 2 * (1 - output / whole) + moved
    return moved


def _shares(site: Site, part: float, scale: float) -> Array:
    """The weights of the neighbours of a point that lies ``part`` (0 excluded, 1 included) behind the middle one."""
    linear = site.attr("mode", "nearest") == "linear"
    stretch = min(scale, 1.0) if site.attr("antialias", 0) else 1.0
    reach = 1 if linear else 2
    start = math.floor(-reach / stretch) + 1
    distance = np.abs((np.arange(start, 2 - start) - part) * stretch)
    shares = np.clip(1 - distance, 0, 1) if linear else _cubic(distance, site.attr("cubic_coeff_a", -0.75))
    return shares / shares.sum() if site.attr("antialias", 0) else shares


def _cubic(x: Array, a: float) -> Array:
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))
