"""``auto_pad`` and ``ceil_mode`` written out as ``pads``.

SAME_LOWER is read as SAME_UPPER by some compilers, and refused by others; some give ``ceil_mode`` another shape.
"""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.pooling import Window
from convert.lowering.site import Refuse, Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node

OPS = ("AveragePool", "Conv", "LpPool", "MaxPool")


def _automatic(site: Site) -> bool:
    return site.node.op_type in OPS and (site.attr("auto_pad", "NOTSET") != "NOTSET" or bool(site.attr("ceil_mode", 0)))


def _explicit(site: Site) -> None:
    """The pads that the attribute stands for; windows and sizes must be fixed unless there are none (VALID)."""
    mode = site.attr("auto_pad", "NOTSET")
    if mode == "NOTSET":
        _rounded_up(site)
        return
    kernel = site.attr("kernel_shape") or list(site.fixed(site.inp(1))[2:])
    rank = len(kernel)
    strides, dilations = (site.attr(name) or [1] * rank for name in ("strides", "dilations"))
    pads = [0] * (2 * rank)
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        for axis, size in enumerate(site.dims(site.inp(0))[2:]):
            whole = _total(size, (kernel[axis] - 1) * dilations[axis] + 1, strides[axis])
            small, big = whole // 2, whole - whole // 2
            pads[axis], pads[axis + rank] = (small, big) if mode == "SAME_UPPER" else (big, small)
    site.same(drop=["auto_pad", "ceil_mode"], pads=pads)


def _rounded_up(site: Site) -> None:
    """Padding behind, so that the last window, which begins inside and ends outside, is a whole one.

    What lies outside counts for nothing in MaxPool, and in AveragePool where padding is not counted.
    """
    if site.node.op_type not in ("MaxPool", "AveragePool") or site.attr("count_include_pad", 0):
        raise Refuse("what lies outside would count")
    window = Window(site)
    pads = window.ends()
    if any(pad >= size for pad, size in zip(pads[window.rank :], window.kernel, strict=True)):
        raise Refuse("the padding would be as wide as the window")
    site.same(drop=["ceil_mode"], pads=pads)


def _total(size: int | None, span: int, stride: int) -> int:
    """All padding along one axis, so that the output has a window for every stride."""
    if stride == 1:
        return span - 1
    if size is None:
        raise Refuse("the size is not fixed")
    return max(0, (-(-size // stride) - 1) * stride + span - size)


def run(model: ModelProto, argument: str) -> list[str]:
    """Write out the padding of every node that leaves it open; says which."""
    return each_node(model, _explicit, _automatic)


RULE = Rewrite(
    name="explicit-pads",
    title="auto_pad and ceil_mode as explicit pads",
    avoids=(
        *(Avoided(op=o, attribute="auto_pad", values=("SAME_LOWER", "SAME_UPPER", "VALID")) for o in OPS),
        *(Avoided(op=o, attribute="ceil_mode", values=(1,)) for o in ("AveragePool", "MaxPool")),
    ),
    run=run,
)
