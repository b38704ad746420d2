"""Upper bounds of tensors that need not be looked at: a bias added, a weight multiplied, a Relu, a mean.

A tensor's norm bounds each of its elements. Where an operator can't make numbers much larger than what it is given, the
bound follows from that of its input, and nothing has to be taken of its output.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from convert.precision.blame import WeightError
from convert.precision.flow import Flow, Step
from convert.precision.readings import Reading, Readings

NO_LARGER = frozenset(
    {
        *("Relu", "Neg", "Abs", "Clip", "LeakyRelu", "Dropout", "MaxPool", "AveragePool", "GlobalAveragePool"),
        *("GlobalMaxPool", "ReduceMean", "ReduceMax", "ReduceMin", "Identity", "HardSwish", "Elu", "Gelu"),
    }
)
"""Operators whose output has no element larger than their first input's (or than 1)."""
WITHIN_ONE = frozenset({"Sigmoid", "Softmax", "Tanh", "Erf", "Sin", "Cos", "Softsign", "HardSigmoid"})
LARGEST_OF = frozenset({"Concat", "Where", "Max", "Min"})


class Bounds:
    """Which values of a flow have their bound from others, and what it is in one run."""

    def __init__(self, flow: Flow, weights: Mapping[str, WeightError]) -> None:
        self.flow = flow
        self.weights = weights
        self._worst: tuple[float, float] | None = None
        self.follows = {
            value for step in flow.steps if self._follows(step) for value in step.outputs if value in flow.types
        }

    def _follows(self, step: Step) -> bool:
        if step.link or step.inside:
            return False
        if step.moves or step.op in NO_LARGER | WITHIN_ONE | LARGEST_OF:
            return True
        weighted = [name for name in self.flow.feeders(step) if name in self.weights]
        return step.op in ("Add", "Sub", "Mul") and len(step.inputs) == 2 and len(weighted) == 1

    def within(self, told: Readings, limit: float, looked_at: Callable[[], Collection[str]]) -> bool:
        """Whether no bound of the tensors ``looked_at`` can reach a limit, told by the largest number of a run alone.

        True is certain; False asks for :meth:`of`, which goes through the graph.
        """
        if self._worst is None:
            self._worst = self._growth(looked_at())
        gain, offset = self._worst
        if gain == offset == 0.0:
            return True
        seen = [np.abs(told.sample).max(initial=0.0)]
        seen += [np.nanmax(np.abs(column), initial=0.0) for column in (told.norm, told.low, told.high)]
        return bool(gain * np.max(seen) + offset < limit)

    def _growth(self, names: Collection[str]) -> tuple[float, float]:
        """How much larger than the largest number that is measured some tensors can be: a factor and an offset."""
        grown: dict[str, tuple[float, float]] = {name: (0.0, abs(error.reach)) for name, error in self.weights.items()}
        for step in self.flow.steps:
            for value in step.outputs:
                grown[value] = self._grown(step, grown) if value in self.follows else (1.0, 0.0)
        found = [grown[name] for name in names if name in grown]
        return max((gain for gain, _ in found), default=0.0), max((offset for _, offset in found), default=0.0)

    def _grown(self, step: Step, grown: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
        if step.op in WITHIN_ONE:
            return 0.0, 1.0
        known = [grown.get(name, (1.0, 0.0)) for name in self.flow.feeders(step)]
        if step.op == "Mul":
            # One of the two is a weight, which has an offset alone.
            (gain, offset), (more, factor) = known[0], known[-1]
            return gain * factor + more * offset, offset * factor
        gains, offsets = [gain for gain, _ in known], [offset for _, offset in known]
        if step.op in ("Add", "Sub"):
            return sum(gains), sum(offsets) * (1 if len(known) > 1 else 2)
        return max(gains, default=0.0), max([1.0, *offsets] if step.op in NO_LARGER else offsets, default=0.0)

    def of(self, told: Mapping[str, Reading]) -> dict[str, float]:
        """The bound of every value in one run, from the readings of those that were looked at."""
        bound = {name: abs(error.reach) for name, error in self.weights.items()}
        for name in self.flow.inputs:
            if name in told:
                bound[name] = _seen(told[name])
        for step in self.flow.steps:
            for value in step.outputs:
                if value in told and value not in self.follows:
                    bound[value] = _seen(told[value])
                elif value in self.follows:
                    bound[value] = self._bound(step, bound)
        return bound

    def _bound(self, step: Step, bound: Mapping[str, float]) -> float:
        if step.op in WITHIN_ONE:
            return 1.0
        known = [bound.get(name, float("inf")) for name in self.flow.feeders(step)]
        if step.op == "Mul":
            return known[0] * known[-1]
        if step.op in ("Add", "Sub"):
            return sum(known) if len(known) > 1 else 2.0 * sum(known)
        return max([1.0, *known]) if step.op in NO_LARGER else max(known, default=0.0)


def _seen(reading: Reading) -> float:
    """What no element of a tensor is larger than."""
    if reading.norm is not None:
        return reading.norm
    extremes = [abs(value) for value in (reading.low, reading.high) if value is not None]
    return max(extremes) if extremes else float(abs(reading.sample).max(initial=0.0))
