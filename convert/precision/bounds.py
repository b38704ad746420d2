"""Upper bounds of tensors that need not be looked at: a bias added, a weight multiplied, a Relu, a mean.

A tensor's norm bounds each of its elements. Where an operator can't make numbers much larger than what it is given, the
bound follows from that of its input, and nothing has to be taken of its output.
"""

from __future__ import annotations

from collections.abc import Mapping

from convert.precision.blame import WeightError
from convert.precision.flow import Flow, Step
from convert.precision.probes import Reading

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
