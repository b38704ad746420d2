"""What one run told of many tensors, as columns: all gathered elements in one array, and a row for each tensor.

A graph of thousands of small tensors is read in a few calls, not in a few thousand; by name each tensor still has its
:class:`Reading`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from convert.arrays import Array
from convert.precision.probes import Probe, Probes

NOTHING: Array = np.zeros(0, np.float32)
WORST = {"norm": np.maximum, "low": np.fmin, "high": np.fmax}


class Reading(NamedTuple):
    """What a probe told: some elements, and of the whole tensor its norm and its range, each None where not asked for.

    Where all elements were given out, neither is.
    """

    sample: Array
    norm: float | None = None
    low: float | None = None
    high: float | None = None


class Rows:
    """The names of tensors in order, and the row of each. Runs of one model share it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._joined: Rows | None = None

    @cached_property
    def row(self) -> dict[str, int]:
        """The row of each tensor."""
        return {name: number for number, name in enumerate(self.names)}

    def after(self, first: Rows) -> Rows:
        """These rows behind those of another."""
        count = len(first.names)
        if self._joined is None or self._joined.names[: -len(self.names) or count] != first.names:
            self._joined = Rows([*first.names, *self.names])
        return self._joined


class Readings(Mapping[str, Reading]):
    """One row for each tensor, in order. ``sample``: float32, all tensors one after another; NaN stands for None."""

    def __init__(self, rows: Rows, sample: Array, lengths: Array, *, norm: Array, low: Array, high: Array) -> None:
        self.rows = rows
        self.sample = sample
        self.lengths = lengths
        self.starts: Array = np.cumsum(lengths) - lengths
        self.norm, self.low, self.high = norm, low, high

    @classmethod
    def of(cls, told: Iterable[tuple[str, Reading]]) -> Readings:
        """From one reading each."""
        rows = list(told)
        samples = [reading.sample.reshape(-1).astype(np.float32, copy=False) for _, reading in rows]
        norm, low, high = (
            np.array([np.nan if value is None else value for value in column], np.float64)
            for column in zip(*(reading[1:] for _, reading in rows), strict=True)
        ) if rows else (np.zeros(0),) * 3  # fmt: skip
        return cls(
            Rows([name for name, _ in rows]),
            np.concatenate(samples) if samples else NOTHING,
            np.array([sample.size for sample in samples], np.int64),
            norm=norm, low=low, high=high,
        )  # fmt: skip

    @property
    def names(self) -> list[str]:
        """The tensors in order."""
        return self.rows.names

    @property
    def row(self) -> dict[str, int]:
        """The row of each tensor."""
        return self.rows.row

    def __getitem__(self, name: str) -> Reading:
        row = self.row[name]
        begin = int(self.starts[row])
        norm, low, high = (
            None if np.isnan(column[row]) else float(column[row]) for column in (self.norm, self.low, self.high)
        )
        return Reading(self.sample[begin : begin + int(self.lengths[row])], norm, low, high)

    def __contains__(self, name: object) -> bool:
        return name in self.row

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        return int(self.sample.nbytes) + 5 * 8 * len(self.names)

    def after(self, first: Readings) -> Readings:
        """These rows behind those of another."""
        joined = {name: np.concatenate([getattr(first, name), getattr(self, name)]) for name in ("norm", "low", "high")}
        return Readings(
            self.rows.after(first.rows),
            np.concatenate([first.sample, self.sample]),
            np.concatenate([first.lengths, self.lengths]),
            **joined,
        )

    def ranged(self, other: Readings) -> Readings:
        """The same with the ranges that another run told of some tensors."""
        low, high = self.low.copy(), self.high.copy()
        rows = [self.row[name] for name in other.names]
        low[rows], high[rows] = other.low, other.high
        return Readings(self.rows, self.sample, self.lengths, norm=self.norm, low=low, high=high)


class Reader:
    """Reads what the probes of one model told. ``places``: of its outputs. ``order``: of the tensors in the answer."""

    def __init__(self, probes: Probes, places: Mapping[str, int], order: Sequence[str]) -> None:
        self._places = places
        self._single = probes.single
        known = {name for joined in probes.joined if joined.part == "sample" for name in joined.tensors}
        known |= {probe.tensor for probe in probes.single}
        self._rows = Rows([name for name in order if name in known])
        self._joined = [
            (joined, np.array([self._rows.row[name] for name in joined.tensors])) for joined in probes.joined
        ]
        self._taken: tuple[bytes, Array] = b"", np.zeros(0, np.int64)

    def read(self, answer: Sequence[Array]) -> Readings:
        """The readings of one run. A tensor that did not come to be has no elements."""
        count = len(self._rows.names)
        lengths, begins = np.zeros(count, np.int64), np.zeros(count, np.int64)
        told: dict[str, Array] = {part: np.full(count, np.nan) for part in ("norm", "low", "high")}
        parts: list[Array] = []
        end = 0
        for joined, rows in self._joined:
            values = answer[self._places[joined.output]].reshape(-1)
            if joined.part == "sample":
                # Shape inference may be wrong (onnx's of STFT is): of what has another size nothing is known apart.
                size = joined.size if values.size == joined.size * len(rows) else values.size * (len(rows) == 1)
                lengths[rows] = size
                begins[rows] = end + size * np.arange(len(rows))
                parts.append(values)
                end += values.size
            else:
                told[joined.part][rows] = _bounding(values) if joined.part == "norm" else values
        for probe in self._single:
            row, values = self._rows.row[probe.tensor], answer[self._places[probe.sample]].reshape(-1)
            lengths[row], begins[row] = values.size, end
            parts.append(values)
            end += values.size
            if values.size:
                self._tell(probe, row, answer, told)
        with np.errstate(over="ignore", invalid="ignore"):
            flat = np.concatenate([part.astype(np.float32, copy=False) for part in parts]) if parts else NOTHING
        return Readings(self._rows, flat[self._take(lengths, begins)], lengths, **told)

    def _tell(self, probe: Probe, row: int, answer: Sequence[Array], told: Mapping[str, Array]) -> None:
        for part, output in (("norm", probe.norm), ("low", probe.low), ("high", probe.high)):
            if output:
                value = WORST[part].reduce(answer[self._places[output]], axis=None)
                told[part][row] = _bounding(value) if part == "norm" else value

    def _take(self, lengths: Array, begins: Array) -> Array:
        """Where each element of the answer lies in what the outputs hold one after another."""
        key = lengths.tobytes()
        if self._taken[0] != key:
            shifts = begins - (np.cumsum(lengths) - lengths)
            places = np.repeat(shifts, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)
            self._taken = key, places
        return self._taken[1]


def _bounding(norms: Array) -> Array:
    """Norms; one that is no number bounds nothing."""
    bounds: Array = np.where(np.isnan(norms), np.inf, norms)
    return bounds
