"""One pass of an artifact over its samples: run, time, compare. Runs in the worker (imports numpy)."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from artifacts.runner import Finished
from convert.acceptance.inject import die, harmed_feeds, harmed_runner, prepare_harm
from convert.acceptance.values import Accuracy, Clock, Fault, Job, Pass, Prepared, Speed
from convert.arrays import Array, load_npz, save_npz
from convert.backends import load_backend
from convert.backends.base import LOG, CannotRun, Ran, Runner, RunRequest, Timing
from convert.backends.children import TIMES
from convert.compare import Compared, compare_outputs, fold
from convert.errors import ToolchainMissing
from convert.gate import judge
from convert.metrics import OutputMetrics
from convert.stages.compile import runner_for
from convert.values import OnnxGraph, ValidationReport

DIFFERING = 32
"""Of runs that are not bit for bit the first, this many of the worst are kept."""


def measure_accuracy(job: Job, prepared: Prepared, folder: Path) -> Accuracy:
    """Run every sample once and judge against the reference outputs, where there are some.

    ``job.keep_to`` gets the outputs. Raises :class:`ToolchainMissing` CNV-6002 where nothing here runs the artifact,
    and what its backend raises.
    """
    ran = _start(job, folder, runner_for(job.timeout, folder, job.launcher))
    compared = list(_against_reference(job.graph, ran, Path(job.keep_to)))
    comparison = fold(compared[: prepared.references], inputs_differ=prepared.references > 1)
    report = ValidationReport(parent="", ran_on=ran.ran_on, outputs=comparison.outputs, samples=comparison.samples)
    return Accuracy(
        samples=len(compared),
        sampled=prepared.sampled,
        ran_on=ran.ran_on,
        device=ran.device,
        outputs=comparison.outputs,
        verdict=judge(report, job.judged_as, job.thresholds) if prepared.references else None,
        judged_as=job.judged_as,
        notes=(*ran.notes, *comparison.notes),
    )


def _against_reference(graph: OnnxGraph, ran: Ran, keep: Path) -> Iterator[Sequence[Compared]]:
    names = [spec.name for spec in graph.outputs]
    for number, outputs in enumerate(ran.outputs):
        save_npz(keep / f"{number:03d}.npz", {str(place): array for place, array in enumerate(outputs)})
        path = graph.path(f"reference/{number:03d}.npz")
        reference = in_order(path) if path.is_file() else []
        settled = _settled(graph, number, reference, outputs)
        yield compare_outputs(reference, settled, names, candidate_names=ran.output_names) if reference else ()


def _settled(graph: OnnxGraph, number: int, reference: list[Array], outputs: list[Array]) -> Sequence[Array | None]:
    """Outputs with indices of equal elements settled, where the graph has such outputs."""
    if not graph.path(f"ties/{number:03d}.npz").is_file():
        return outputs
    from convert.ties import TieCount, read_ties

    return TieCount([spec.name for spec in graph.outputs]).settle(reference, outputs, read_ties(graph, number))


def in_order(path: Path) -> list[Array]:
    """Stored outputs in their order."""
    arrays = load_npz(path)
    return [arrays[key] for key in sorted(arrays, key=int)]


def _start(job: Job, folder: Path, runner: Runner, fault: Fault = "") -> Ran:
    folder.mkdir(parents=True, exist_ok=True)
    feeds = itertools.islice(itertools.cycle(_feeds(job.graph)), job.warmup + job.runs)
    request = RunRequest(artifact=job.artifact, graph=job.graph, folder=folder)
    ran = load_backend(job.artifact.backend).run(request, harmed_feeds(feeds, fault), runner)
    if isinstance(ran, CannotRun):
        raise ToolchainMissing(
            "CNV-6002",
            f"nothing on this machine can run the artifact for {job.artifact.target}: {ran.reason}",
            hint=ran.hint or "do this on a machine that has the card",
        )
    return ran


def _feeds(graph: OnnxGraph) -> list[dict[str, Array]]:
    return [load_npz(graph.path(f"samples/{number:03d}.npz")) for number in range(graph.sample_count)]


# ----------------------------------------------------------------------------------------------------------------- pass


@dataclass
class _Counted:
    """A process runner that remembers how often it was asked, and how long that took."""

    runner: Runner
    seconds: list[float] = field(default_factory=list)

    def __call__(
        self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None, log: str = LOG
    ) -> Finished:
        finished = self.runner(argv, environment=environment, log=log)
        self.seconds.append(finished.seconds)
        return finished


def run_pass(job: Job, folder: Path) -> Pass:
    """Run the samples over and over, in order; time each run, and stop at the first that differs beyond the gate.

    Raises :class:`ToolchainMissing` CNV-6002 where nothing here runs the artifact, and what its backend raises.
    """
    held = prepare_harm(job.fault, job.artifact)
    counted = _Counted(harmed_runner(runner_for(job.timeout, folder, job.launcher), job.fault))
    begun = time.perf_counter()
    ran = _start(job, folder, counted, job.fault)
    watch = _Watch(job)
    millis: list[float] = []
    outputs = iter(ran.outputs)
    for number in range(job.warmup + job.runs):
        before = time.perf_counter()
        arrays = next(outputs, None)
        millis.append((time.perf_counter() - before) * 1e3)
        if job.fault == "killed":
            die()
        if arrays is None or (number >= job.warmup and not watch.holds(number, arrays, ran)):
            break
    seconds = time.perf_counter() - begun
    held.clear()
    times, clock = _times(ran.seconds or _told(folder), counted.seconds, millis)
    return Pass(
        ran_on=ran.ran_on,
        device=ran.device,
        runs=watch.runs,
        millis=tuple(times[job.warmup : job.warmup + watch.runs]),
        clock=clock,
        seconds=seconds,
        equal=watch.equal,
        worst=watch.worst(),
        broken=watch.broken,
        failures=watch.failures,
        notes=ran.notes,
    )


def ask_vendor(job: Job, folder: Path) -> Speed | None:
    """What the vendor's own timing tool says of the first sample; None where there is none, or it is not here."""
    timing = getattr(load_backend(job.artifact.backend), "timing", None)
    if timing is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    request = RunRequest(artifact=job.artifact, graph=job.graph, folder=folder)
    runner = runner_for(job.timeout, folder, job.launcher)
    told: Timing | None = timing(request, _feeds(job.graph)[0], runner, warmup=job.warmup, runs=job.runs)
    if told is None:
        return None
    return Speed(
        runs=told.runs,
        warmup=told.warmup,
        p50=told.median,
        p99=told.p99,
        mean=told.mean,
        least=told.least,
        most=told.most,
        per_second=told.per_second,
        clock="runtime",
        tool=told.tool,
    )


def _told(folder: Path) -> Sequence[object]:
    """The seconds that the script of a runtime left of each run; empty where it left none."""
    try:
        told = json.loads((folder / TIMES).read_bytes())
    except (OSError, ValueError, RecursionError):
        return ()
    return told if isinstance(told, list) else ()


def _times(told: Sequence[object], processes: list[float], millis: list[float]) -> tuple[list[float], Clock]:
    """The best times that there are: the runtime's own, else ours where no process ran, else those of the processes."""
    seconds = [float(one) for one in told if isinstance(one, int | float) and _is_time(one)]
    if len(seconds) == len(told) >= len(millis) > 0:
        return [one * 1e3 for one in seconds], "runtime"
    if not processes:
        return millis, "in-process"
    return ([seconds * 1e3 for seconds in processes] if len(processes) >= len(millis) > 1 else []), "process"


def _is_time(value: float) -> bool:
    return math.isfinite(value) and value >= 0


class _Watch:
    """Compares every run with the first run of its sample."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.runs = self.equal = 0
        self.broken = -1
        self.failures: tuple[str, ...] = ()
        self._differing: list[tuple[Compared, ...]] = []
        self._names = [spec.name for spec in job.graph.outputs]
        self._first: dict[int, list[Array]] = {}

    def holds(self, number: int, arrays: Sequence[Array], ran: Ran) -> bool:
        """Whether a run equals the first within the gate; counts it."""
        self.runs += 1
        if not self.job.first:
            return True
        sample = number % self.job.graph.sample_count
        if sample not in self._first:
            self._first[sample] = in_order(Path(self.job.first) / f"{sample:03d}.npz")
        if _same(self._first[sample], arrays):
            self.equal += 1
            return True
        compared = compare_outputs(self._first[sample], arrays, self._names, candidate_names=ran.output_names)
        outputs = fold([compared]).outputs
        report = ValidationReport(parent="", ran_on=ran.ran_on, outputs=outputs, samples=1)
        verdict = judge(report, self.job.judged_as, self.job.thresholds)
        self._differing.append(compared)
        self._differing = sorted(self._differing, key=_error, reverse=True)[:DIFFERING]
        if not verdict.passed:
            self.broken = self.runs - 1
            self.failures = verdict.failures
        return verdict.passed

    def worst(self) -> tuple[OutputMetrics, ...]:
        """The worst of all runs that differ."""
        return fold(self._differing).outputs if self._differing else ()


def _same(ours: Sequence[Array], theirs: Sequence[Array]) -> bool:
    """Bit for bit, NaN included."""
    return len(ours) == len(theirs) and all(
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
        for one, other in zip(ours, theirs, strict=True)
    )


def _error(compared: Sequence[Compared]) -> float:
    return max((one.picture.error for one in compared), default=0.0)
