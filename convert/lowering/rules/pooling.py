"""Pooling with dilations and rounding up, by a convolution with a kernel of ones."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from convert.lowering.site import Refuse, Site, room_for
from convert.lowering.table import down, up

T = TensorProto
INT_MAX = (1 << 63) - 1


@down("AveragePool", version=19)
def average_of_dilated(site: Site) -> None:
    """The sum over the dilated window by its number of elements."""
    dilations = site.attr("dilations")
    if dilations is None or all(d == 1 for d in dilations):
        site.same(drop=["dilations"])
        return
    window = Window(site)
    total = window.total(site.inp(0))
    count = window.counts(with_pads=bool(site.attr("count_include_pad", 0)))
    site.end("Div", total, count)


@down("LpPool", version=18)
def norm_of_dilated(site: Site) -> None:
    """The root of the sum of powers over the window."""
    dilations = site.attr("dilations")
    if (dilations is None or all(d == 1 for d in dilations)) and not site.attr("ceil_mode", 0):
        site.same(drop=["dilations", "ceil_mode"])
        return
    power, dtype = site.attr("p", 2), site.dtype(site.inp(0))
    raised = site.op("Pow", site.op("Abs", site.inp(0)), site.scalar(power, dtype))
    site.end("Pow", Window(site).total(raised), site.scalar(1 / power, dtype))


@down("AveragePool", "MaxPool", "LpPool", version=22)
def last_window_on_padding(site: Site) -> None:
    """Since 22 a window that rounding up would start on the padding is left out; before, that was not said."""
    if not site.attr("ceil_mode", 0) or site.attr("auto_pad", "NOTSET") != "NOTSET":
        site.same()
        return
    window = Window(site, keep_ceil=True)
    gaps = zip(window.pads[window.rank :], window.strides, window.spans(), strict=True)
    if all(pad + stride <= span for pad, stride, span in gaps):
        site.same()
        return
    window.extra = window.rounding()
    if site.node.op_type == "AveragePool" and site.attr("count_include_pad", 0):
        site.end("Div", window.total(site.inp(0)), window.counts(with_pads=True))
        return
    site.same(drop=["ceil_mode"], pads=window.ends())


class Window:
    """The window of a pooling operator, as a convolution of one channel."""

    def __init__(self, site: Site, *, keep_ceil: bool = False) -> None:
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
        rounds = site.attr("ceil_mode", 0) and not keep_ceil
        self.extra = self.rounding() if rounds else [0] * self.rank

    def _sizes(self) -> list[int]:
        return list(self.site.fixed(self.site.inp(0))[2:])

    def spans(self) -> list[int]:
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    def _same_pads(self) -> None:
        before, after = [], []
        for size, span, stride in zip(self._sizes(), self.spans(), self.strides, strict=True):
            whole = max(0, (-(-size // stride) - 1) * stride + span - size)
            small, big = whole // 2, whole - whole // 2
            before.append(small if self.auto == "SAME_UPPER" else big)
            after.append(big if self.auto == "SAME_UPPER" else small)
        self.pads = [*before, *after]

    def rounding(self) -> list[int]:
        """What must be added to the end (or taken from its padding) so that rounding down gives the same windows."""
        result = []
        for i, (size, span, stride) in enumerate(zip(self._sizes(), self.spans(), self.strides, strict=True)):
            inside = size + self.pads[i]
            room = inside + self.pads[i + self.rank] - span
            count = -(-room // stride) + 1
            if (count - 1) * stride >= inside:
                count -= 1
            wanted = max(0, (count - 1) * stride + span - inside)
            result.append(wanted - self.pads[i + self.rank])
        return result

    def ends(self) -> list[int]:
        """The pads with what rounding up adds."""
        ends = [p + e for p, e in zip(self.pads[self.rank :], self.extra, strict=True)]
        return [*self.pads[: self.rank], *ends]

    def _convolve(self, name: str, pads: list[int]) -> str:
        room_for(*self.kernel)
        ones = self.site.tensor(np.ones([1, 1, *self.kernel], dtype=np.float32))
        weights = ones if self.dtype == T.FLOAT else self.site.cast(ones, self.dtype)
        return self.site.op("Conv", name, weights, strides=self.strides, dilations=self.dilations, pads=pads)

    def total(self, name: str) -> str:
        """The sum over every window."""
        site = self.site
        shape = site.op("Shape", name)
        spatial = site.slice(shape, site.longs(2), site.longs(INT_MAX), 0)
        flat = site.op("Reshape", name, site.op("Concat", site.longs(-1, 1), spatial, axis=0))
        summed = self._convolve(flat, self.ends())
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
        sizes, pads = self._sizes(), self.ends()
        if with_pads:
            kept = [p + min(0, e) for p, e in zip(self.pads[self.rank :], self.extra, strict=True)]
            sizes = [s + self.pads[i] + kept[i] for i, s in enumerate(sizes)]
            pads = [*[0] * self.rank, *(max(0, e) for e in self.extra)]
        room_for(*sizes)
        ones = site.tensor(np.ones([1, 1, *sizes], dtype=np.float32))
        ones = ones if self.dtype == T.FLOAT else site.cast(ones, self.dtype)
        return self._convolve(ones, pads)


@up("ConvTranspose", version=11)
def side_of_odd_padding(site: Site) -> None:
    """Versions 1 and 11 describe the side of odd padding in opposite ways."""
    if site.attr("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        raise Refuse("on which side auto_pad puts odd padding was changed with opset 11")
    site.same()
