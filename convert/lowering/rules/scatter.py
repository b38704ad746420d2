"""Scatter with a reduction: updates applied one after another, so that repeated indices all count."""

from __future__ import annotations

from collections.abc import Callable

from onnx import TensorProto, helper

from convert.lowering.rules.elementwise import greatest, least
from convert.lowering.site import FLOATS, Refuse, Site
from convert.lowering.table import down, up

T = TensorProto
INT_MAX = (1 << 63) - 1


@up("Scatter", version=11)
def scatter_renamed(site: Site) -> None:
    """The same under its new name."""
    site.end("ScatterElements", *site.node.input, axis=site.attr("axis", 0))


@down("ScatterElements", "ScatterND", version=18)
def scatter_extremes(site: Site) -> None:
    """``max`` and ``min`` came with 18."""
    if site.attr("reduction", "none") in ("max", "min"):
        one_by_one(site)
    else:
        site.same()


@down("ScatterElements", "ScatterND", version=16)
def scatter_reduction(site: Site) -> None:
    """Reductions came with 16."""
    if site.attr("reduction", "none") == "none":
        site.same(drop=["reduction"])
    else:
        one_by_one(site)


def one_by_one(site: Site) -> None:
    """A Loop over the updates in the place of a scatter with a reduction."""
    if site.node.op_type == "ScatterND":
        _each_tuple(site)
    else:
        _each_row(site)


def _combine(site: Site, kind: int, old: str, new: str) -> str:
    reduction = site.attr("reduction")
    if reduction in ("add", "mul"):
        if kind == T.BOOL:
            return site.op("Or" if reduction == "add" else "And", old, new)
        return site.op({"add": "Add", "mul": "Mul"}[reduction], old, new)
    if kind in FLOATS:
        return site.op({"max": "Max", "min": "Min"}[reduction], old, new)
    if kind in (T.BOOL, T.STRING):
        raise Refuse(f"reduction {reduction} of these types has no equivalent")
    return (greatest if reduction == "max" else least)(site, old, new)


def _loop(site: Site, count: str, data: str, step: Callable[[Site, str, str], str]) -> str:
    """A Loop over the updates; ``step`` writes the body from the iteration number and the values so far."""
    body = site.inner()
    number, going, state = (site.names.fresh(f"{site.stem}/{part}") for part in ("number", "going", "state"))
    on = body.op("Identity", going)
    result = step(body, number, state)
    inputs = [
        helper.make_tensor_value_info(number, T.INT64, []),
        helper.make_tensor_value_info(going, T.BOOL, []),
        helper.make_tensor_value_info(state, site.dtype(data), None),
    ]
    return site.op("Loop", count, "", data, body=body.branch([on, result], inputs))


def _each_tuple(site: Site) -> None:
    """ScatterND: the index tuples in a row."""
    data, indices, updates = site.node.input
    kind = site.dtype(data)
    depth = site.dims(indices)[-1]
    if depth is None:
        raise Refuse("the last dimension of the indices is not fixed")
    rows = site.reshape(indices, -1, depth)
    tail = site.slice(site.op("Shape", data), site.longs(depth), site.longs(INT_MAX), 0)
    count = site.squeeze(site.op("Gather", site.op("Shape", rows), site.longs(0), axis=0), 0)
    values = site.op("Reshape", updates, site.op("Concat", site.longs(-1), tail, axis=0))

    def step(body: Site, number: str, state: str) -> str:
        at = body.unsqueeze(number, 0)
        where, new = body.op("Gather", rows, at, axis=0), body.op("Gather", values, at, axis=0)
        old = body.op("GatherND", state, where)
        return body.op("ScatterND", state, where, _combine(body, kind, old, new))

    site.end_as(_loop(site, count, data, step))


def _each_row(site: Site) -> None:
    """ScatterElements: along the axis one row at a time; inside a row no place comes twice."""
    data, indices, updates = site.node.input
    kind, axis = site.dtype(data), site.attr("axis", 0)
    count = site.squeeze(site.op("Gather", site.op("Shape", indices), site.longs(axis), axis=0), 0)
    if axis < 0:
        axis += site.rank(data)
    count = site.squeeze(site.op("Gather", site.op("Shape", indices), site.longs(axis), axis=0), 0)

    def step(body: Site, number: str, state: str) -> str:
        at = body.unsqueeze(number, 0)
        where, new = body.op("Gather", indices, at, axis=axis), body.op("Gather", updates, at, axis=axis)
        old = body.op("GatherElements", state, where, axis=axis)
        return body.op("ScatterElements", state, where, _combine(body, kind, old, new), axis=axis)

    site.end_as(_loop(site, count, data, step))
