"""What a backend is: how one vendor's compiler is planned, found, run and understood.

    probe    where the toolchain is and which version, or what is missing
    plan     graph, target and options → the exact argument list, files and environment (pure)
    compile  the plan, through the process runner it is given
    run      an artifact on inputs, where that can be done here
    diagnose a vendor's log → cause, nodes, what to do

A backend inherits nothing. What all need stands in the stages (``convert.stages.compile``, ``…validate``): the working
folder, the time limit, the log, and that the output exists, is new and is not empty.

The working folder, the same here and in a handoff bundle; paths in a plan are relative to it:

    model/model.onnx   the graph (with model/model.onnx.data where its weights are external)
    <plan.files>       configuration files that the plan wants written
    out/<plan.output>  where the compiler puts the artifact, and whatever belongs to it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from artifacts.runner import Finished
from convert.values import CompiledArtifact, CompileOptions, Note, OnnxGraph, Plan, RanOn
from op_registry.values import Target

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]
    Feeds = Iterable[Mapping[str, Array]]

MODEL_IN = "model/model.onnx"
"""Where a plan finds the graph."""
OUT = "out"
"""The folder that a plan writes its output into."""
LOG = "compile.log"
SOC = "{soc}"
"""What stands in a plan's arguments and files for the exact SoC where only the machine that compiles will know it: in a
plan for an ``assumed`` toolchain and a family of SoCs. A toolchain that is here needs the SoC itself."""


class Toolchain(msgspec.Struct, frozen=True, kw_only=True):
    """A toolchain on this machine, or (``assumed``) the one that a plan for another machine is made for.

    ``details`` are further facts by name: the program's path, versions of parts, the card found.
    """

    name: str
    version: str
    details: dict[str, str] = {}
    assumed: bool = False


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """A toolchain that is not on this machine: what was looked for, and what to install or source.

    ``asked``: the other side of the launcher (``CONVERT_LAUNCHER``) was asked, and it is not there either.
    ``version``: of the toolchain, where that is here and only a part that the request needs is missing.
    """

    name: str
    reason: str
    hint: str
    asked: bool = False
    version: str = ""


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """What a compile gave. ``files`` lie in ``out/``, the artifact itself first.

    ``failure`` says in words how the tool failed; the backend sets it by its tool's own rules (an exit code, a closing
    line, …). Empty: the tool says that it succeeded, and the stage looks whether the file is there.
    """

    files: tuple[str, ...]
    failure: str = ""
    finished: Finished | None = None
    notes: tuple[Note, ...] = ()


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What a vendor's log means. ``nodes`` are names of graph nodes; ``known`` is false where the log is not known.

    ``ops`` are the operator types that the log names, for vendors that name no node.
    """

    cause: str
    hint: str
    code: str = "CNV-7002"
    nodes: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    known: bool = True


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact that runs. ``outputs`` gives, per sample, the outputs in order; samples run as they are asked for."""

    outputs: Iterator[list[Any]]
    ran_on: RanOn
    device: str = ""
    output_names: tuple[str, ...] = ()
    """What the artifact itself calls its outputs; empty: not known."""
    notes: tuple[Note, ...] = ()
    seconds: tuple[float, ...] = ()
    """Per sample, how long the run alone took, as the vendor's runtime was timed; empty: not told."""
    in_process: bool = False
    """Each output is computed here when it is asked for, so that its time can be taken from outside."""


class Inside(msgspec.Struct, frozen=True, kw_only=True):
    """What a compiled artifact computes on its way, for one sample: arrays by the name that the graph has for a value.

    A backend whose tool can tell offers ``inside(request, feed, runner) -> Inside | CannotRun``; the folder of the
    request is laid out as for a compilation. ``how`` says in words how the numbers came about.
    """

    values: dict[str, Any]
    how: str


class CannotRun(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact that can't be run on this machine, and why."""

    reason: str
    hint: str = ""


class Runner(Protocol):
    """The process runner as a stage hands it to a backend: folder, time limit, launcher and log are already set."""

    def __call__(
        self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None, log: str = LOG
    ) -> Finished:
        """Run a program in the working folder and wait for it; its output goes to the file ``log`` there."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to run: the artifact, the graph it was made from (names, dtypes, order), and a folder for scratch files.

    ``replaceable``: something stands in for a run, so a plan that leaves the gate to another machine is heeded.
    """

    artifact: CompiledArtifact
    graph: OnnxGraph
    folder: Path
    replaceable: bool = False


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """What a vendor's own timing tool says of an artifact: milliseconds of a run, runs per second; 0: not told.

    A backend that has such a tool offers ``timing(request, feed, runner, *, warmup, runs) -> Timing | None``.
    """

    tool: str
    runs: int
    warmup: int = 0
    median: float = 0.0
    p99: float = 0.0
    mean: float = 0.0
    least: float = 0.0
    most: float = 0.0
    per_second: float = 0.0


@runtime_checkable
class Backend(Protocol):
    """One vendor's compiler."""

    name: str

    def probe(self, target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
        """Find the toolchain that serves a target. ``environment``: the process's, with the settings' ``CONVERT_…``."""

    def assumed(self) -> Toolchain:
        """The toolchain that a plan is made for where none is found: its version is the newest that was verified."""

    def plan(self, graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
        """Decide what to do. Pure: reads no file, asks no machine, and gives the same plan for the same values.

        Raises :class:`convert.errors.UsageError`: CNV-2071 unknown option, CNV-2072 precision, CNV-2075 bad value.
        """

    def compile(self, plan: Plan, graph: OnnxGraph, folder: Path, runner: Runner) -> Compiled:
        """Run a plan in the working folder. Failures of the tool are told by ``Compiled.failure``, not raised."""

    def run(self, request: RunRequest, feeds: Feeds, runner: Runner) -> Ran | CannotRun:
        """Run an artifact on samples, streaming."""

    def diagnose(self, log: str, plan: Plan) -> Diagnosis:
        """What a log of this tool means. Pure."""
