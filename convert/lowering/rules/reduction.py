"""The Reduce operators: axes as attribute or input, and axes that the model computes while it runs."""

from __future__ import annotations

from onnx import TensorProto

from convert.lowering.rules.axes import taken_axes
from convert.lowering.site import Site
from convert.lowering.table import down, up

MOVED_AT_18 = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSumSquare",
)  # fmt: skip
BEFORE = {"ReduceSumSquare": "square"}
STEP = {"ReduceSumSquare": "ReduceSum", "ReduceLogSum": "ReduceSum"}
"""What is repeated axis by axis where that is not the operator itself."""


@down("ReduceSum", version=13)
@down(*MOVED_AT_18, version=18)
def axes_to_attribute(site: Site) -> None:
    """Axes by input become an attribute; computed axes become one choice per axis."""
    data, noop = site.inp(0), site.attr("noop_with_empty_axes", 0)
    axes = site.const(site.inp(1)) if site.has(1) else None
    count = (site.scope.shape(site.inp(1)) or (None,))[0] if site.has(1) else 0
    if axes is not None and axes.size:
        site.same([data], drop=["noop_with_empty_axes"], axes=[int(a) for a in axes.reshape(-1)])
    elif not site.has(1) or count == 0 or axes is not None:
        if noop:
            _no_axes(site)
        else:
            site.same([data], drop=["noop_with_empty_axes"])
    else:
        _computed_axes(site, may_be_empty=count is None)


def _no_axes(site: Site) -> None:
    """What is left of a reduction over no axes at all."""
    data = site.inp(0)
    match site.node.op_type:
        case "ReduceL1" | "ReduceL2":
            site.end("Abs", data)
        case "ReduceLogSum":
            site.end("Log", data)
        case "ReduceSumSquare":
            site.end("Mul", data, data)
        case _:
            site.end("Identity", data)


def _computed_axes(site: Site, *, may_be_empty: bool) -> None:
    data, op = site.inp(0), site.node.op_type
    rank = site.rank(data)
    taken = taken_axes(site, site.inp(1), site.longs(rank))
    if may_be_empty and not site.attr("noop_with_empty_axes", 0):
        none = site.op("Equal", site.op("Shape", site.inp(1)), site.longs(0))
        taken = site.op("Add", taken, site.cast(none, TensorProto.INT64))
    flags = site.cast(taken, TensorProto.BOOL)
    value = site.op("Mul", data, data) if op == "ReduceSumSquare" else data
    for axis in range(rank):
        yes, no = site.inner(), site.inner()
        reduced = yes.reduce(STEP.get(op, op), value, [axis])
        value = site.choose(site.op("Gather", flags, site.long(axis), axis=0), (yes, reduced), (no, value))
    if op == "ReduceLogSum":
        value = site.op("Log", value)
    if not site.attr("keepdims", 1):
        left = site.op("Compress", site.op("Shape", value), site.op("Not", flags), axis=0)
        value = site.op("Reshape", value, left)
    site.end_as(value)


@up("ReduceSum", version=13)
@up(*MOVED_AT_18, version=18)
def axes_to_input(site: Site) -> None:
    """The attribute becomes an input."""
    axes = site.attr("axes")
    site.same([site.inp(0), site.longs(*axes)] if axes else None, drop=["axes"])
