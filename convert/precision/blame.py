"""Whose error is it: what an output has departed by, followed back to the roundings that it comes from.

Two runs tell of every tensor how large its error is and how much rounding it alone adds. Going back from an output,
each node's error is split, by squares, between what its own rounding adds and what its inputs bring: absolutely where
a node adds or joins, relatively where it multiplies. An error that is already without measure (infinite or NaN) when
it arrives is not the node's. One that breaks out of small errors, as where something is divided by a number that was
flushed to zero, is followed by the worst element instead of by L2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from convert.precision.flow import Flow, Step
from convert.precision.policy import F32
from convert.precision.stats import GROSS, Table

ADDING = frozenset(
    {"Add", "Sub", "Sum", "Concat", "Where", "Mean", "Max", "Min", "ScatterND", "ScatterElements", "Pad"}
)
GAIN = 30.0
"""An output whose error is this many times what came in and what was added has broken out."""
NEGLIGIBLE = 1e-12
"""Shares of an output's error below this are not followed."""


@dataclass(frozen=True, slots=True)
class WeightError:
    """What rounding does to one weight: relative errors, its RMS, and shares of elements."""

    made: float = 0.0
    most: float = 0.0
    rms: float = 0.0
    overflow: float = 0.0
    flushed: float = 0.0
    reach: float = 0.0
    size: int = 1


@dataclass(slots=True)
class Blame:
    """Shares of one output's squared error: by value whose storing rounds, and by node whose weights are rounded."""

    output: str
    passed: float
    values: dict[str, float]
    weights: dict[str, float]


class Blamer:
    """Follows errors back in one evaluation. ``kept``: nodes that were held in fp32 in it."""

    def __init__(
        self, flow: Flow, table: Table, weights: Mapping[str, WeightError], kept: frozenset[str] = frozenset()
    ) -> None:
        self.flow = flow
        self.table = table
        self.row = rows_with_moved(flow, table)
        self.weights = weights
        self.kept = kept

    def output(self, name: str) -> Blame:
        """Where the error of one output comes from."""
        roots = self._roots(name)
        squares = [max(self._passed(root, most=False), 1e-30) ** 2 for root in roots]
        blame = Blame(output=name, passed=math.sqrt(max(squares, default=0.0)), values={}, weights={})
        shares = {(root, False): square / sum(squares) for root, square in zip(roots, squares, strict=True)}
        for number in range(max((self.flow.makers.get(root, -1) for root in roots), default=-1), -1, -1):
            step = self.flow.steps[number]
            for value in step.outputs:
                for most in (False, True):
                    share = shares.pop((value, most), 0.0)
                    if share > NEGLIGIBLE:
                        self._split(step, value, share, most=most, shares=shares, blame=blame)
        for (value, _), share in shares.items():
            if value in self.flow.inputs:
                _add(blame.values, value, share)
        return blame

    def _roots(self, name: str) -> list[str]:
        """The value itself, or the float32 values that an integer or boolean one was computed from."""
        found: dict[str, None] = {}
        seen, waiting = {name}, [name]
        while waiting:
            value = waiting.pop()
            if self.flow.types.get(value) == F32:
                found[value] = None
            elif value in self.flow.makers:
                fresh = [source for source in self.flow.steps[self.flow.makers[value]].inputs if source not in seen]
                seen.update(fresh)
                waiting += fresh
        return [value for value in found if value not in self.weights]

    def _split(
        self, step: Step, value: str, share: float, *, most: bool, shares: dict[tuple[str, bool], float], blame: Blame
    ) -> None:
        parts = list(self._parts(step, value, most=most))
        broken_out = not most and self._breaks_out(step, value, parts)
        if broken_out:
            most = True
            parts = list(self._parts(step, value, most=True))
        if any(size >= GROSS for kind, _, size in parts if kind == "arriving"):
            parts = [part for part in parts if part[0] == "arriving" and part[2] >= GROSS]
        total = sum(size * size for _, _, size in parts)
        if total <= 0.0:
            if not step.link:
                _add(blame.values, value, share)
            return
        for kind, name, size in parts:
            piece = share * (size * size / total)
            if piece <= 0.0:
                continue
            if kind == "arriving":
                shares[name, most] = shares.get((name, most), 0.0) + piece
            else:
                _add(blame.values if kind == "made" else blame.weights, value if kind == "made" else step.name, piece)

    def _breaks_out(self, step: Step, value: str, parts: Sequence[tuple[str, str, float]]) -> bool:
        """Whether the error is far beyond what came in and what was added."""
        passed = self._passed(value, most=False)
        scale = self._rms(value) if step.op in ADDING else 1.0
        known = math.sqrt(sum(size * size for _, _, size in parts)) / (scale or 1.0)
        return not step.moves and passed > GAIN * max(known, 1e-7) and passed > 1e-3

    def _parts(self, step: Step, value: str, *, most: bool) -> Iterator[tuple[str, str, float]]:
        """(made, arriving or weight; its value; its size) of an output's error."""
        adding = step.op in ADDING and not most
        own = 0.0 if step.moves or not self._stored(step, value) else self._column("made", value, most=most)
        yield "made", value, _scaled(own, self._rms(value) if adding else 1.0)
        for name in self.flow.feeders(step):
            weight = self.weights.get(name)
            if weight is None:
                size = self._passed(name, most=most)
                yield "arriving", name, _scaled(size, self._rms(name) if adding else 1.0)
            elif step.name not in self.kept:
                size = weight.most if most else weight.made
                yield "weight", name, _scaled(size, weight.rms if adding else 1.0)

    def _stored(self, step: Step, value: str) -> bool:
        """Whether a value is rounded when it is stored: always, but between nodes that are kept."""
        if step.name not in self.kept:
            return True
        users = self.flow.users.get(value, ())
        return any(self.flow.steps[user].name not in self.kept for user in users)

    def _passed(self, name: str, *, most: bool) -> float:
        return self._column("passed", name, most=most)

    def _column(self, word: str, name: str, *, most: bool) -> float:
        row = self.row.get(name)
        if row is None:
            return 0.0
        return float(getattr(self.table, f"{word}_most" if most else word)[row])

    def _rms(self, name: str) -> float:
        row = self.row.get(name)
        return float(self.table.rms[row]) if row is not None else 1.0


def rows_with_moved(flow: Flow, table: Table) -> dict[str, int]:
    """The row of each value; one that was only moved has the row of what it was moved from."""
    row = table.row()
    for step in flow.steps:
        if step.moves:
            sources = [row[name] for name in flow.feeders(step) if name in row]
            for value in step.outputs:
                if sources and value not in row:
                    row[value] = sources[0]
    return row


def _scaled(size: float, scale: float) -> float:
    return size if size >= GROSS else size * scale


def _add(sums: dict[str, float], key: str, piece: float) -> None:
    sums[key] = sums.get(key, 0.0) + piece


def effects(blames: Sequence[Blame], owners: Callable[[str], Sequence[str]]) -> dict[str, dict[str, float]]:
    """Node → output → the relative L2 that its own rounding leaves there. ``owners``: whose a value's rounding is."""
    squares: dict[str, dict[str, float]] = {}
    for blame in blames:
        for value, share in blame.values.items():
            for node in owners(value):
                _add(squares.setdefault(node, {}), blame.output, share * blame.passed**2)
        for node, share in blame.weights.items():
            _add(squares.setdefault(node, {}), blame.output, share * blame.passed**2)
    return {node: {name: math.sqrt(square) for name, square in found.items()} for node, found in squares.items()}
