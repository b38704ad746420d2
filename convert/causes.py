"""Why an artifact failed its gate, in words: where it first departs, and whether the forecast had said so."""

from __future__ import annotations

from collections.abc import Callable

from convert.backends import load_backend
from convert.errors import EXPECTED
from convert.evidence import Evidence
from convert.ladder import holds_with_plan
from convert.request import TargetResult
from convert.values import Forecast, GateVerdict, Located, ValidationReport, Where

FP16_LARGEST = 65504.0
LONGEST = 80
"""Letters of a node's name that are shown; exporters of other frameworks join names without end."""
NO_NUMBER = 1e9
"""As in ``convert.stages.locate``, which imports numpy."""


def why(result: TargetResult, evidence: Evidence, locate: Callable[[Where], Located]) -> str:
    """Why a judged target failed: by what its artifact computes on its way, where that can be told, and the forecast.

    ``locate`` compares the values inside for a sample.
    """
    report, verdict = result.report, result.verdict
    if report is None or verdict is None:
        return ""
    ran = report.ran_on in ("device", "simulator") and evidence.measured is None
    if not ran or getattr(load_backend(result.backend), "inside", None) is None:
        return cause(None, evidence.forecast, result.precision)
    try:
        located = locate(_where(report, verdict))
    except EXPECTED as error:
        told = cause(None, evidence.forecast, result.precision)
        return "; ".join(filter(None, (f"where it departs was not found ([{error.code}] {error.message})", told)))
    return cause(located, evidence.forecast, result.precision)


def _where(report: ValidationReport, verdict: GateVerdict) -> Where:
    """The sample that the first output which failed is worst in."""
    failed = " ".join(verdict.failures)
    sample = next((output.worst_sample for output in report.outputs if repr(output.name) in failed), 0)
    worst = max(
        NO_NUMBER if output.rel_l2 is None or output.nonfinite_mismatch else output.rel_l2 for output in report.outputs
    )
    return Where(sample=sample, limit=verdict.thresholds["rel_l2"], worst=worst)


def cause(located: Located | None, forecast: Forecast | None, precision: str) -> str:
    """One or two clauses; empty where nothing is known."""
    return "; ".join(filter(None, (_departure(located, precision), _forecast(forecast, located))))


def _departure(located: Located | None, precision: str) -> str:
    if located is None or not located.compared:
        return ""
    if not located.node:
        return f"none of its {located.compared} values inside departs by itself (by {located.how})"
    module = f" in module {located.module}" if located.module else ""
    largest = max(abs(located.low), abs(located.high))
    if located.error >= NO_NUMBER:
        over = ", which fp16 can't hold" if precision in ("fp16", "mixed") and largest > FP16_LARGEST else ""
        told = f"it has NaN or infinities where the graph has up to {largest:.4g}{over}"
    else:
        told = f"relative L2 {located.error:.3g}, with {located.arriving:.3g} arriving"
    return f"it first departs at {located.op} {_short(located.node)}{module}: {told} (by {located.how})"


def _forecast(forecast: Forecast | None, located: Located | None) -> str:
    if forecast is None:
        return ""
    if holds_with_plan(forecast):
        return f"the forecast of {forecast.precision} keeps the gate, so the loss is the compiler's own"
    named = next((node for node in forecast.guilty if node.reasons), None)
    if named is None:
        return f"the forecast of {forecast.precision} does not keep the gate either"
    if located is not None and named.node == located.node:
        return f"the forecast blames that node, too: {named.reasons[0]}"
    return f"the forecast of {forecast.precision} blames {named.op} {_short(named.node)}: {named.reasons[0]}"


def _short(name: str) -> str:
    return repr(name if len(name) <= LONGEST else f"{name[:LONGEST]}…")
