"""What is measured, and what came out: frozen, and written as JSON as they stand."""

from __future__ import annotations

from typing import Literal

import msgspec

from artifacts.digest import Digest
from convert.values import CompiledArtifact, GateVerdict, OnnxGraph, OutputMetrics, Precision, RanOn

Timed = Literal["run", "process"]
"""What a time is of: ``run`` of one run alone; ``process`` of a whole process, loading included, by its runs."""
FaultState = Literal["passed", "failed", "skipped"]


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact that can be run, and the samples to run it on.

    ``graph`` brings the names and types of inputs and outputs, ``samples/NNN.npz`` and ``reference/NNN.npz``.
    """

    artifact: CompiledArtifact
    graph: OnnxGraph
    judged_as: Precision
    gate: dict[str, float] = {}
    """Thresholds in place of the precision's own."""
    ref: str = ""
    """The reference of a registry that it came from; empty for a file."""
    subject: Digest | Literal[""] = ""
    """The registry's digest of the target."""

    @property
    def name(self) -> str:
        """What errors call it."""
        return self.ref or self.artifact.files[0].name


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to measure. ``timeout``: seconds that a program which runs the artifact may take; 0 for no limit."""

    warmup: int = 10
    iterations: int = 100
    timeout: float = 0.0
    launcher: tuple[str, ...] = ()


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds of one run."""

    least: float
    mean: float
    p50: float
    p90: float
    p99: float
    most: float


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """How fast an artifact is. ``latency`` is None where a backend's runtime tells only the time of its process."""

    target: str
    device: str
    ran_on: RanOn
    timed: Timed
    warmup: int
    iterations: int
    samples: int
    batch: int
    """The first dimension of the first input, which throughput counts; 1 for a scalar."""
    latency: Latency | None
    runs_per_second: float
    items_per_second: float
    baseline: str = ""


class SoakOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``seconds`` to go on; ``iterations`` ends it earlier (0: not)."""

    seconds: float
    iterations: int = 0
    timeout: float = 0.0
    launcher: tuple[str, ...] = ()


class Soak(msgspec.Struct, frozen=True, kw_only=True):
    """Whether every output was equal to the first one of its sample, within the gate."""

    passed: bool
    device: str
    ran_on: RanOn
    seconds: float
    iterations: int
    identical: int
    """Runs whose outputs were the first one's, bit by bit."""
    worst_rel_l2: float = 0.0
    failed_at: int = 0
    """The number of the run that broke the gate, from 1; 0: none did."""
    failures: tuple[str, ...] = ()


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was broken on purpose: it must end in a clear error, and the next run must work."""

    name: str
    what: str
    state: FaultState
    code: str = ""
    message: str = ""
    next_run_works: bool = False


class Precisely(msgspec.Struct, frozen=True, kw_only=True):
    """The precision stage: outputs against the reference. ``rerun``: measured now, not taken from the stored report."""

    verdict: GateVerdict
    ran_on: RanOn
    device: str = ""
    outputs: tuple[OutputMetrics, ...] = ()
    rerun: bool = True


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """The three stages that a site signs off on. ``measured``: when, in UTC."""

    schema: int = 1
    passed: bool
    target: str
    soc: str = ""
    precision: Precision
    artifact: Digest
    ref: str = ""
    measured: str
    machine: dict[str, str] = {}
    precise: Precisely
    bench: Bench
    stress: Soak
    faults: tuple[Fault, ...]
