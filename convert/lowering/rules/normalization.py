"""Normalizations by means and square roots, or by the normalization that an older opset has."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from convert.lowering.site import Refuse, Site, room_for
from convert.lowering.table import down, up

T = TensorProto


def _row_axes(site: Site, name: str) -> list[int]:
    axis = site.attr("axis", -1)
    if axis < 0:
        return list(range(axis, 0))
    return list(range(axis - site.rank(name), 0))


def _stash(site: Site, dtype: int) -> int:
    """The type that the sums run in; double stays double."""
    return dtype if dtype == T.DOUBLE else site.attr("stash_type", 1)


@down("LayerNormalization", version=17)
def layer_normalization(site: Site) -> None:
    """By mean and deviation over the last axes."""
    x, dtype = site.inp(0), site.dtype(site.inp(0))
    stash, axes = _stash(site, dtype), _row_axes(site, x)
    wide = site.cast(x, stash) if stash != dtype else x
    mean = site.reduce("ReduceMean", wide, axes)
    centred = site.op("Sub", wide, mean)
    variance = site.reduce("ReduceMean", site.op("Mul", centred, centred), axes)
    deviation = site.op("Sqrt", site.op("Add", variance, site.scalar(site.attr("epsilon", 1e-5), stash)))
    normal = site.op("Div", centred, deviation)
    normal = site.cast(normal, dtype) if stash != dtype else normal
    if site.has(2):
        site.end("Add", site.op("Mul", normal, site.inp(1)), site.inp(2))
    else:
        site.end("Mul", normal, site.inp(1))
    out = site.attr("stash_type", 1)
    site.end_as(mean if out == stash else site.cast(mean, out), 1)
    if site.wants(2):
        inverse = site.op("Reciprocal", deviation)
        site.end_as(inverse if out == stash else site.cast(inverse, out), 2)


@down("RMSNormalization", version=23)
def rms_normalization(site: Site) -> None:
    """By the root of the mean square over the last axes."""
    x, dtype = site.inp(0), site.dtype(site.inp(0))
    stash, axes = _stash(site, dtype), _row_axes(site, x)
    wide = site.cast(x, stash) if stash != dtype else x
    square = site.reduce("ReduceMean", site.op("Mul", wide, wide), axes)
    root = site.op("Sqrt", site.op("Add", square, site.scalar(site.attr("epsilon", 1e-5), stash)))
    normal = site.op("Div", wide, root)
    scale_type = site.dtype(site.inp(1))
    normal = site.cast(normal, scale_type) if stash != scale_type else normal
    site.end("Mul", normal, site.inp(1))


@down("GroupNormalization", version=21)
@down("GroupNormalization", version=18)
def group_normalization(site: Site) -> None:
    """By InstanceNormalization over the groups as channels; version 18 is deprecated and scales by group."""
    x, dtype, groups = site.inp(0), site.dtype(site.inp(0)), site.attr("num_groups")
    by_group = site.version < 21
    stash = _stash(site, dtype) if not by_group else dtype
    wide = site.cast(x, stash) if stash != dtype else x
    rows = site.reshape(wide, 0, groups, -1)
    kind = np.dtype(np.float64 if stash == T.DOUBLE else np.float32)
    room_for(groups)
    ones, zeros = (site.tensor(np.full(groups, v, dtype=kind)) for v in (1, 0))
    if stash not in (T.FLOAT, T.DOUBLE):
        ones, zeros = site.cast(ones, stash), site.cast(zeros, stash)
    normal = site.op("InstanceNormalization", rows, ones, zeros, epsilon=site.attr("epsilon", 1e-5))
    if by_group:
        scaled = site.op("Mul", normal, site.unsqueeze(site.inp(1), 1))
        shifted = site.op("Add", scaled, site.unsqueeze(site.inp(2), 1))
        site.end("Reshape", shifted, site.op("Shape", x))
        return
    normal = site.op("Reshape", normal, site.op("Shape", x))
    normal = site.cast(normal, dtype) if stash != dtype else normal
    spatial = list(range(1, site.rank(x) - 1))
    scale, bias = (site.unsqueeze(site.inp(i), *spatial) if spatial else site.inp(i) for i in (1, 2))
    site.end("Add", site.op("Mul", normal, scale), bias)


@down("BatchNormalization", version=14)
def batch_normalization(site: Site) -> None:
    """Training mode, which came with 14, is written out."""
    if not site.attr("training_mode", 0):
        if any(site.wants(i) for i in (1, 2)):
            raise Refuse("it has outputs of the training mode, which is off")
        written = site.same(drop=["training_mode"])
        del written.output[1:]
        return
    x, scale, bias, old_mean, old_variance = site.node.input
    dtype, rank = site.dtype(x), site.rank(x)
    wide = site.cast(x, T.FLOAT) if dtype != T.DOUBLE else x
    axes = [0, *range(2, rank)]
    mean = site.reduce("ReduceMean", wide, axes)
    centred = site.op("Sub", wide, mean)
    variance = site.reduce("ReduceMean", site.op("Mul", centred, centred), axes)
    kind = T.DOUBLE if dtype == T.DOUBLE else T.FLOAT
    root = site.op("Sqrt", site.op("Add", variance, site.scalar(site.attr("epsilon", 1e-5), kind)))
    normal = site.op("Div", centred, root)
    spread = [_spread(site, name, kind, rank) for name in (scale, bias)]
    result = site.op("Add", site.op("Mul", normal, spread[0]), spread[1])
    site.end("Cast", result, to=dtype)
    for index, (old, new) in enumerate(((old_mean, mean), (old_variance, variance)), start=1):
        if site.wants(index):
            _running(site, index, old, new)


def _spread(site: Site, name: str, kind: int, rank: int) -> str:
    """A value per channel so that it broadcasts over the channels of a tensor."""
    wide = site.cast(name, kind) if site.dtype(name) != kind else name
    return site.unsqueeze(wide, *range(1, rank - 1)) if rank > 2 else wide


def _running(site: Site, index: int, old: str, new: str) -> None:
    momentum, kind = site.attr("momentum", 0.9), site.dtype(old)
    flat = site.cast(site.reshape(new, -1), kind)
    kept = site.op("Mul", old, site.scalar(momentum, kind))
    site.emit("Add", [kept, site.op("Mul", flat, site.scalar(1 - momentum, kind))], [site.out(index)])


@up("BatchNormalization", version=9)
def spatial_only(site: Site) -> None:
    """The attribute is gone; only its default is left."""
    if not site.attr("spatial", 1):
        raise Refuse("statistics for each position (spatial=0) are gone since opset 9")
    site.same(drop=["spatial"])


@up("BatchNormalization", version=14)
def inference_only(site: Site) -> None:
    """Without extra outputs nothing changes."""
    if len([name for name in site.node.output if name]) > 1:
        raise Refuse("its training outputs have another meaning since opset 14")
    site.same()


@up("GroupNormalization", version=21)
def scale_per_channel(site: Site) -> None:
    """Version 18 scales by group: its scale and bias are repeated over the channels of each group."""
    channels, groups = site.dims(site.inp(0))[1], site.attr("num_groups")
    if channels is None:
        raise Refuse("the number of channels is not fixed")
    shape = site.longs(groups, channels // groups)
    parts = [site.reshape(site.op("Expand", site.unsqueeze(site.inp(i), 1), shape), -1) for i in (1, 2)]
    site.same([site.inp(0), *parts])
