"""Squeeze, Unsqueeze, Split, and the operators along one axis: Softmax and its kin, ArgMax, TopK."""

from __future__ import annotations

from onnx import TensorProto

from convert.lowering.site import Refuse, Site
from convert.lowering.table import down, up

INT_MIN = -(1 << 63)


def taken_axes(site: Site, axes: str, rank: str) -> str:
    """For each axis of a rank (int64 vector of one) 1 where ``axes`` (computed) names it, else 0: an int64 vector."""
    zero, one = site.long(0), site.long(1)
    numbers = site.op("Range", zero, site.squeeze(rank, 0), one)
    counted = site.op("Where", site.op("Less", axes, zero), site.op("Add", axes, rank), axes)
    equal = site.op("Equal", site.unsqueeze(numbers, 1), site.unsqueeze(counted, 0))
    return site.reduce("ReduceSum", site.cast(equal, TensorProto.INT64), [1], keepdims=0)


@down("Squeeze", version=13)
def squeeze_axes_to_attribute(site: Site) -> None:
    """Axes that the model computes become the shape of a Reshape."""
    data = site.inp(0)
    if not site.has(1):
        site.same([data])
        return
    axes = site.const(site.inp(1))
    if axes is not None:
        site.same([data], axes=[int(a) for a in axes.reshape(-1)])
        return
    shape = site.op("Shape", data)
    taken = taken_axes(site, site.inp(1), site.op("Shape", shape))
    kept = site.op("Equal", taken, site.long(0))
    site.end("Reshape", data, site.op("Compress", shape, kept, axis=0))


@down("Unsqueeze", version=13)
def unsqueeze_axes_to_attribute(site: Site) -> None:
    """Axes that the model computes become the shape of a Reshape."""
    data = site.inp(0)
    axes = site.const(site.inp(1))
    if axes is not None:
        site.same([data], axes=[int(a) for a in axes.reshape(-1)])
        return
    shape = site.op("Shape", data)
    rank = site.op("Add", site.op("Shape", shape), site.op("Shape", site.inp(1)))
    taken = taken_axes(site, site.inp(1), rank)
    kept = site.op("Equal", taken, site.long(0))
    places = site.squeeze(site.op("NonZero", kept), 0)
    site.end("Reshape", data, site.op("ScatterElements", taken, places, shape, axis=0))


@up("Squeeze", "Unsqueeze", version=13)
def axes_to_input(site: Site) -> None:
    """The attribute becomes an input."""
    axes = site.attr("axes")
    site.same([site.inp(0), site.longs(*axes)] if axes is not None else [site.inp(0)], drop=["axes"])


@down("Split", version=13)
def split_sizes_to_attribute(site: Site) -> None:
    """Sizes that the model computes become one Slice for each part."""
    if not site.has(1):
        site.same()
        return
    sizes = site.const(site.inp(1))
    if sizes is not None:
        site.same([site.inp(0)], split=[int(s) for s in sizes])
        return
    start = site.longs(0)
    for index in range(len(site.node.output)):
        size = site.op("Slice", site.inp(1), site.longs(index), site.longs(index + 1))
        end = site.op("Add", start, size)
        part = site.slice(site.inp(0), start, end, site.attr("axis", 0))
        site.end_as(part, index)
        start = end


@up("Split", version=13)
def split_sizes_to_input(site: Site) -> None:
    """The attribute becomes an input."""
    sizes = site.attr("split")
    site.same([site.inp(0), site.longs(*sizes)] if sizes else None, drop=["split"])


@down("Split", version=18)
def split_count_to_sizes(site: Site) -> None:
    """Equal parts, the last one smaller, are written out as sizes."""
    if site.has(1):
        site.same(drop=["num_outputs"])
        return
    count, axis = len(site.node.output), site.attr("axis", 0)
    shape = site.scope.shape(site.inp(0))
    size = shape[axis] if shape is not None else None
    if size is not None:
        chunk = -(-size // count)
        site.same([site.inp(0), site.longs(*[chunk] * (count - 1), size - chunk * (count - 1))], drop=["num_outputs"])
        return
    whole = site.dim(site.inp(0), axis)
    padded = site.op("Add", whole, site.longs(count - 1))
    chunk_size = site.op("Div", padded, site.longs(count))
    last = site.op("Sub", whole, site.op("Mul", chunk_size, site.longs(count - 1)))
    site.same([site.inp(0), site.op("Concat", *[chunk_size] * (count - 1), last, axis=0)], drop=["num_outputs"])


@up("Split", version=18)
def split_count(site: Site) -> None:
    """Since 18 the number of parts is said, where no sizes are."""
    site.same(num_outputs=None if site.has(1) else len(site.node.output))


@down("Softmax", "LogSoftmax", "Hardmax", version=13)
def softmax_axis_last(site: Site) -> None:
    """Before 13 everything from the axis on is one row; along the last axis both meanings agree."""
    axis, op, data = site.attr("axis", -1), site.node.op_type, site.inp(0)
    shape = site.scope.shape(data)
    if axis == -1 or (shape is not None and axis in (len(shape) - 1, -1)):
        site.same(axis=-1)
        return
    if shape is None:
        raise Refuse(f"the rank of '{data}' is not known, and {op} at opset 12 works on the last axis only")
    rank = len(shape)
    order = list(range(rank))
    order[site.axis(axis, rank)], order[-1] = order[-1], order[site.axis(axis, rank)]
    turned = site.op(op, site.op("Transpose", data, perm=order), axis=-1)
    site.end("Transpose", turned, perm=order)


@up("Softmax", "LogSoftmax", "Hardmax", version=13)
def softmax_rows(site: Site) -> None:
    """Everything from the axis on as one row."""
    axis, data = site.attr("axis", 1), site.inp(0)
    shape = site.scope.shape(data)
    if axis == -1 or (shape is not None and axis == len(shape) - 1):
        site.same(axis=-1)
        return
    rows = site.op(site.node.op_type, site.op("Flatten", data, axis=axis), axis=-1)
    site.end("Reshape", rows, site.op("Shape", data))


@down("ArgMax", "ArgMin", version=12)
def last_index_by_reversal(site: Site) -> None:
    """The last of equals is the first of the reversed input."""
    if not site.attr("select_last_index", 0):
        site.same(drop=["select_last_index"])
        return
    axis, data = site.attr("axis", 0), site.inp(0)
    backwards = site.slice(data, site.longs(-1), site.longs(INT_MIN), axis, site.longs(-1))
    found = site.op(site.node.op_type, backwards, axis=axis, keepdims=site.attr("keepdims", 1))
    size = site.op("Gather", site.op("Shape", data), site.long(axis), axis=0)
    site.end("Sub", site.op("Sub", size, site.long(1)), found)


@up("TopK", version=10)
def topk_count_to_input(site: Site) -> None:
    """The attribute becomes an input."""
    site.same([site.inp(0), site.longs(site.attr("k"))], drop=["k"])


@up("Slice", version=10)
def slice_bounds_to_inputs(site: Site) -> None:
    """The attributes become inputs."""
    axes = site.attr("axes")
    inputs = [site.inp(0), site.longs(*site.attr("starts")), site.longs(*site.attr("ends"))]
    site.same([*inputs, site.longs(*axes)] if axes else inputs, drop=["starts", "ends", "axes"])
