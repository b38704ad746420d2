"""READ FIRST: what acceptance is told and what it gives, in the order in which it happens."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from convert.metrics import OutputMetrics
from convert.values import CompiledArtifact, DimRange, GateVerdict, Note, OnnxGraph, Precision, RanOn, TensorSpec

Fault = Literal["", "killed", "device-lost", "memory", "truncated", "wrong-input"]
Clock = Literal["runtime", "in-process", "process", "torch"]
"""What a time was taken around: the call of the runtime, told by the script that makes it; the call of the runtime in
our own process; a whole process with its start and the loading of the artifact; or a call of a PyTorch module."""
Sampled = Literal["kept", "given", "random"]
"""Where inputs come from: kept with the artifact, given by the user, or made up from the inputs' shapes."""


class StoredArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """``artifact.json``: what running an artifact needs to know of it, its graph not being there."""

    schema: int = 1
    artifact: CompiledArtifact
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dims: tuple[DimRange, ...] = ()
    opset: int = 0
    sampled: Literal["given", "random"] = "random"


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact that can be run, as far as this machine has what it needs.

    ``graph`` has the specs of inputs and outputs and no model. ``kept``: the ``samples.zip`` kept with the artifact;
    empty: none. ``ref`` and ``registry`` are set where it came from a registry.
    """

    name: str
    artifact: CompiledArtifact
    graph: OnnxGraph
    judged_as: Precision
    thresholds: dict[str, float] = {}
    kept: str = ""
    ref: str = ""
    registry: str = ""
    notes: tuple[Note, ...] = ()


class SampleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which inputs to run with: ``kept`` and ``given`` are paths, or empty; ``given`` comes first, then ``kept``.

    ``preprocess``: what the artifact makes of 8-bit images, where it takes such.
    """

    given: str = ""
    kept: str = ""
    preprocess: str = ""
    inputs: tuple[str, ...] = ()
    dims: tuple[str, ...] = ()
    seed: int = 0


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A graph whose folder holds ``samples/000.npz``, … and ``reference/000.npz`` for the first ``references``."""

    graph: OnnxGraph
    sampled: Sampled
    references: int = 0
    sample_bytes: int = 0
    """Bytes of the inputs of one sample, the largest."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One pass of a worker: the samples over and over, ``runs`` inferences in all, after ``warmup`` uncounted ones.

    ``first``: a folder of outputs that every output must equal within the gate; empty: nothing is compared.
    ``against``: ``reference`` compares with the reference outputs instead.
    """

    artifact: CompiledArtifact
    graph: OnnxGraph
    runs: int
    warmup: int = 0
    first: str = ""
    keep_to: str = ""
    """A folder that gets the outputs of each sample, once."""
    judged_as: Precision
    thresholds: dict[str, float] = {}
    timeout: float = 0.0
    launcher: tuple[str, ...] = ()
    fault: Fault = ""


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass gave. ``millis``: time of each counted run, empty where only ``seconds`` of the whole is known."""

    ran_on: RanOn
    device: str = ""
    runs: int
    millis: tuple[float, ...] = ()
    clock: Clock = "in-process"
    seconds: float = 0.0
    equal: int = 0
    """Runs whose outputs were bit for bit those of ``first``."""
    worst: tuple[OutputMetrics, ...] = ()
    """The worst of all runs that were not."""
    broken: int = -1
    """The first run whose outputs left the gate; -1: none."""
    failures: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Outputs judged against reference outputs; ``verdict`` is None where there are none to compare with."""

    samples: int
    sampled: Sampled
    ran_on: RanOn
    device: str = ""
    outputs: tuple[OutputMetrics, ...] = ()
    verdict: GateVerdict | None = None
    judged_as: Precision
    notes: tuple[Note, ...] = ()


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Times of one run in milliseconds and runs per second, one after another; 0 where it was not measured.

    ``tool``: the program that told the times (``ais_bench``, …); empty: measured here, around what ``clock`` says.
    """

    runs: int
    warmup: int = 0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    mean: float = 0.0
    least: float = 0.0
    most: float = 0.0
    per_second: float = 0.0
    clock: Clock
    tool: str = ""


class TorchRun(msgspec.Struct, frozen=True, kw_only=True):
    """The PyTorch model itself, run on a device of this machine and compared with its run on the CPU."""

    device: str
    """``npu``, ``mlu``, ``cuda``, ``cpu``"""
    card: str = ""
    """The card's name as its torch tells it."""
    vendor: str = ""
    speed: Speed
    outputs: tuple[OutputMetrics, ...] = ()
    verdict: GateVerdict
    judged_as: Precision
    versions: dict[str, str] = {}
    notes: tuple[Note, ...] = ()


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """What ``convert bench`` gives. ``vendor``: the vendor's own timing tool, where the backend has one."""

    accuracy: Accuracy | None = None
    speed: Speed | None = None
    vendor: Speed | None = None
    torch: TorchRun | None = None
    notes: tuple[Note, ...] = ()


class Soak(msgspec.Struct, frozen=True, kw_only=True):
    """What ``convert soak`` gives. ``asked`` and ``seconds`` are times; ``broken``: the run that differed, or -1."""

    asked: float
    seconds: float
    runs: int
    rounds: int
    workers: int = 1
    equal: int = 0
    ran_on: RanOn
    device: str = ""
    sampled: Sampled
    samples: int
    worst: tuple[OutputMetrics, ...] = ()
    broken: int = -1
    failures: tuple[str, ...] = ()
    first: Speed | None = None
    last: Speed | None = None
    """Speed of the first and of the last round: a card that grows hot slows down."""
    memory_first: int = 0
    memory_last: int = 0
    """Peak memory in bytes of the process that runs it, after the first and after the last round."""

    @property
    def passed(self) -> bool:
        """Every output equals the first within the gate."""
        return self.broken < 0


FaultState = Literal["handled", "failed", "not-injected"]


class FaultResult(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: how the run ended that it was done to, and the healthy run after it.

    ``handled``: it ended in a clear error, and the next run gave the right outputs. ``not-injected``: this fault can't
    be done to this artifact here, ``said`` tells why; it proves nothing and breaks nothing.
    """

    fault: str
    done: str
    """What was done, in words."""
    state: FaultState
    said: str
    """The error that the run ended in, or why there was none."""
    code: str = ""
    next_run: str = ""
    """How the run after it went."""


StageState = Literal["passed", "failed", "not-judged", "skipped"]


class StageResult(msgspec.Struct, frozen=True, kw_only=True):
    """A stage of the acceptance and its sentence."""

    stage: Literal["precision", "stress", "faults"]
    state: StageState
    said: str
    error: dict[str, Any] | None = None


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """The report of ``convert accept``, schema 1. ``passed``: all three stages passed."""

    schema: int = 1
    name: str
    target: str
    soc: str = ""
    backend: str
    precision: str
    ref: str = ""
    main: str
    """The artifact's main file, its digest and its size."""
    sha256: str
    bytes: int
    passed: bool
    ran_on: RanOn | None = None
    device: str = ""
    stages: tuple[StageResult, ...]
    accuracy: Accuracy | None = None
    speed: Speed | None = None
    soak: Soak | None = None
    faults: tuple[FaultResult, ...] = ()
    notes: tuple[Note, ...] = ()
    machine: dict[str, Any] = {}
    versions: dict[str, str] = {}
    finished: str = ""
    """When, in UTC."""
