"""Fourier transforms as products with a matrix of cosines and sines, and the weights of mel bands."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from convert.lowering.site import Refuse, Site
from convert.lowering.table import down, up

T = TensorProto
Count = int | str
"""A number, or the name of an int64 scalar that the model computes."""
MAX_MATRIX = 1 << 22


def by_axis(site: Site, axis: str, count: int, make: Callable[[Site, int], str]) -> str:
    """What ``make`` writes for an axis that the model computes (0 … count-1): a choice for each."""
    value = make(site, count - 1)
    for index in reversed(range(count - 1)):
        yes, no = site.inner(), site.inner()
        taken = make(yes, index)
        is_it = site.op("Equal", axis, site.long(index))
        value = site.choose(is_it, (yes, taken), (no, value))
    return value


def axis_from_front(site: Site, axis: str, rank: int) -> str:
    """A computed axis as int64 scalar counted from the front."""
    wide = site.op("Reshape", site.cast(axis, T.INT64), site.tensor_of_no_dims())
    return site.op("Mod", site.op("Add", wide, site.long(rank)), site.long(rank))


@down("DFT", version=20)
def axis_to_attribute(site: Site) -> None:
    """The input becomes an attribute; a computed one becomes a choice."""
    data, length = site.inp(0), site.inp(1)
    known = site.const(site.inp(2)) if site.has(2) else None
    if not site.has(2) or known is not None:
        axis = -2 if known is None else int(known.reshape(-1)[0])
        if axis < 0:
            axis += site.rank(data)
        site.same([data, length], axis=axis)
        return
    rank = site.rank(data)
    given = {name: site.attr(name, 0) for name in ("inverse", "onesided")}
    axis_name = axis_from_front(site, site.inp(2), rank)
    site.end_as(by_axis(site, axis_name, rank - 1, lambda s, i: s.op("DFT", data, length, axis=i, **given)))


@up("DFT", version=20)
def axis_to_input(site: Site) -> None:
    """The attribute becomes an input."""
    site.same([site.inp(0), site.inp(1), site.long(site.attr("axis", 1))], drop=["axis"])


@down("DFT", version=17)
def dft_by_matrix(site: Site) -> None:
    """Real and imaginary part times cosines and sines."""
    data, rank, dtype = site.inp(0), site.rank(site.inp(0)), site.dtype(site.inp(0))
    axis = site.attr("axis", 1) % rank
    order = [i for i in range(rank - 1) if i != axis] + [axis]
    inverse, onesided = site.attr("inverse", 0), site.attr("onesided", 0)
    length, rows, columns, used = _lengths(site, axis, bool(inverse), bool(onesided))
    kind = _sum_type(dtype)
    parts = [site.op("Transpose", part, perm=order) for part in _parts(site, data, kind)]
    parts = [site.slice(part, site.longs(0), _vector(site, used), rank - 2) for part in parts]
    if rows is None:
        rows = site.squeeze(site.op("Gather", site.op("Shape", parts[0]), site.longs(rank - 2), axis=0), 0)
    wave = _Wave(site, kind, length, rows, columns)
    results = wave.transform(parts, inverse=bool(inverse), onesided=bool(onesided))
    back = [order.index(i) for i in range(rank - 1)]
    ends = [site.unsqueeze(site.op("Transpose", part, perm=back), rank - 1) for part in results]
    joined = site.op("Concat", *ends, axis=rank - 1)
    site.end("Cast", joined, to=dtype)


def _lengths(site: Site, axis: int, inverse: bool, onesided: bool) -> tuple[Count, Count | None, Count, Count]:
    """The length of the transform, the rows and columns of its matrix, and how much of the input it reads."""
    size, given = site.dims(site.inp(0))[axis], site.const(site.inp(1)) if site.has(1) else None
    if size is not None and (given is not None or not site.has(1)):
        length = int(given.reshape(-1)[0]) if given is not None else 2 * (size - 1) if inverse and onesided else size
        length = max(length, 1)
        half = length // 2 + 1
        used = half if inverse and onesided else length
        return length, min(size, used), half if onesided and not inverse else length, used
    if site.has(1):
        name = site.op("Reshape", site.cast(site.inp(1), T.INT64), site.tensor_of_no_dims())
    else:
        name = site.squeeze(site.dim(site.inp(0), axis), 0)
        if inverse and onesided:
            name = site.op("Mul", site.op("Sub", name, site.long(1)), site.long(2))
    middle = site.op("Add", site.op("Div", name, site.long(2)), site.long(1))
    return name, None, middle if onesided and not inverse else name, middle if inverse and onesided else name


def _vector(site: Site, count: Count) -> str:
    return site.longs(count) if isinstance(count, int) else site.unsqueeze(count, 0)


def _sum_type(dtype: int) -> int:
    """A long sum that comes to nearly nothing needs more digits than its terms have."""
    return T.DOUBLE if dtype in (T.FLOAT, T.DOUBLE) else T.FLOAT


def _parts(site: Site, data: str, kind: int) -> list[str]:
    """The real part, and the imaginary part where there is one, in the type that the sums run in."""
    count = site.dims(data)[-1]
    if count not in (1, 2):
        raise Refuse("it is not known whether its input is real or complex")
    data = data if site.dtype(data) == kind else site.cast(data, kind)
    return [site.op("Gather", data, site.long(i), axis=-1) for i in range(count)]


class _Wave:
    """Cosines and sines of 2πkt/n; the product kt is taken modulo n in integers, so that large ones stay exact."""

    def __init__(self, site: Site, dtype: int, length: Count, rows: Count, columns: Count) -> None:
        self.site, self.dtype = site, dtype
        if isinstance(length, int) and isinstance(rows, int) and isinstance(columns, int):
            self._constant(length, rows, columns)
        else:
            names = [site.long(n) if isinstance(n, int) else n for n in (length, rows, columns)]
            self._computed(names[0], names[1], names[2])

    def _constant(self, length: int, rows: int, columns: int) -> None:
        site = self.site
        if rows * columns > MAX_MATRIX:
            raise Refuse(f"a transform of {length} points needs a matrix of {rows * columns} numbers")
        self.length, self.rows = site.long(length), site.tensor(np.arange(rows, dtype=np.int64))
        angle = np.outer(np.arange(rows), np.arange(columns)) % length * (2 * np.pi / length)
        kind = np.float64 if self.dtype == T.DOUBLE else np.float32
        pair = [np.round(function(angle), 15).astype(kind) for function in (np.cos, np.sin)]
        names = [site.tensor(matrix) for matrix in pair]
        exact = self.dtype in (T.FLOAT, T.DOUBLE)
        self.cosine, self.sine = names if exact else (site.cast(name, self.dtype) for name in names)

    def _computed(self, length: str, rows: str, columns: str) -> None:
        site = self.site
        zero, one = site.long(0), site.long(1)
        self.length, self.rows = length, site.op("Range", zero, rows, one)
        numbers = site.op("Range", zero, columns, one)
        product = site.op("Mod", site.op("Mul", site.unsqueeze(self.rows, 1), numbers), length)
        share = site.op("Div", site.cast(product, T.DOUBLE), site.cast(length, T.DOUBLE))
        angle = site.op("Mul", share, site.scalar(2 * math.pi, T.DOUBLE))
        self.cosine, self.sine = (site.cast(site.op(op, angle), self.dtype) for op in ("Cos", "Sin"))

    def transform(self, parts: list[str], *, inverse: bool, onesided: bool) -> list[str]:
        """Real and imaginary part along the last axis; the real part alone for a one-sided inverse."""
        site = self.site
        if inverse and onesided:
            return [self._real_inverse(parts)]
        real, imaginary = parts[0], parts[1] if len(parts) > 1 else ""
        first = site.op("MatMul", real, self.cosine)
        second = site.op("MatMul", real, self.sine)
        if not inverse:
            second = site.op("Neg", second)
        if imaginary:
            sines = site.op("MatMul", imaginary, self.sine)
            first = site.op("Sub" if inverse else "Add", first, sines)
            second = site.op("Add", second, site.op("MatMul", imaginary, self.cosine))
        if inverse:
            scale = site.cast(self.length, self.dtype)
            first, second = site.op("Div", first, scale), site.op("Div", second, scale)
        return [first, second]

    def _real_inverse(self, parts: list[str]) -> str:
        """Every frequency but the first, and the middle one of an even length, stands for two."""
        site = self.site
        if len(parts) < 2:
            raise Refuse("a one-sided inverse needs a complex input")
        twice = site.op("Mul", self.rows, site.long(2))
        alone = site.op("Or", site.op("Equal", twice, site.long(0)), site.op("Equal", twice, self.length))
        weight = site.op("Where", alone, site.scalar(1, self.dtype), site.scalar(2, self.dtype))
        real, imaginary = (site.op("Mul", part, weight) for part in parts)
        total = site.op("Sub", site.op("MatMul", real, self.cosine), site.op("MatMul", imaginary, self.sine))
        return site.op("Div", total, site.cast(self.length, self.dtype))


@down("STFT", version=17)
def stft_by_matrix(site: Site) -> None:
    """Frames are gathered, weighted by the window, and transformed."""
    signal, dtype = site.inp(0), site.dtype(site.inp(0))
    none = site.tensor_of_no_dims()
    step = site.op("Reshape", site.cast(site.inp(1), T.INT64), none)
    if site.has(3):
        length = site.op("Reshape", site.cast(site.inp(3), T.INT64), none)
    elif site.has(2):
        length = site.squeeze(site.op("Shape", site.inp(2)), 0)
    else:
        raise Refuse("neither a window nor a frame length is given")
    zero, one = site.long(0), site.long(1)
    size = site.squeeze(site.dim(signal, 1), 0)
    count = site.op("Add", site.op("Div", site.op("Sub", size, length), step), one)
    starts = site.op("Mul", site.op("Range", zero, count, one), step)
    places = site.op("Add", site.unsqueeze(starts, 1), site.op("Range", zero, length, one))
    kind = _sum_type(dtype)
    parts = [site.op("Gather", part, places, axis=1) for part in _parts(site, signal, kind)]
    if site.has(2):
        parts = [site.op("Mul", part, site.cast(site.inp(2), kind)) for part in parts]
    onesided = site.attr("onesided", 1)
    half = site.op("Add", site.op("Div", length, site.long(2)), one)
    wave = _Wave(site, kind, length, length, half if onesided else length)
    results = wave.transform(parts, inverse=False, onesided=bool(onesided))
    joined = site.op("Concat", *(site.unsqueeze(part, 3) for part in results), axis=3)
    site.end("Cast", joined, to=dtype)


@down("HannWindow", "HammingWindow", "BlackmanWindow", version=17)
def window(site: Site) -> None:
    """Sums of cosines over the window; a periodic one is a symmetric one that is one longer."""
    weights = {"HannWindow": (0.5, 0.5, 0.0), "HammingWindow": (25 / 46, 21 / 46, 0.0)}
    first, second, third = weights.get(site.node.op_type, (0.42, 0.5, 0.08))
    size = site.op("Reshape", site.cast(site.inp(0), T.INT64), site.tensor_of_no_dims())
    numbers = site.op("Range", site.long(0), size, site.long(1))
    whole = size if site.attr("periodic", 1) else site.op("Sub", size, site.long(1))
    share = site.op("Div", site.cast(numbers, T.FLOAT), site.cast(whole, T.FLOAT))
    angle = site.op("Mul", share, site.scalar(2 * math.pi, T.FLOAT))
    wave = site.op("Mul", site.op("Cos", angle), site.scalar(second, T.FLOAT))
    value = site.op("Sub", site.scalar(first, T.FLOAT), wave)
    if third:
        double = site.op("Cos", site.op("Mul", angle, site.scalar(2, T.FLOAT)))
        value = site.op("Add", value, site.op("Mul", double, site.scalar(third, T.FLOAT)))
    site.end("Cast", value, to=site.attr("output_datatype", T.FLOAT))
