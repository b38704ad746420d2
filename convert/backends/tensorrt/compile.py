"""A plan run: the graph cast or quantized where the plan says so, trtexec, and whether it did what it was told."""

from __future__ import annotations

import re
from pathlib import Path

from artifacts.runner import Finished
from convert.backends.base import LOG, Compiled, Runner
from convert.backends.casting import cast
from convert.backends.pairs import require_pairs
from convert.values import Note, OnnxGraph, Plan

VERDICT = re.compile(r"^&&&& (PASSED|FAILED|WAIVED)\b", re.MULTILINE)


def prepare(plan: Plan, graph: OnnxGraph, folder: Path) -> tuple[Note, ...]:
    """Put into a folder that holds ``model/model.onnx`` what the plan needs beside it: a graph that is cast.

    Raises UsageError CNV-2268 for int8 of a graph without ranges.
    """
    if "--int8" in plan.argv and not any(word.startswith("--calib=") for word in plan.argv):
        require_pairs(graph)
    return cast(plan, graph, folder)


def compile_plan(plan: Plan, graph: OnnxGraph, folder: Path, runner: Runner) -> Compiled:
    """Prepare, and run trtexec."""
    notes = prepare(plan, graph, folder)
    finished = runner(plan.argv, environment=plan.environment)
    return Compiled(
        files=(plan.output,), failure=failure_of(finished, _text(folder / LOG)), finished=finished, notes=notes
    )


def failure_of(finished: Finished, log: str) -> str:
    """How trtexec failed, in words; empty where both its exit code and its closing line say that it succeeded."""
    verdicts = VERDICT.findall(log)
    verdict = verdicts[-1] if verdicts else ""
    if finished.returncode < 0 or finished.returncode > 128:
        signal = -finished.returncode if finished.returncode < 0 else finished.returncode - 128
        return f"trtexec was ended by signal {signal}"
    if finished.returncode:
        return f"trtexec failed with exit code {finished.returncode}"
    if not verdict:
        return "trtexec ended with exit code 0 and without its closing line"
    return "" if verdict == "PASSED" else f"trtexec ended with exit code 0 and says {verdict}"


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
