"""Rounding arrays as a precision would: the numbers of fp16, bf16 and int8, kept in float32.

The same rounding that numpy's ``float16`` and ``ml_dtypes``' ``bfloat16`` do, and that ONNX's Cast and QuantizeLinear
do: to nearest, ties to even. In fp16 and bf16 what is too large becomes infinite and what is too small becomes zero by
way of the subnormals; int8 saturates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that a narrow type has.

    ``overflows``: magnitudes from here on round to infinity. ``normal``: the smallest number with all digits.
    ``unit``: the largest relative error of rounding a number that is neither too large nor too small.
    """

    name: str
    largest: float
    overflows: float
    normal: float
    unit: float


FORMATS: Mapping[str, Format] = {
    "fp16": Format(name="float16", largest=65504.0, overflows=65520.0, normal=2.0**-14, unit=2.0**-11),
    "bf16": Format(
        name="bfloat16", largest=3.3895313892515355e38, overflows=3.3961775292304601e38, normal=2.0**-126, unit=2.0**-8
    ),
}
INT8_LOW, INT8_HIGH = -128, 127
SMALLEST_SCALE = float(np.finfo(np.float32).tiny)


def dtype_of(precision: str) -> np.dtype[Any]:
    """The numpy type of ``fp16`` or ``bf16``."""
    if precision == "fp16":
        return np.dtype(np.float16)
    import ml_dtypes

    narrow: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return narrow


def rounded(array: Array, precision: str) -> Array:
    """Float32 numbers as ``fp16`` or ``bf16`` would hold them, in float32; NaN and infinities stay."""
    values = np.ascontiguousarray(array, np.float32)
    result = _as_float16(values) if precision == "fp16" else _by_type(values, precision)
    # ascontiguousarray makes a scalar one-dimensional.
    return result.reshape(np.shape(array))


def _by_type(values: Array, precision: str) -> Array:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        wide: Array = values.astype(dtype_of(precision)).astype(np.float32)
    return wide


def _as_float16(values: Array) -> Array:
    """numpy's own cast of numbers that are no normal float16; of the others the same on their bits, ten times faster.

    A float32 has 13 more digits than a float16: half of the last one that stays, less one unless that one is odd, is
    added, and they are cut off.
    """
    bits = values.view(np.uint32)
    kept = bits >> np.uint32(13)
    kept &= np.uint32(1)
    kept += np.uint32(0x0FFF)
    kept += bits
    kept &= np.uint32(0xFFFFE000)
    wide: Array = kept.view(np.float32)
    size, fmt = np.abs(values), FORMATS["fp16"]
    odd = (size < fmt.normal) & (size > 0.0)
    odd |= ~(size < fmt.overflows)
    if odd.any():
        wide[odd] = _by_type(values[odd], "fp16")
    return wide


def int8_scale(low: Array | float, high: Array | float) -> Array:
    """The scale of symmetric int8 for values from ``low`` to ``high``: one, or one for each channel."""
    reach = np.maximum(np.abs(np.asarray(low, np.float32)), np.abs(np.asarray(high, np.float32)))
    scale: Array = np.maximum(reach / np.float32(INT8_HIGH), np.float32(SMALLEST_SCALE)).astype(np.float32)
    return scale


def quantized(array: Array, scale: Array, zero: Array | int = 0, *, axis: int | None = None) -> Array:
    """Float32 numbers after int8 and back. ``scale`` and ``zero`` are scalars, or one for each index of ``axis``."""
    shape = [1] * array.ndim
    if axis is not None:
        shape[axis] = -1
    step = np.asarray(scale, np.float32).reshape(shape if axis is not None else ())
    origin = np.asarray(zero, np.int32).reshape(shape if axis is not None else ())
    with np.errstate(over="ignore", invalid="ignore"):
        whole = np.rint(array.astype(np.float32, copy=False) / step) + origin
        held = np.clip(whole, INT8_LOW, INT8_HIGH)
        result: Array = ((held - origin) * step).astype(np.float32)
    return result


def int8_rounded(array: Array, *, axis: int | None = None) -> Array:
    """Float32 numbers after symmetric int8, with a scale of their own for the tensor or for each index of ``axis``."""
    if not array.size:
        return array
    others = tuple(place for place in range(array.ndim) if place != axis) if axis is not None else None
    scale = int8_scale(array.min(axis=others), array.max(axis=others))
    return quantized(array, scale, axis=axis)
