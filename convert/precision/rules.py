"""What a forecast says of a node in words: the findings of the runs, and rules that hold whatever the samples are.

overflow    its output, its sum on the way, or a weight of its lies beyond the type's range
masks       a weight of -1e9, -1e4 or the lowest float32: a mask that turns into -inf (0 times it: NaN)
epsilons    a single small number that becomes zero, as the one that keeps a norm from dividing by zero
underflow   numbers that become zero, or lose digits, below the smallest normal number
breaking    infinite or NaN out of inputs that are not
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from convert.precision.blame import WeightError, rows_with_moved
from convert.precision.flow import Flow, Step
from convert.precision.rounding import Format
from convert.precision.stats import GROSS, Table

REDUCTIONS = frozenset({"ReduceMean", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "GlobalAveragePool"})
MASK_FROM = 1e4
MUCH_FLUSHED = 0.05
POSSIBLE = 2.9
"""The gravity of an overflow that happens where sums are stored in the narrow type."""
CERTAIN = 3.0
"""The gravity from which on numbers break on every target."""
SPOKEN_FROM = 16.0
"""An error of this many times the type's own rounding is spoken of."""


class Rules:
    """Findings of each step from the table of an evaluation. ``sums``: values that stand for a sum on the way."""

    def __init__(
        self,
        flow: Flow,
        table: Table,
        weights: Mapping[str, WeightError],
        fmt: Format | None,
        *,
        sums: Sequence[str] = (),
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.flow = flow
        self.table = table
        self.row = rows_with_moved(flow, table)
        self.weights = weights
        self.fmt = fmt
        self.sums = frozenset(sums)
        self.sizes = sizes or {}

    def findings(self, step: Step) -> Iterator[tuple[float, str]]:
        """(gravity, finding) of one step; gravity 3 breaks numbers, 2 may, 1 costs digits."""
        if step.link:
            return
        if self.fmt is not None:
            for name in self.flow.feeders(step):
                if name in self.weights and not step.moves:
                    yield from self._weight(name, self.weights[name], self.fmt)
                elif name in self.flow.inputs:
                    yield from self._stored(name, f"input {name!r}", self.fmt)
            if not step.moves:
                for value in step.outputs:
                    words = "the sum that it forms on the way" if value in self.sums else "its output"
                    yield from self._stored(value, words, self.fmt)
            yield from self._reduction(step, self.fmt)
        yield from self._breaks(step)

    def _weight(self, name: str, error: WeightError, fmt: Format) -> Iterator[tuple[float, str]]:
        if error.overflow:
            masks = -error.reach >= MASK_FROM
            holds = f"a mask of {error.reach:.4g} ({name!r})" if masks else f"weight {name!r} of {error.reach:.4g}"
            yield 3.1, f"{holds} is beyond {fmt.name}'s {fmt.largest:.6g} and becomes infinite"
        elif error.flushed and error.size == 1 and error.made >= 1.0:
            yield 2.5, f"the small number {error.reach:.3g} ({name!r}) becomes 0 in {fmt.name}"
        elif error.flushed >= MUCH_FLUSHED and error.made > SPOKEN_FROM * fmt.unit:
            yield 1.5, f"{error.flushed:.0%} of weight {name!r} lies below {fmt.name}'s smallest normal number"

    def _stored(self, value: str, words: str, fmt: Format) -> Iterator[tuple[float, str]]:
        row = self.row.get(value)
        if row is None:
            return
        table = self.table
        low, high = float(table.low[row]), float(table.high[row])
        if table.overflow[row] > 0.0:
            reach = low if abs(low) > abs(high) else high
            share = float(table.overflow[row])
            much = f"{share:.1%} of it" if share >= 1e-3 else "some of it"
            # That a sum is stored is not known of every target; that an output is, is.
            yield (
                3.0 if value not in self.sums else POSSIBLE,
                f"{words} reaches {reach:.4g}, beyond {fmt.name}'s {fmt.largest:.6g}: {much} becomes infinite",
            )
        elif table.flushed[row] >= MUCH_FLUSHED and table.made_most[row] > SPOKEN_FROM * fmt.unit:
            share, gravity = float(table.flushed[row]), 2.0 if table.made[row] > SPOKEN_FROM * fmt.unit else 1.0
            told = "becomes 0 or loses digits"
            yield gravity, f"{share:.0%} of {words} lies below {fmt.name}'s smallest normal {fmt.normal:.3g} and {told}"

    def _reduction(self, step: Step, fmt: Format) -> Iterator[tuple[float, str]]:
        """A sum of magnitudes that can pass the range, whatever is summed in: told by the mean and the count."""
        if step.op not in REDUCTIONS or not step.inputs:
            return
        row = self.row.get(step.inputs[0])
        before, after = self.sizes.get(step.inputs[0], 0), self.sizes.get(step.outputs[0], 0)
        if row is None or not before or not after:
            return
        square = step.op in ("ReduceL2", "ReduceSumSquare")
        rms = float(self.table.rms[row])
        total = (rms * rms if square else rms) * (before / after)
        if total > fmt.largest:
            summed = "squares" if square else "magnitudes"
            yield (
                1.8,
                f"it sums {before // after} {summed} to about {total:.3g}, which {fmt.name} can't hold on the way",
            )

    def _breaks(self, step: Step) -> Iterator[tuple[float, str]]:
        passed = max((self._passed(value) for value in step.outputs), default=0.0)
        own = [float(self.table.made[row]) for value in step.outputs if (row := self.row.get(value)) is not None]
        if passed < GROSS or max(own, default=0.0) >= GROSS:
            return
        feeders = list(self.flow.feeders(step))
        arriving = max((self._passed(name) for name in feeders if name not in self.weights), default=0.0)
        if arriving < GROSS and not any(self.weights[name].overflow for name in feeders if name in self.weights):
            yield 2.2, "infinite or NaN first shows here, out of inputs that are neither"

    def _passed(self, value: str) -> float:
        row = self.row.get(value)
        return float(self.table.passed[row]) if row is not None else 0.0
