"""The numbers of a forecast: per tensor its range, what rounding does to it, and how far it has departed.

All tensors of a run are measured together, as one long array cut into segments: a graph of thousands of nodes costs a
few passes over memory, not a few thousand calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convert.precision.probes import Reading
from convert.precision.rounding import Array, Format

GROSS = 1e9
"""An error without measure: infinite or NaN where the reference is a number. Metrics are capped here."""
Rounder = Callable[[Array, Array], Array]
"""Values (float32, all tensors one after another) and the number of each one's tensor → the values rounded."""


@dataclass(slots=True)
class Table:
    """One row for each tensor. Errors are relative; ``…_most`` of the worst element, the others L2."""

    tensors: list[str]
    low: Array
    high: Array
    rms: Array
    overflow: Array
    flushed: Array
    made: Array
    made_most: Array
    passed: Array
    passed_most: Array

    def row(self) -> dict[str, int]:
        """The row of each tensor."""
        return {name: number for number, name in enumerate(self.tensors)}

    def worst(self, other: Table) -> Table:
        """Row by row the worse of two samples."""
        assert self.tensors == other.tensors
        joined: dict[str, Any] = {"tensors": self.tensors, "low": np.minimum(self.low, other.low)}
        for name in COLUMNS[1:]:
            joined[name] = np.maximum(getattr(self, name), getattr(other, name))
        return Table(**joined)


COLUMNS = ("low", "high", "rms", "overflow", "flushed", "made", "made_most", "passed", "passed_most")


def empty_table(tensors: Sequence[str]) -> Table:
    """A table that says of every tensor that nothing is wrong."""
    zeros = {name: np.zeros(len(tensors)) for name in COLUMNS}
    return Table(tensors=list(tensors), **zeros)


def measure(
    tensors: Sequence[str],
    exact: Mapping[str, Reading],
    other: Mapping[str, Reading],
    rounder: Rounder,
    fmt: Format | None,
) -> Table:
    """Measure one sample. ``exact``: the fp32 run; ``other``: the emulated one; ``fmt``: None for int8.

    Tensors that were not read (a branch not taken) have zeros. Where a loop took another number of turns, the turns
    that both took are compared.
    """
    table = empty_table(tensors)
    kept, left, right = [], [], []
    for number, name in enumerate(tensors):
        ours, theirs = exact.get(name), other.get(name)
        if ours is None or not ours.sample.size:
            continue
        size = min(ours.sample.size, theirs.sample.size if theirs is not None else 0)
        if size:
            table.low[number] = np.nan if ours.low is None else ours.low
            table.high[number] = np.nan if ours.high is None else ours.high
            kept.append(number)
            left.append(ours.sample[:size])
            right.append(theirs.sample[:size] if theirs is not None else ours.sample[:size])
    if kept:
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            _fill(table, np.array(kept), left, right, rounder=rounder, fmt=fmt)
    return table


def _fill(
    table: Table, kept: Array, left: list[Array], right: list[Array], *, rounder: Rounder, fmt: Format | None
) -> None:
    lengths = np.array([part.size for part in left])
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    y, e = (np.concatenate(parts).astype(np.float32, copy=False) for parts in (left, right))
    r = rounder(y, np.repeat(kept, lengths))
    finite = np.isfinite(y)
    same = finite | (y == e) | (np.isnan(y) & np.isnan(e))
    y64 = np.where(finite, y, 0.0).astype(np.float64)

    def mean(values: Array) -> Array:
        summed: Array = np.add.reduceat(values, starts) / lengths
        return summed

    def most(values: Array) -> Array:
        highest: Array = np.maximum.reduceat(values, starts)
        return highest

    for word, known, reduce in (("low", table.low, np.fmin), ("high", table.high, np.fmax)):
        gathered = reduce.reduceat(y, starts)
        getattr(table, word)[kept] = np.where(np.isnan(known[kept]), gathered, known[kept])
    square = mean(y64 * y64)
    table.rms[kept] = np.sqrt(square)
    for word, z in (("made", r), ("passed", e)):
        good = np.isfinite(z) & finite
        d = np.where(good, z, 0.0) - np.where(good, y64, 0.0)
        broken = most((~np.isfinite(z) & finite) | ~same if word == "passed" else ~np.isfinite(z) & finite)
        norm = np.sqrt(mean(d * d) / np.where(square > 0, square, 1.0))
        element = np.abs(d) / np.where(y64 != 0.0, np.abs(y64), np.inf)
        getattr(table, word)[kept] = np.where(broken, GROSS, np.minimum(norm, GROSS))
        getattr(table, f"{word}_most")[kept] = np.where(broken, GROSS, np.minimum(most(element), GROSS))
    if fmt is not None:
        size = np.abs(y64)
        table.overflow[kept] = mean((size >= fmt.overflows).astype(np.float64))
        table.flushed[kept] = mean(((size > 0.0) & (size < fmt.normal)).astype(np.float64))
        _whole_range(table, kept, fmt)


def _whole_range(table: Table, kept: Array, fmt: Format) -> None:
    """An overflow that the gathered elements missed is known from the range of the whole tensor."""
    reach = np.maximum(np.abs(table.low), np.abs(table.high))[kept]
    beyond = (reach >= fmt.overflows) & np.isfinite(reach)
    missed = beyond & (table.overflow[kept] == 0.0)
    table.overflow[kept[missed]] = np.finfo(np.float32).tiny
    for name in ("made", "made_most"):
        column = getattr(table, name)
        column[kept[beyond]] = GROSS
