"""Arithmetic and comparison element by element: integer types that came late, Mod, Pow, Clip."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from convert.lowering.site import FLOATS, Site
from convert.lowering.table import down, up

T = TensorProto
SIGNED = (T.INT8, T.INT16, T.INT32, T.INT64)
INTEGERS = (*SIGNED, T.UINT8, T.UINT16, T.UINT32, T.UINT64)
POWER_BITS = 63
WIDTH: dict[int, int] = {
    T.INT8: 8, T.UINT8: 8, T.INT16: 16, T.UINT16: 16, T.INT32: 32, T.UINT32: 32, T.INT64: 64, T.UINT64: 64,
}  # fmt: skip


def greatest(site: Site, left: str, right: str) -> str:
    """The greater of two integers, element by element."""
    return site.op("Where", site.op("Greater", left, right), left, right)


def least(site: Site, left: str, right: str) -> str:
    """The smaller of two integers, element by element."""
    return site.op("Where", site.op("Less", left, right), left, right)


@down("Max", "Min", version=12)
def extremes_of_integers(site: Site) -> None:
    """Before 12 only floats: integers are compared and chosen."""
    if site.dtype(site.inp(0)) in FLOATS:
        site.same()
        return
    pick = greatest if site.node.op_type == "Max" else least
    value = site.inp(0)
    for other in site.node.input[1:]:
        value = pick(site, value, other)
    site.end_as(value)


@down("Clip", version=12)
def clip_of_integers(site: Site) -> None:
    """Before 12 only floats: integers are compared and chosen."""
    if site.dtype(site.inp(0)) in FLOATS:
        site.same()
        return
    value = site.inp(0)
    if site.has(1):
        value = greatest(site, value, site.inp(1))
    if site.has(2):
        value = least(site, value, site.inp(2))
    site.end_as(value)


@up("Clip", version=11)
def clip_bounds_to_inputs(site: Site) -> None:
    """The attributes become inputs."""
    dtype = site.dtype(site.inp(0))
    bounds = [site.attr(name) for name in ("min", "max")]
    names = ["" if bound is None else site.scalar(bound, dtype) for bound in bounds]
    site.same([site.inp(0), *names], drop=["min", "max"])


@down("Relu", version=14)
def relu_of_integers(site: Site) -> None:
    """The maximum with zero."""
    dtype = site.dtype(site.inp(0))
    if dtype in FLOATS:
        site.same()
    else:
        site.end("Max", site.inp(0), site.scalar(0, dtype))


@down("GreaterOrEqual", "LessOrEqual", version=12)
def or_equal(site: Site) -> None:
    """Strictly so, or equal; both are false for NaN."""
    strict = site.op(site.node.op_type.removesuffix("OrEqual"), *site.node.input)
    site.end("Or", strict, site.op("Equal", *site.node.input))


@down("Mod", version=28)
def floored_mod_of_floats(site: Site) -> None:
    """Before 28 floats have only the remainder with the sign of the dividend."""
    if site.dtype(site.inp(0)) not in FLOATS or site.attr("fmod", 0):
        site.same()
        return
    left, right = site.node.input
    zero = site.scalar(0, site.dtype(left))
    rest = site.op("Mod", left, right, fmod=1)
    other_sign = site.op("Xor", site.op("Less", rest, zero), site.op("Less", right, zero))
    signed_zero = site.op(
        "Where", site.op("Less", right, zero), site.scalar(-0.0, site.dtype(left)), site.op("Abs", zero)
    )
    moved = site.op("Where", other_sign, site.op("Add", rest, right), rest)
    site.end("Where", site.op("Equal", rest, zero), signed_zero, moved)


@down("Pow", version=12)
def power_of_integers(site: Site) -> None:
    """Before 12 base and exponent have one floating type."""
    base, exponent = site.inp(0), site.inp(1)
    kind, other = site.dtype(base), site.dtype(exponent)
    if kind in FLOATS:
        site.end("Pow", base, exponent if other == kind else site.cast(exponent, kind))
    elif other in FLOATS or kind == T.INT32:
        wide = site.op("Pow", site.cast(base, T.DOUBLE), site.cast(exponent, T.DOUBLE))
        site.end("Cast", wide, to=kind)
    else:
        _integer_power(site)


def _integer_power(site: Site) -> None:
    """By squaring in a Loop over the bits of the exponent, so that every bit of an int64 is right."""
    base, exponent = site.inp(0), site.cast(site.inp(1), T.INT64)
    kind = site.dtype(base)
    shape = site.op("Shape", site.op("Add", site.cast(base, T.INT64), exponent))
    names = {part: site.names.fresh(f"{site.stem}/{part}") for part in ("bit", "going", "result", "square", "left")}
    body = site.inner()
    on = body.op("Greater", body.op("ReduceMax", names["left"], keepdims=0), body.long(1))
    odd = body.cast(body.op("Mod", names["left"], body.long(2)), T.BOOL)
    result = body.op("Where", odd, body.op("Mul", names["result"], names["square"]), names["result"])
    square = body.op("Mul", names["square"], names["square"])
    left = body.op("Div", names["left"], body.long(2))
    kinds = {"bit": T.INT64, "going": T.BOOL, "result": kind, "square": kind, "left": T.INT64}
    scalars = ("bit", "going")
    inputs = [helper.make_tensor_value_info(names[p], kinds[p], [] if p in scalars else None) for p in names]
    graph = body.branch([on, result, square, left], inputs)
    ones = site.op("Expand", site.scalar(1, kind), shape)
    start = [site.op("Expand", name, shape) for name in (base, exponent)]
    last = [site.names.fresh(f"{site.stem}/last") for _ in range(2)]
    site.emit("Loop", [site.long(POWER_BITS), "", ones, *start], [site.out(0), *last], body=graph)


@down("BitShift", version=28)
def shift_of_signed(site: Site) -> None:
    """An arithmetic shift of signed integers by shifts of unsigned ones; counts beyond the width are caught."""
    value, count = site.node.input[0], site.node.input[1]
    kind = site.dtype(value)
    width = WIDTH[kind]
    unsigned = {8: T.UINT8, 16: T.UINT16, 32: T.UINT32, 64: T.UINT64}[width]
    if kind not in SIGNED:
        known = site.const(count)
        if known is not None and known.max() < width:
            site.same()
        else:
            _bounded_shift(site, value, count, width)
        return
    zero = site.scalar(0, kind)
    negative = site.op("Less", value, zero)
    is_right = site.attr("direction") == "RIGHT"
    turned = site.op("Sub", site.scalar(-1, kind), value)
    start = site.op("Where", negative, turned, value) if is_right else value
    bits, amount = site.cast(start, unsigned), site.cast(count, unsigned)
    limit = site.op("Constant", value=helper.make_tensor("value", unsigned, [], [width]))
    inside = site.op("Less", amount, limit)
    nothing = site.op("Constant", value=helper.make_tensor("value", unsigned, [], [0]))
    moved = site.op("BitShift", bits, site.op("Where", inside, amount, nothing), direction=site.attr("direction"))
    moved = site.cast(site.op("Where", inside, moved, nothing), kind)
    if is_right:
        moved = site.op("Where", negative, site.op("Sub", site.scalar(-1, kind), moved), moved)
    site.end_as(moved)


def _bounded_shift(site: Site, value: str, count: str, width: int) -> None:
    kind = site.dtype(value)
    inside = site.op("Less", count, site.scalar(width, kind))
    zero = site.scalar(0, kind)
    moved = site.op("BitShift", value, site.op("Where", inside, count, zero), direction=site.attr("direction"))
    site.end("Where", inside, moved, zero)


def ones_like(site: Site, name: str, dtype: int) -> str:
    """A tensor of ones with another's shape."""
    return site.op("ConstantOfShape", site.op("Shape", name), value=helper.make_tensor("value", dtype, [1], [1]))


def powers_of_two(count: int) -> np.ndarray:
    """1, 2, 4, … as int64."""
    return np.array([1 << i for i in range(count)], dtype=np.int64)
