"""Reshape, Shape, Constant and their kin, Trilu, GatherND, CastLike."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from convert.lowering.site import Refuse, Site
from convert.lowering.table import down, up

INT_MAX = (1 << 63) - 1


@down("Reshape", version=14)
def zeros_in_shape(site: Site) -> None:
    """With ``allowzero`` a zero is a size: such a result has no elements, and is made from its shape alone."""
    if not site.attr("allowzero", 0):
        site.same(drop=["allowzero"])
        return
    data, shape = site.inp(0), site.inp(1)
    known = site.const(shape)
    if known is not None and 0 not in known:
        site.same(drop=["allowzero"])
        return
    empty = helper.make_tensor("value", site.dtype(data), [1], [0])
    if known is not None:
        site.end("ConstantOfShape", shape, value=empty)
        return
    least = site.reduce("ReduceMin", site.op("Abs", shape), [0], keepdims=0)
    yes, no = site.inner(), site.inner()
    made = yes.op("ConstantOfShape", shape, value=empty)
    moved = no.op("Reshape", data, shape)
    site.end_as(site.choose(site.op("Equal", least, site.long(0)), (yes, made), (no, moved)))


@down("Shape", version=15)
def part_of_shape(site: Site) -> None:
    """A Slice of the whole shape."""
    start, end = site.attr("start", 0), site.attr("end")
    if not start and end is None:
        site.same(drop=["start", "end"])
        return
    whole = site.op("Shape", site.inp(0))
    site.end("Slice", whole, site.longs(start), site.longs(INT_MAX if end is None else end))


@down("Constant", version=12)
def constant_as_tensor(site: Site) -> None:
    """Numbers, texts and lists as a tensor."""
    for attribute, dtype in (("value_float", TensorProto.FLOAT), ("value_int", TensorProto.INT64)):
        value, values = site.attr(attribute), site.attr(f"{attribute}s")
        if value is not None:
            site.end("Constant", value=helper.make_tensor("value", dtype, [], [value]))
            return
        if values is not None:
            site.end("Constant", value=helper.make_tensor("value", dtype, [len(values)], list(values)))
            return
    text, texts = site.attr("value_string"), site.attr("value_strings")
    if text is not None:
        site.end("Constant", value=helper.make_tensor("value", TensorProto.STRING, [], [text.encode()]))
    elif texts is not None:
        site.end("Constant", value=helper.make_tensor("value", TensorProto.STRING, [len(texts)], list(texts)))
    else:
        site.same()


@down("ConstantOfShape", version=20)
def constant_of_shape_type(site: Site) -> None:
    """bfloat16 is made in float and rounded."""
    value = site.attr("value")
    if value is None or value.data_type != TensorProto.BFLOAT16:
        site.same()
        return
    number = float(helper_value(value))
    wide = helper.make_tensor("value", TensorProto.FLOAT, [1], [number])
    site.end("Cast", site.op("ConstantOfShape", site.inp(0), value=wide), to=TensorProto.BFLOAT16)


def helper_value(tensor: TensorProto) -> float:
    """The one number of a tensor."""
    from onnx import numpy_helper

    return float(np.asarray(numpy_helper.to_array(tensor)).astype(np.float32).reshape(-1)[0])


@down("EyeLike", version=22)
def eye_type(site: Site) -> None:
    """bfloat16 is made in float and rounded."""
    data = site.inp(0)
    dtype = site.attr("dtype", site.dtype(data))
    if TensorProto.BFLOAT16 not in (dtype, site.dtype(data)):
        site.same()
        return
    like = site.cast(data, TensorProto.FLOAT) if site.dtype(data) == TensorProto.BFLOAT16 else data
    made = site.op("EyeLike", like, k=site.attr("k", 0), dtype=TensorProto.FLOAT)
    site.end("Cast", made, to=dtype)


@down("Trilu", version=14)
def triangle_by_where(site: Site) -> None:
    """Zero where the column’s distance from the row is on the wrong side."""
    data, dtype = site.inp(0), site.dtype(site.inp(0))
    zero, one = site.long(0), site.long(1)
    rows = site.op("Range", zero, site.squeeze(site.dim(data, -2), 0), one)
    columns = site.op("Range", zero, site.squeeze(site.dim(data, -1), 0), one)
    offset = site.op("Sub", columns, site.unsqueeze(rows, 1))
    diagonal = site.op("Reshape", site.inp(1), site.longs(1)) if site.has(1) else site.long(0)
    outside = site.op("Less" if site.attr("upper", 1) else "Greater", offset, diagonal)
    site.end("Where", outside, site.scalar(0, dtype), data)


@down("GatherND", version=12)
def batch_dims_as_indices(site: Site) -> None:
    """Batch dimensions become one leading dimension, and its number the first index."""
    batch = site.attr("batch_dims", 0)
    if not batch:
        site.same(drop=["batch_dims"])
        return
    data, indices = site.inp(0), site.inp(1)
    depth = site.dims(indices)[-1]
    if depth is None:
        raise Refuse("the last dimension of the indices is not fixed")
    data_shape, index_shape = site.op("Shape", data), site.op("Shape", indices)
    rest = site.slice(data_shape, site.longs(batch), site.longs(INT_MAX), 0)
    flat_data = site.op("Reshape", data, site.op("Concat", site.longs(-1), rest, axis=0))
    lead = site.slice(index_shape, site.longs(0), site.longs(batch), 0)
    count = site.op("ReduceProd", lead, keepdims=1)
    flat_indices = site.op("Reshape", indices, site.op("Concat", count, site.longs(-1, depth), axis=0))
    numbers = site.op("Range", site.long(0), site.squeeze(count, 0), site.long(1))
    column = site.slice(flat_indices, site.longs(0), site.longs(1), 2)
    zeros = site.op("Sub", column, column)
    own = site.op("Add", zeros, site.unsqueeze(numbers, 1, 2))
    taken = site.op("GatherND", flat_data, site.op("Concat", own, flat_indices, axis=2))
    tail = site.slice(data_shape, site.longs(batch + depth), site.longs(INT_MAX), 0)
    head = site.slice(index_shape, site.longs(0), site.longs(-1), 0)
    site.end("Reshape", taken, site.op("Concat", head, tail, axis=0))


@down("SpaceToDepth", version=28)
def columns_before_rows(site: Site) -> None:
    """``CRD`` keeps the channels apart: blocks are split off, turned to the front of their channel, and joined."""
    if site.attr("mode", "DCR") != "CRD":
        site.same(drop=["mode"])
        return
    data, block = site.inp(0), site.attr("blocksize")
    count = site.longs(block)
    sizes = [site.dim(data, axis) for axis in range(4)]
    height, width = (site.op("Div", sizes[axis], count) for axis in (2, 3))
    split = site.op("Concat", sizes[0], sizes[1], height, count, width, count, axis=0)
    turned = site.op("Transpose", site.op("Reshape", data, split), perm=[0, 1, 3, 5, 2, 4])
    channels = site.op("Mul", sizes[1], site.longs(block * block))
    site.end("Reshape", turned, site.op("Concat", sizes[0], channels, height, width, axis=0))


@up("OneHot", version=11)
def negative_classes(site: Site) -> None:
    """Since 11 negative indices count from the end; before, they were outside."""
    indices, depth = site.inp(0), site.inp(1)
    kind = site.dtype(indices)
    outside = site.cast(site.op("Reshape", depth, site.tensor_of_no_dims()), kind)
    kept = site.op("Where", site.op("Less", indices, site.scalar(0, kind)), outside, indices)
    site.same([kept, *site.node.input[1:]])
