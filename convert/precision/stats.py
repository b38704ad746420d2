"""The numbers of a forecast: per tensor its range, what rounding does to it, and how far it has departed.

All tensors of a run are measured together, as one long array cut into segments: a graph of thousands of nodes costs a
few passes over memory, not a few thousand calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convert.precision.readings import Readings
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


def measure(tensors: Sequence[str], exact: Readings, other: Readings, rounder: Rounder, fmt: Format | None) -> Table:
    """Measure one sample. ``exact``: the fp32 run; ``other``: the emulated one; ``fmt``: None for int8.

    Both tell of tensors in the order of ``tensors``. Those that were not read (a branch not taken) have zeros. Where a
    loop took another number of turns, the turns that both took are compared.
    """
    table = empty_table(tensors)
    pairs = _paired(table, exact, other)
    if pairs.rows.size:
        table.low[pairs.rows], table.high[pairs.rows] = exact.low[pairs.ours], exact.high[pairs.ours]
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            _fill(table, pairs, rounder(pairs.y, np.repeat(pairs.rows, pairs.lengths)), fmt)
    return table


@dataclass(slots=True)
class _Pairs:
    """Tensors that both runs told of: their rows in the table and in the exact readings, and their elements."""

    rows: Array
    ours: Array
    lengths: Array
    y: Array
    e: Array

    @property
    def starts(self) -> Array:
        ends: Array = np.cumsum(self.lengths)
        return ends - self.lengths


def _paired(table: Table, exact: Readings, other: Readings) -> _Pairs:
    if exact.names == other.names == table.tensors:
        rows = ours = theirs = np.arange(len(table.tensors))
    else:
        row = table.row()
        names = [name for name in exact.names if name in row and name in other.row]
        places = (row, exact.row, other.row)
        rows, ours, theirs = (np.array([place[name] for name in names], np.int64) for place in places)
    lengths = np.minimum(exact.lengths[ours], other.lengths[theirs])
    some = lengths > 0
    rows, ours, theirs, lengths = rows[some], ours[some], theirs[some], lengths[some]
    return _Pairs(rows, ours, lengths, _elements(exact, ours, lengths), _elements(other, theirs, lengths))


def _elements(told: Readings, rows: Array, lengths: Array) -> Array:
    """The first elements of some tensors, one after another."""
    total = int(lengths.sum())
    if total == told.sample.size and len(rows) == len(told.names):
        return told.sample
    shifts = told.starts[rows] - (np.cumsum(lengths) - lengths)
    return told.sample[np.repeat(shifts, lengths) + np.arange(total, dtype=np.int64)]


def _fill(table: Table, pairs: _Pairs, rounded: Array, fmt: Format | None) -> None:
    kept, starts, y = pairs.rows, pairs.starts, pairs.y
    finite = np.isfinite(y)
    whole = bool(finite.all())
    y64 = (y if whole else np.where(finite, y, np.float32(0))).astype(np.float64)
    for word, reduce in (("low", np.minimum if whole else np.fmin), ("high", np.maximum if whole else np.fmax)):
        column = getattr(table, word)
        unknown = np.isnan(column[kept])
        if unknown.any():
            column[kept[unknown]] = reduce.reduceat(y64 if whole else y, starts)[unknown]
    size = np.abs(y64)
    square = np.add.reduceat(y64 * y64, starts) / pairs.lengths
    table.rms[kept] = np.sqrt(square)
    norm, element, nothing = np.where(square > 0, square, 1.0), size, size == 0.0
    if nothing.any():
        element = size.copy()
        element[nothing] = np.inf
    for word, z in (("made", rounded), ("passed", pairs.e)):
        good = np.isfinite(z)
        if whole and good.all():
            d, broken = z - y64, None
        else:
            wrong = finite & ~good
            if word == "passed":
                wrong |= ~(finite | (y == z) | (np.isnan(y) & np.isnan(z)))
            d = np.where(good & finite, z, y64) - y64
            broken = np.logical_or.reduceat(wrong, starts)
        error = np.sqrt(np.add.reduceat(d * d, starts) / pairs.lengths / norm)
        most = np.maximum.reduceat(np.abs(d) / element, starts)
        for name, values in ((word, error), (f"{word}_most", most)):
            getattr(table, name)[kept] = np.where(broken, GROSS, np.minimum(values, GROSS)) if broken is not None else (
                np.minimum(values, GROSS))  # fmt: skip
    if fmt is not None:
        _ranges(table, pairs, size, fmt)


def _ranges(table: Table, pairs: _Pairs, size: Array, fmt: Format) -> None:
    """The shares of elements that become infinite and that lose digits."""
    kept, starts = pairs.rows, pairs.starts
    for column, outside in (
        (table.overflow, size >= fmt.overflows), (table.flushed, (size > 0.0) & (size < fmt.normal))
    ):  # fmt: skip
        if outside.any():
            column[kept] = np.add.reduceat(outside, starts, dtype=np.int64) / pairs.lengths
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
