"""Attention in its plain form, cache updates and gated activations; other forms are expanded by ONNX's definition."""

from __future__ import annotations

import math

from onnx import TensorProto

from convert.lowering.site import Refuse, Site
from convert.lowering.table import PREFERRED, down

T = TensorProto


LOWEST: dict[int, float] = {T.FLOAT: -3.4028234663852886e38, T.DOUBLE: -1.7976931348623157e308, T.FLOAT16: -65504.0}


def is_plain(site: Site) -> bool:
    """No cache, no grouped heads, no capping, one output; at most a mask over all keys, or a causal one."""
    unusual = ("softcap", "qk_matmul_output_mode", "softmax_precision")
    if any(site.attr(name) for name in unusual) or any(site.has(i) for i in (4, 5, 6)):
        return False
    if any(site.attr(f"{side}_window_size", -1) != -1 for side in ("left", "right")):
        return False
    if any(site.wants(i) for i in (1, 2, 3)) or site.scope.dtype(site.inp(0)) not in LOWEST:
        return False
    shapes = [site.scope.shape(site.inp(i)) for i in range(3)]
    if any(shape is None or len(shape) not in (3, 4) for shape in shapes):
        return False
    heads, width = _heads(site), _width(site)
    if None in heads or heads[0] != heads[1] or width is None:
        return False
    return not site.has(3) or (not site.attr("is_causal", 0) and _covers_all_keys(site))


def _heads(site: Site) -> list[int | None]:
    """The number of heads of queries and of keys."""
    return [
        site.dims(site.inp(i))[1] if site.rank(site.inp(i)) == 4 else site.attr(name)
        for i, name in enumerate(("q_num_heads", "kv_num_heads"))
    ]


def _width(site: Site) -> int | None:
    """The size of a head."""
    dims, heads = site.dims(site.inp(0)), _heads(site)[0]
    if len(dims) == 4 or dims[-1] is None or not heads:
        return dims[-1]
    return dims[-1] // heads


def _covers_all_keys(site: Site) -> bool:
    """Whether the mask's last dimension is as long as the keys: a shorter one would be filled up."""
    mask, key = site.scope.shape(site.inp(3)), site.dims(site.inp(1))
    if not mask:
        return False
    if mask[-1] is not None and mask[-1] == key[-2]:
        return True
    symbol = site.scope.symbol(site.inp(3), len(mask) - 1)
    return bool(symbol) and symbol == site.scope.symbol(site.inp(1), len(key) - 2)


PREFERRED["Attention", 23] = is_plain


@down("Attention", version=23)
def plain_attention(site: Site) -> None:
    """softmax(q · kᵀ · scale + mask) · v; a row in which every key is masked gives zeros."""
    kind, width = site.dtype(site.inp(0)), _width(site)
    if width is None:
        raise Refuse("the size of a head is not fixed")
    query, key, value = (_split_heads(site, i) for i in range(3))
    root = site.scalar(math.sqrt(site.attr("scale") or 1 / math.sqrt(width)), kind)
    turned = site.op("Transpose", key, perm=[0, 1, 3, 2])
    scores = site.op("MatMul", site.op("Mul", query, root), site.op("Mul", turned, root))
    lowest = site.scalar(LOWEST[kind], kind)
    if site.attr("is_causal", 0):
        scores = site.op("Where", _past(site), scores, lowest)
    elif site.has(3) and site.dtype(site.inp(3)) == T.BOOL:
        scores = site.op("Where", site.inp(3), scores, lowest)
    elif site.has(3):
        scores = site.op("Add", scores, site.inp(3))
        lowest = site.scalar(-math.inf, kind)
    shares = site.softmax(scores)
    if site.has(3):
        alive = site.op("Greater", site.reduce("ReduceMax", scores, [-1]), lowest)
        shares = site.op("Where", alive, shares, site.scalar(0, kind))
    result = site.op("MatMul", shares, value)
    if site.rank(site.inp(0)) == 3:
        result = site.reshape(site.op("Transpose", result, perm=[0, 2, 1, 3]), 0, 0, -1)
    site.end_as(result)


def _split_heads(site: Site, index: int) -> str:
    """[batch, heads, length, width], from [batch, length, heads · width] where it is that."""
    name = site.inp(index)
    if site.rank(name) == 4:
        return name
    split = site.reshape(name, 0, 0, _heads(site)[min(index, 1)] or 1, -1)
    return site.op("Transpose", split, perm=[0, 2, 1, 3])


def _past(site: Site) -> str:
    """Which keys a query may see when it must not look ahead: [queries, keys]."""
    zero, one = site.long(0), site.long(1)
    sizes = [site.squeeze(site.dim(site.inp(i), -2), 0) for i in (0, 1)]
    queries, keys = (site.op("Range", zero, size, one) for size in sizes)
    return site.op("Not", site.op("Less", site.unsqueeze(queries, 1), keys))


@down("TensorScatter", version=24)
def cache_by_scatter(site: Site) -> None:
    """The place of every update as an index along the sequence axis."""
    cache, update = site.inp(0), site.inp(1)
    rank = site.rank(cache)
    axis = site.attr("axis", -2) % rank
    if axis == 0:
        raise Refuse("the batch can't be the axis that is written along")
    one = site.long(1)
    numbers = site.op("Range", site.long(0), site.squeeze(site.dim(update, axis), 0), one)
    places = site.unsqueeze(numbers, *(i for i in range(rank) if i != axis))
    if site.has(2):
        start = site.unsqueeze(site.inp(2), *range(1, rank))
        places = site.op("Add", places, start)
    if site.attr("mode", "linear") == "circular":
        places = site.op("Mod", places, site.squeeze(site.dim(cache, axis), 0))
    where = site.op("Expand", places, site.op("Shape", update))
    site.end("ScatterElements", cache, where, update, axis=axis)


@down("SwiGLU", version=28)
def swiglu(site: Site) -> None:
    """Swish of the gate times the value."""
    gate, value = site.inp(0), site.inp(1)
    alpha = site.attr("alpha", 1.0)
    scaled = gate if alpha == 1.0 else site.op("Mul", gate, site.scalar(alpha, site.dtype(gate)))
    swish = site.op("Mul", gate, site.op("Sigmoid", scaled))
    site.end("Mul", swish, value)
