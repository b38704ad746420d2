"""Bitwise operators before opset 18: bit by bit in integer arithmetic."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from convert.lowering.rules.elementwise import SIGNED, WIDTH, powers_of_two
from convert.lowering.site import Site
from convert.lowering.table import down

T = TensorProto
HALF = 32


@down("BitwiseNot", version=18)
def all_bits_turned(site: Site) -> None:
    """-1 - x, or the greatest number minus x."""
    kind = site.dtype(site.inp(0))
    top = -1 if kind in SIGNED else (1 << WIDTH[kind]) - 1
    site.end("Sub", site.scalar(top, kind), site.inp(0))


@down("BitwiseAnd", "BitwiseOr", "BitwiseXor", version=18)
def bit_by_bit(site: Site) -> None:
    """Each bit as 0 or 1 in int64, combined by arithmetic, and summed with its weight."""
    kind = site.dtype(site.inp(0))
    left, right = (_bits(site, name, WIDTH[kind]) for name in site.node.input)
    both = site.op("Mul", left, right)
    match site.node.op_type:
        case "BitwiseAnd":
            result = both
        case "BitwiseOr":
            result = site.op("Sub", site.op("Add", left, right), both)
        case _:
            result = site.op("Sub", site.op("Sub", site.op("Add", left, right), both), both)
    site.end("Cast", _weighed(site, result, WIDTH[kind]), to=kind)


def _weighed(site: Site, bits: str, width: int) -> str:
    """The number that bits stand for. Halves of 64 are summed apart: some runtimes sum int64 in double."""
    total = ""
    for start in range(0, width, HALF):
        weights = np.zeros(width, dtype=np.int64)
        weights[start : start + HALF] = powers_of_two(min(HALF, width))
        part = site.reduce("ReduceSum", site.op("Mul", bits, site.tensor(weights)), [-1], keepdims=0)
        total = part if not total else site.op("Add", total, site.op("Mul", part, site.long(1 << HALF)))
    return total


def _bits(site: Site, name: str, width: int) -> str:
    """The bits of integers along a new last dimension, as int64 zeros and ones."""
    wide = site.unsqueeze(site.cast(name, T.UINT64), -1)
    shifted = site.op("BitShift", wide, site.tensor(np.arange(width, dtype=np.uint64)), direction="RIGHT")
    return site.cast(site.op("Mod", shifted, site.scalar(2, T.UINT64)), T.INT64)
