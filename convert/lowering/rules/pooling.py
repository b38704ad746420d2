"""Pooling with dilations and rounding up, by a convolution with a kernel of ones."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from convert.lowering.site import Refuse, Site
from convert.lowering.table import down

T = TensorProto
INT_MAX = (1 << 63) - 1


@down("AveragePool", version=19)
def average_of_dilated(site: Site) -> None:
    dilations = site.attr("dilations")
    if dilations is None or all(d == 1 for d in dilations):
        site.same(drop=["dilations"])
        return
    window = _Window(site)
    total = window.total(site.inp(0))
    count = window.counts(with_pads=bool(site.attr("count_include_pad", 0)))
    site.end("Div", total, count)


@down("LpPool", version=18)
def norm_of_dilated(site: Site) -> None:
    dilations = site.attr("dilations")
    if (dilations is None or all(d == 1 for d in dilations)) and not site.attr("ceil_mode", 0):
        site.same(drop=["dilations", "ceil_mode"])
        return
    power, dtype = site.attr("p", 2), site.dtype(site.inp(0))
    raised = site.op("Pow", site.op("Abs", site.inp(0)), site.scalar(power, dtype))
    site.end("Pow", _Window(site).total(raised), site.scalar(1 / power, dtype))


class _Window:
    """The window of a pooling operator, as a convolution of one channel."""

    def __init__(self, site: Site) -> None:
        self.site, self.dtype = site, site.dtype(site.inp(0))
        self.rank = site.rank(site.inp(0)) - 2
        self.kernel = list(site.attr("kernel_shape"))
        self.strides = list(site.attr("strides") or [1] * self.rank)
        self.dilations = list(site.attr("dilations") or [1] * self.rank)
        self.auto = site.attr("auto_pad", "NOTSET")
        self.pads = list(site.attr("pads") or [0] * (2 * self.rank))
        if self.auto == "VALID":
            self.pads = [0] * (2 * self.rank)
        elif self.auto != "NOTSET":
            self._same_pads()
        self.extra = self._extra() if site.attr("ceil_mode", 0) else [0] * self.rank

    def _sizes(self) -> list[int]:
        return list(self.site.fixed(self.site.inp(0))[2:])

    def _spans(self) -> list[int]:
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    def _same_pads(self) -> None:
        before, after = [], []
        for size, span, stride in zip(self._sizes(), self._spans(), self.strides, strict=True):
            whole = max(0, (-(-size // stride) - 1) * stride + span - size)
            small, big = whole // 2, whole - whole // 2
            before.append(small if self.auto == "SAME_UPPER" else big)
            after.append(big if self.auto == "SAME_UPPER" else small)
        self.pads = [*before, *after]

    def _extra(self) -> list[int]:
        """What rounding up adds at the end: a window that starts inside of the padded input."""
        result = []
        for i, (size, span, stride) in enumerate(zip(self._sizes(), self._spans(), self.strides, strict=True)):
            room = size + self.pads[i] + self.pads[i + self.rank] - span
            count = -(-room // stride) + 1
            if (count - 1) * stride >= size + self.pads[i]:
                count -= 1
            result.append(max(0, (count - 1) * stride - room))
        return result

    def _convolve(self, name: str, pads: list[int]) -> str:
        ones = self.site.tensor(np.ones([1, 1, *self.kernel], dtype=np.float32))
        weights = ones if self.dtype == T.FLOAT else self.site.cast(ones, self.dtype)
        return self.site.op("Conv", name, weights, strides=self.strides, dilations=self.dilations, pads=pads)

    def _all_pads(self) -> list[int]:
        ends = [p + e for p, e in zip(self.pads[self.rank :], self.extra, strict=True)]
        return [*self.pads[: self.rank], *ends]

    def total(self, name: str) -> str:
        """The sum over every window."""
        site = self.site
        shape = site.op("Shape", name)
        spatial = site.slice(shape, site.longs(2), site.longs(INT_MAX), 0)
        flat = site.op("Reshape", name, site.op("Concat", site.longs(-1, 1), spatial, axis=0))
        summed = self._convolve(flat, self._all_pads())
        head = site.slice(shape, site.longs(0), site.longs(2), 0)
        tail = site.slice(site.op("Shape", summed), site.longs(2), site.longs(INT_MAX), 0)
        return site.op("Reshape", summed, site.op("Concat", head, tail, axis=0))

    def counts(self, *, with_pads: bool) -> str:
        """How many elements every window has, padding counted or not; never what rounding up added."""
        site = self.site
        if not any(self.pads) and not any(self.extra):
            return site.scalar(float(np.prod(self.kernel)), self.dtype)
        if with_pads and not any(self.extra):
            return site.scalar(float(np.prod(self.kernel)), self.dtype)
        sizes, pads = self._sizes(), self._all_pads()
        if with_pads:
            sizes = [s + self.pads[i] + self.pads[i + self.rank] for i, s in enumerate(sizes)]
            pads = [*[0] * self.rank, *self.extra]
        if np.prod(sizes) > 1 << 24:
            raise Refuse("the input is too big for counting the elements of every window")
        ones = site.tensor(np.ones([1, 1, *sizes], dtype=np.float32))
        ones = ones if self.dtype == T.FLOAT else site.cast(ones, self.dtype)
        return self._convolve(ones, pads)
