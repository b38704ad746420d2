"""From a study's evaluation to what users read: one :class:`NodeForecast` for each node, and the guilty ones ranked."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from convert.precision.flow import Step
from convert.precision.rules import CERTAIN, POSSIBLE, Rules
from convert.precision.study import Evaluation, Study
from convert.precision.sums import SUMS
from convert.values import NodeForecast

LISTED = 50
"""Guilty nodes that a forecast names at most."""
GRAVE = 2.0
"""Findings of this gravity are told of a node even where its error did not show in the samples."""
NOTICED = 0.02
"""A node is guilty of an output's error from this share of it on."""


def node_forecasts(study: Study, evaluation: Evaluation) -> tuple[tuple[NodeForecast, ...], dict[str, float]]:
    """Every node in the order of the graph, and the gravity of what was found of each."""
    rules = Rules(
        study.flow,
        evaluation.table,
        study.weights,
        study.fmt,
        sums=study.sums,
        sizes=study.prober.sizes,
    )
    effects = study.effects(evaluation)
    steps: dict[str, list[Step]] = {}
    for step in study.flow.steps:
        if not step.link:
            steps.setdefault(step.name, []).append(step)
    gravity: dict[str, float] = {}
    nodes = []
    for name, own in steps.items():
        found = sorted({finding for step in own for finding in rules.findings(step)}, reverse=True)
        gravity[name] = found[0][0] if found else 0.0
        nodes.append(
            _node(study, evaluation, own, rules, effect=effects.get(name, {}), reasons=[text for _, text in found])
        )
    return tuple(nodes), gravity


def _node(
    study: Study,
    evaluation: Evaluation,
    steps: Sequence[Step],
    rules: Rules,
    *,
    effect: dict[str, float],
    reasons: list[str],
) -> NodeForecast:
    table = evaluation.table
    values = [value for step in steps for value in study.flow.floats(step.outputs) if value in rules.row]
    worst = max(values, key=lambda value: table.made[rules.row[value]], default="")
    # A node that stands for a reduction and its sum has the operator that the graph gives it.
    main = next((step for step in steps if step.op.startswith("Reduce")), steps[-1]) if len(steps) > 1 else steps[0]
    fed = [name for step in steps for name in study.flow.feeders(step) if name not in study.weights]
    own = {value for step in steps for value in step.outputs}
    arriving = [float(table.passed[rules.row[name]]) for name in fed if name in rules.row and name not in own]
    row = rules.row.get(worst)
    seen = rules.row.get(values[-1]) if values else None
    told: dict[str, Any] = {} if row is None else {
        "low": _finite(float(table.low[seen])), "high": _finite(float(table.high[seen])),
        "overflow": float(table.overflow[row]),
        "flushed": float(table.flushed[row]), "made": 0.0 if main.moves else float(table.made[row]),
    }  # fmt: skip
    return NodeForecast(
        node=main.name,
        op=_operator(steps, main),
        module=main.module,
        output=steps[-1].outputs[0] if steps[-1].outputs else "",
        arriving=max(arriving, default=0.0),
        passed=max((float(table.passed[rules.row[value]]) for value in values), default=0.0),
        effect=effect,
        reasons=tuple(reasons),
        **told,
    )


def _finite(value: float) -> float | None:
    """An end of a range as JSON can hold it."""
    return value if math.isfinite(value) else None


def _operator(steps: Sequence[Step], main: Step) -> str:
    """The operator of the node in the user's graph."""
    ops = {step.op for step in steps}
    for op in SUMS:
        if len(steps) > 1 and op in ops:
            return op
    return main.op


def guilty(
    nodes: Sequence[NodeForecast],
    gravity: dict[str, float],
    evaluation: Evaluation,
    unit: float,
    harmful: Collection[str] = (),
) -> tuple[NodeForecast, ...]:
    """The nodes whose rounding breaks the outputs, worst first, then those of which something grave is known.

    Where the gate holds, only the latter. ``harmful``: nodes around values beyond the range whose infinities do harm;
    of those, what breaks on every target comes before sums, which break where they are stored in the narrow type.
    """
    broken = not evaluation.verdict.passed

    def share(node: NodeForecast) -> float:
        return max(node.effect.values(), default=0.0) if broken else 0.0

    most = max((share(node) for node in nodes), default=0.0)
    named = [
        node
        for node in nodes
        if gravity[node.node] >= GRAVE or (most > 0.0 and share(node) > max(NOTICED * most, unit / 100))
    ]
    certain = any(gravity[node.node] >= CERTAIN and node.node in harmful for node in named)

    def place(node: NodeForecast) -> tuple[bool, float, float]:
        surely = gravity[node.node] >= CERTAIN and node.node in harmful
        behind = certain and not surely and gravity[node.node] == POSSIBLE
        return behind, -share(node), -gravity[node.node]

    ranked = sorted(named, key=place)
    return tuple(_with_reason(node, share(node)) for node in ranked[:LISTED])


def _with_reason(node: NodeForecast, share: float) -> NodeForecast:
    if node.reasons:
        return node
    text = f"its rounding leaves {share:.2g} of relative L2 in an output"
    return msgspec.structs.replace(node, reasons=(text,))
