"""What became of a pair, and what is different from last time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from convert.catalog.delivery import Settled
from convert.catalog.values import Outcome, PairPlan, Recorded
from convert.request import TargetResult, worst

SLOWER = 2.0
"""A compile that takes this many times as long as last time is a regression,"""
SLOWER_SECONDS = 5.0
"""where it also takes so many seconds longer."""


def failed(plan: PairPlan, error: dict[str, Any], last: Recorded | None = None) -> Outcome:
    """The outcome of a pair that could not be done."""
    pair = plan.pair
    regression = f"{last.ref} passed before" if last is not None and last.verdict == "passed" else ""
    return Outcome(
        name=pair.name,
        target=pair.target,
        status="failed",
        change=regression or plan.why,
        regression=regression,
        owner=pair.owner,
        error=error,
    )


def kept(plan: PairPlan, last: Recorded | None) -> Outcome:
    """The outcome of a pair that nothing is done about, or not yet."""
    pair = plan.pair
    if plan.action == "keep" and last is not None:
        return Outcome(
            name=pair.name,
            target=pair.target,
            status="unchanged",
            verdict=last.verdict,
            change="unchanged",
            ref=last.ref,
            digest=last.digest,
            owner=pair.owner,
        )
    if plan.error is not None:
        outcome = failed(plan, plan.error)
        change = "fails as before" if plan.action == "known failure" else plan.why
        return msgspec.structs.replace(outcome, change=change)
    return Outcome(name=pair.name, target=pair.target, status="planned", change=plan.why, owner=pair.owner)


def of_result(plan: PairPlan, result: TargetResult, last: Recorded | None) -> Outcome:
    """The outcome of a conversion; ``drafted`` where it is still to be placed."""
    pair = plan.pair
    seconds = sum(run.seconds for run in result.stages if not run.cached)
    verdict = _verdict(result)
    report = f"{result.folder}/report.html" if result.folder else ""
    if result.error is not None:
        outcome = failed(plan, result.error, None if result.status == "handoff" else last)
        status: Any = "handoff" if result.status == "handoff" else "failed"
        return msgspec.structs.replace(outcome, status=status, verdict=verdict, report=report, seconds=seconds)
    slower = slower_compile(result, last)
    return Outcome(
        name=pair.name,
        target=pair.target,
        status="drafted",
        verdict=verdict,
        change="; ".join(filter(None, (_changed(plan, result, last), slower))),
        regression=slower,
        report=report,
        owner=pair.owner,
        seconds=round(seconds, 3),
    )


def _verdict(result: TargetResult) -> str:
    if result.verdict is None or result.report is None:
        return ""
    return f"{'passed' if result.verdict.passed else 'failed'} on {result.report.ran_on}"


def _changed(plan: PairPlan, result: TargetResult, last: Recorded | None) -> str:
    if last is None:
        return "new"
    words = [plan.why]
    outputs = result.report.outputs if result.report else ()
    cosines = [output.cosine for output in outputs if output.cosine is not None]
    if cosines and last.cosine is not None and min(cosines) != last.cosine:
        words.append(f"cosine {last.cosine:.6g} → {min(cosines):.6g}")
    return "; ".join(words)


def slower_compile(result: TargetResult, last: Recorded | None) -> str:
    """In words, that the compiler took much longer than last time; empty where it did not, or did not run."""
    took = next((run.seconds for run in result.stages if run.stage == "compile" and not run.cached), 0.0)
    before = last.seconds.get("compile", 0.0) if last is not None else 0.0
    if before and took > SLOWER * before and took - before > SLOWER_SECONDS:
        return f"compiling took {took:.0f} s, {took / before:.1f} × the {before:.0f} s of last time"
    return ""


def placed(outcome: Outcome, settled: Settled) -> Outcome:
    """An outcome with the reference that its artifact has now."""
    change = outcome.change
    if not settled.sealed:
        waiting = f"{settled.version} waits for {', '.join(settled.missing)}"
        return msgspec.structs.replace(
            outcome,
            ref=settled.refs.get(outcome.target, outcome.ref),
            digest=settled.digests.get(outcome.target, outcome.digest),
            change=f"{change}; {waiting}" if settled.missing else change,
        )
    if settled.promoted:
        change = f"{change}; {settled.promoted}"
    return msgspec.structs.replace(
        outcome,
        status="unchanged" if outcome.status == "unchanged" else "published",
        version=settled.version,
        ref=settled.refs.get(outcome.target, outcome.ref),
        digest=settled.digests.get(outcome.target, outcome.digest),
        change=change,
    )


def worst_error(outcomes: Sequence[Outcome]) -> dict[str, Any] | None:
    """The error that weighs most; its exit code is the run's."""
    return worst([outcome.error for outcome in outcomes if outcome.error])


TABLE = ("model", "target", "status", "verdict", "change", "reference", "owner")


def table_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """Outcomes as rows of the table that people read."""
    rows: list[tuple[str, ...]] = []
    for one in outcomes:
        told = f"[{one.error['code']}] {one.error['message']}" if one.error else one.change
        if one.error and one.regression:
            told = f"{one.regression}; {told}"
        rows.append((one.name, one.target, one.status, one.verdict, told, one.ref, one.owner))
    return rows


def counts(outcomes: Sequence[Outcome]) -> str:
    """``3 published, 1 failed``."""
    found = [outcome.status for outcome in outcomes]
    return ", ".join(f"{found.count(status)} {status}" for status in dict.fromkeys(found)) or "nothing to do"
