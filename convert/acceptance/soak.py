"""``soak_artifact``: an artifact for a long time, every output held against the first of its sample. In the worker."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from convert.acceptance.running import Runs, until
from convert.acceptance.values import Soak, SoakOptions, Subject
from convert.arrays import Array
from convert.compare import compare_outputs, fold
from convert.gate import judge
from convert.values import OutputMetrics, ValidationReport


def soak_artifact(subject: Subject, options: SoakOptions, folder: Path) -> Soak:
    """Run until the time has passed, or an output differs from its first one beyond the gate: then at once.

    Equal bits need no comparing, so that a steady artifact is run and not measured most of the time. Raises what
    :func:`convert.acceptance.running.start` raises.
    """
    runs = Runs(subject=subject, folder=folder / "runs", timeout=options.timeout, launcher=options.launcher)
    begun, first = time.monotonic(), dict[int, list[Array]]()
    done = identical = 0
    worst, failures, device, ran_on = 0.0, list[str](), "", None
    for ran, sample, outputs in until(runs, options.seconds, options.iterations):
        done += 1
        device, ran_on = ran.device, ran.ran_on
        before = first.setdefault(sample, [np.array(output) for output in outputs])
        if same(before, outputs):
            identical += 1
            continue
        told, rel_l2 = _judged(subject, before, outputs)
        worst = max(worst, rel_l2)
        if told:
            failures = told
            break
    return Soak(
        passed=not failures,
        device=device,
        ran_on=ran_on or "device",
        seconds=time.monotonic() - begun,
        iterations=done,
        identical=identical,
        worst_rel_l2=worst,
        failed_at=done if failures else 0,
        failures=tuple(failures),
    )


def same(left: list[Array], right: list[Array]) -> bool:
    """Whether outputs are equal bit by bit."""
    return len(left) == len(right) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(left, right, strict=True)
    )


def _judged(subject: Subject, before: list[Array], outputs: list[Array]) -> tuple[list[str], float]:
    """What breaks the gate, and the worst relative L2."""
    names = [spec.name for spec in subject.graph.outputs]
    comparison = fold([compare_outputs(before, outputs, names)])
    report = ValidationReport(
        parent=subject.artifact.digest,
        ran_on="device",
        outputs=comparison.outputs,
        samples=1,
        reference="its first run",
    )
    return [*judge(report, subject.judged_as, subject.gate).failures], worst_of(comparison.outputs)


def worst_of(outputs: tuple[OutputMetrics, ...]) -> float:
    """The worst relative L2 of all outputs."""
    return max((output.rel_l2 for output in outputs if output.rel_l2 is not None), default=0.0)
