"""The mixed-precision plan: few nodes kept in fp32 so that the gate holds.

    1  all in fp32: does the gate hold at all?                                    no run: the exact one is known
    2  what cannot be held in the narrow type: values beyond its range, and what the blame of the first run names
    3  one check of that; where it fails, its own blame says what to add; each round adds twice as much at least
    4  where the last round added much, its smaller halves are tried

A value stays in fp32 only where the node that writes it and those that read it are kept, so nodes are added as
islands. Infinite values that end in a Softmax, a Clip or the like do no harm and ask for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from convert.metrics import OutputMetrics
from convert.precision.blame import Blame
from convert.precision.flow import Flow, Step
from convert.precision.stats import Table
from convert.precision.study import Evaluation, Study

CHECKS = 8
"""Emulated passes that a plan may take beyond the first."""
SHRINKS = 3
MARGIN = 0.5
"""The share of the gate's squared error that a plan aims at."""
GROSS_SHARE = 0.01
"""Of an error without measure, shares below this are its echo."""
ENDS = frozenset({"Sigmoid", "Tanh", "Clip", "Erf", "HardSigmoid", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"})
"""What gives the right number for an infinite input."""
ENDS_BELOW = frozenset({"Softmax", "Relu", "Exp"})
"""The same, where all that is infinite is -inf."""
CARRIES = frozenset({"Add", "Sub", "Where", "Min", "Max"})
"""What hands an infinite operand on and makes no NaN of it."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What one evaluation said: enough to go on from after an interruption."""

    keep: tuple[str, ...]
    passed: bool
    outputs: tuple[OutputMetrics, ...]
    thresholds: dict[str, float]
    blames: tuple[Blame, ...]


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes to keep, whether the gate holds with them, and the outputs then."""

    keep: tuple[str, ...]
    holds: bool
    outputs: tuple[OutputMetrics, ...] = ()
    reason: str = ""


class Planner:
    """Finds the plan for one study. ``known``: checks of an earlier, interrupted search; ``tell`` gets each new one."""

    def __init__(
        self, study: Study, first: Evaluation, *, known: Sequence[Check] = (), tell: Callable[[Check], None]
    ) -> None:
        self.study = study
        self.flow: Flow = study.flow
        self.first = first
        self.known = {frozenset(check.keep): check for check in known}
        self.tell = tell
        self.left = CHECKS
        self._harmless = {below: self._ends_well(below=below) for below in (False, True)}
        self._row = first.table.row()
        self._beyond = self._beyond_range()

    @property
    def harmful(self) -> frozenset[str]:
        """The nodes around values that the type can't hold, where their becoming infinite does harm."""
        return self._beyond

    def plan(self) -> Planned:
        """The plan; ``keep`` is empty where none is needed."""
        if self.first.verdict.passed:
            return Planned(keep=(), holds=True, outputs=self.first.outputs)
        whole = self.study.unrounded()
        if not whole.passed:
            told = whole.failures[0] if whole.failures else "the gate"
            return Planned(keep=(), holds=False, reason=f"even all in fp32 breaks it: {told}")
        check = self._recorded(self.first)
        keep: frozenset[str] = frozenset()
        least, added = keep, self._beyond | self._blamed(check, keep)
        while added - keep and self.left > 0:
            least, keep = keep, keep | added
            check = self._checked(keep)
            if check.passed:
                return self._shrunk(least, check)
            added = self._blamed(check, keep, at_least=len(keep))
        everything = frozenset(name for name in self.study.nodes if self.study.keepable(name))
        reason = "no smaller set was found: every node is kept, so that nothing is gained"
        return Planned(keep=self._in_order(everything), holds=self.study.precision != "int8", reason=reason)

    def _in_order(self, names: Iterable[str]) -> tuple[str, ...]:
        wanted = set(names)
        return tuple(dict.fromkeys(step.name for step in self.flow.steps if step.name in wanted and not step.link))

    # -------------------------------------------------------------------------------------------------------- checks

    def _recorded(self, evaluation: Evaluation) -> Check:
        return Check(
            keep=self._in_order(evaluation.keep),
            passed=evaluation.verdict.passed,
            outputs=evaluation.outputs,
            thresholds=evaluation.verdict.thresholds,
            blames=self.study.blames(evaluation),
        )

    def _checked(self, keep: frozenset[str]) -> Check:
        if keep not in self.known:
            self.left -= 1
            self.known[keep] = self._recorded(self.study.evaluate(keep))
            self.tell(self.known[keep])
        return self.known[keep]

    def _shrunk(self, least: frozenset[str], check: Check) -> Planned:
        """Try smaller halves of what the last round added, the nodes of most blame first."""
        least = least | (frozenset(check.keep) & self._beyond)
        order = [name for name in self._ranked(check) if name not in least]
        low, high = 0, len(order)
        tries = min(SHRINKS, self.left)
        while high - low > 0 and tries > 0:
            middle = (low + high) // 2
            smaller = self._checked(least | frozenset(order[:middle]))
            tries -= 1
            if smaller.passed:
                check, high = smaller, middle
            else:
                low = middle + 1
        return Planned(keep=check.keep, holds=True, outputs=check.outputs)

    def _ranked(self, check: Check) -> list[str]:
        """The kept nodes, those of most blame in the first run first."""
        scores = dict.fromkeys(check.keep, 0.0)
        for blame in self.study.blames(self.first):
            for value, share in blame.values.items():
                for name in self._island(value):
                    if name in scores:
                        scores[name] = max(scores[name], share)
            for name, share in blame.weights.items():
                if name in scores:
                    scores[name] = max(scores[name], share)
        return sorted(scores, key=lambda name: (name not in self._beyond, -scores[name]))

    # --------------------------------------------------------------------------------------------------------- range

    def _beyond_range(self) -> frozenset[str]:
        """The nodes around every value that the type can't hold, where its becoming infinite does harm."""
        table, row = self.first.table, self.first.table.row()
        keep: set[str] = set()
        for number, step in enumerate(self.flow.steps):
            weights = [self.study.weights.get(name) for name in self.flow.feeders(step)]
            if any(weight and weight.overflow for weight in weights):
                harmless = step.op in CARRIES and self._harmless[True][number]
                keep |= set() if harmless else {step.name}
            for value in step.outputs:
                if value in row and table.overflow[row[value]] > 0.0:
                    keep |= self._around(value, table, row[value])
        for value in self.flow.inputs:
            if value in row and table.overflow[row[value]] > 0.0:
                keep |= set(self._readers(value))
        return frozenset(keep)

    def _around(self, value: str, table: Table, row: int) -> set[str]:
        fmt = self.study.fmt
        below = fmt is not None and float(table.high[row]) < fmt.overflows
        harmed = [user for user in self._users(value) if not self._harmless[below][user]]
        if not harmed and value not in self.flow.outputs:
            return set()
        made = {maker.name for maker in self._makers(value)}
        return made | {name for user in harmed for name in self._through(user)}

    def _ends_well(self, *, below: bool) -> list[bool]:
        """For each step, whether an infinite input (-inf alone: ``below``) ends in the right number for it."""
        steps = self.flow.steps
        well = [False] * len(steps)
        for number in range(len(steps) - 1, -1, -1):
            step = steps[number]
            users = [user for value in step.outputs for user in self.flow.users.get(value, ())]
            carried = (step.moves or step.op in CARRIES) and not set(step.outputs) & set(self.flow.outputs)
            ends = step.op in ENDS or (below and step.op in ENDS_BELOW)
            well[number] = ends or (carried and bool(users) and all(well[user] for user in users))
        return well

    # --------------------------------------------------------------------------------------------------------- blame

    def _blamed(self, check: Check, keep: frozenset[str], *, at_least: int = 1) -> frozenset[str]:
        """Nodes to add: those of most blame, until what is left of each failing output's error fits the gate."""
        added: set[str] = set()
        for blame in check.blames:
            wanted = _share_to_remove(blame, check)
            parts = [(share, self._mended(value, keep)) for value, share in blame.values.items()]
            parts += [(share, [name]) for name, share in blame.weights.items()]
            removed = 0.0
            for share, island in sorted(parts, key=lambda part: -part[0]):
                enough = removed >= wanted and len(added) >= min(at_least, 64)
                if enough or (wanted >= 1.0 and share < GROSS_SHARE and added):
                    break
                removed += share
                added |= set(island) - keep
        return frozenset(added)

    def _mended(self, value: str, keep: frozenset[str]) -> list[str]:
        """What mends a value: its island; at first, for one beyond the range, only those that an infinity harms."""
        row = self._row.get(value)
        beyond = row is not None and self.first.table.overflow[row] > 0.0
        return (
            [name for name in self._island(value) if name in self._beyond]
            if beyond and not keep
            else self._island(value)
        )

    def _island(self, value: str) -> list[str]:
        """The nodes that must be kept for a value to stay in fp32."""
        makers = [step.name for step in self._makers(value)]
        return [name for name in (*makers, *self._readers(value)) if self.study.keepable(name)]

    def _makers(self, value: str) -> list[Step]:
        """The node that writes a value; of what comes out of a body, those that write it there."""
        found, seen, waiting = [], {value}, [value]
        while waiting:
            number = self.flow.makers.get(waiting.pop())
            if number is None:
                continue
            step = self.flow.steps[number]
            if not step.link:
                found.append(step)
                continue
            fresh = [name for name in step.inputs if name not in seen]
            seen.update(fresh)
            waiting += fresh
        return found

    def _readers(self, value: str) -> list[str]:
        return [name for user in self._users(value) for name in self._through(user)]

    def _users(self, value: str) -> list[int]:
        """The steps that read a value, and in a loop those that read it in the next turn."""
        again = self.flow.carried.get(value, "")
        return [*self.flow.users.get(value, ()), *self.flow.users.get(again, ())]

    def _through(self, number: int) -> list[str]:
        """A step that reads a value; for one that only moves it, also those that read what it gives."""
        names: dict[str, None] = {}
        seen, waiting = {number}, [number]
        while waiting:
            step = self.flow.steps[waiting.pop()]
            if not step.link:
                names[step.name] = None
            if step.moves:
                fresh = {user for value in step.outputs for user in self._users(value)} - seen
                seen |= fresh
                waiting += sorted(fresh)
        return list(names)


def _share_to_remove(blame: Blame, check: Check) -> float:
    """How much of an output's squared error has to go; 1 where the error has no measure."""
    output = next((one for one in check.outputs if one.name == blame.output), None)
    if output is None or output.rel_l2 is None or output.nonfinite_mismatch:
        return 1.0
    limit = check.thresholds.get("rel_l2", math.inf)
    if "cosine" in check.thresholds:
        limit = min(limit, math.sqrt(max(0.0, 2.0 * (1.0 - check.thresholds["cosine"]))))
    return 1.0 - min(1.0, MARGIN * (limit / max(output.rel_l2, 1e-30)) ** 2)
