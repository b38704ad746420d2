"""``MaxPool`` with a large window as smaller ones after each other, or as ``GlobalMaxPool``: large ones run slowly.

The greatest of a window of 20 is the greatest of ten windows of 11 that start beside each other: exact.
"""

from __future__ import annotations

import math

from onnx import ModelProto

from convert.lowering.site import Refuse, Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node

CELLS = 255
"""Cells of a window that CANN's AI Core takes in two dimensions (hicann/ops-nn, max_pool_onnx_plugin.cpp)."""


def _large(site: Site) -> bool:
    return site.node.op_type == "MaxPool" and math.prod(site.attr("kernel_shape") or [1]) > CELLS


def _smaller(site: Site) -> None:
    kernel = list(site.attr("kernel_shape"))
    rank = len(kernel)
    pads, strides = site.attr("pads") or [0] * (2 * rank), site.attr("strides") or [1] * rank
    if site.wants(1) or any(site.attr(name, 0) for name in ("ceil_mode", "storage_order")):
        raise Refuse("indices, ceil_mode and storage_order are not kept")
    if site.attr("auto_pad", "NOTSET") != "NOTSET" or any(one != 1 for one in site.attr("dilations") or []):
        raise Refuse("the padding is left open, or the window has holes")
    if not any(pads) and list(site.dims(site.inp(0))[2:]) == kernel:
        site.end("GlobalMaxPool", site.inp(0))
        return
    stages = _stages(kernel)
    if any(pads[axis] >= stages[0][axis % rank] for axis in range(2 * rank)):
        raise Refuse("the padding is wider than the first of the smaller windows")
    value = site.op("MaxPool", site.inp(0), kernel_shape=stages[0], pads=pads, strides=[1] * rank)
    for window in stages[1:-1]:
        value = site.op("MaxPool", value, kernel_shape=window, strides=[1] * rank)
    site.end("MaxPool", value, kernel_shape=stages[-1], strides=strides)


def _stages(kernel: list[int]) -> list[list[int]]:
    """Windows that make up one together: along each axis their sizes less one add up to its size less one."""
    side = int(CELLS ** (1 / len(kernel)))
    count = max(2, *(-(-(size - 1) // (side - 1)) for size in kernel))
    return [[(size - 1 + count - 1 - stage) // count + 1 for size in kernel] for stage in range(count)]


def run(model: ModelProto, argument: str) -> list[str]:
    """Split every pooling over a large window; says which."""
    return each_node(model, _smaller, _large)


RULE = Rewrite(
    name="split-maxpool",
    title="MaxPool with a large window as smaller ones",
    avoids=(Avoided(op="MaxPool", attribute="kernel_shape", fact="large-window"),),
    run=run,
)
