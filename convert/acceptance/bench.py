"""``bench_artifact``: warm-up, then latency percentiles and throughput. Runs in the worker."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from convert.acceptance.running import Runs, timed
from convert.acceptance.values import Bench, BenchOptions, Latency, Subject
from convert.arrays import load_npz


def bench_artifact(subject: Subject, options: BenchOptions, folder: Path) -> Bench:
    """Run an artifact ``warmup`` + ``iterations`` times over its samples.

    Raises :class:`ToolchainMissing` CNV-6002, :class:`UsageError` CNV-2282, and what the backend raises.
    """
    runs = Runs(subject=subject, folder=folder / "runs", timeout=options.timeout, launcher=options.launcher)
    count = options.warmup + options.iterations
    ran, seconds, whole = timed(runs, count)
    each = np.array(seconds[options.warmup :]) if len(seconds) == count else np.zeros(0)
    per_run = float(each.mean()) if each.size else whole / count
    batch = batch_of(subject)
    return Bench(
        target=subject.artifact.target,
        device=ran.device,
        ran_on=ran.ran_on,
        timed="run" if each.size else "process",
        warmup=options.warmup,
        iterations=options.iterations,
        samples=subject.graph.sample_count,
        batch=batch,
        latency=latency_of(each) if each.size else None,
        runs_per_second=1.0 / per_run,
        items_per_second=batch / per_run,
    )


def latency_of(seconds: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Latency:
    """Percentiles of times in seconds, as milliseconds."""
    p50, p90, p99 = (float(value) for value in np.percentile(seconds, [50, 90, 99]) * 1e3)
    least, mean, most = (float(value) * 1e3 for value in (seconds.min(), seconds.mean(), seconds.max()))
    return Latency(least=least, mean=mean, p50=p50, p90=p90, p99=p99, most=most)


def batch_of(subject: Subject) -> int:
    """The first dimension of the first input of the first sample; 1 for a scalar."""
    arrays = load_npz(subject.graph.path("samples/000.npz"))
    shape = arrays[subject.graph.inputs[0].name].shape if subject.graph.inputs else ()
    return int(shape[0]) if shape else 1
