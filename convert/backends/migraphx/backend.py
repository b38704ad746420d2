"""The ``migraphx`` backend: one class that puts the parts together."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from convert.backends.base import (
    LOG,
    OUT,
    CannotRun,
    Compiled,
    Diagnosis,
    Missing,
    Ran,
    Runner,
    RunRequest,
    Timing,
    Toolchain,
)
from convert.backends.migraphx.outcome import failure_of, zero_dimension
from convert.backends.migraphx.planning import DRIVER, NAME, make_plan
from convert.backends.migraphx.preparing import calibration_names, prepare
from convert.backends.migraphx.probing import probe
from convert.backends.migraphx.running import device_files, run_artifact
from convert.backends.migraphx.versions import ASSUMED, dialect_of
from convert.values import CompileOptions, Note, OnnxGraph, Plan
from op_registry.values import Target

if TYPE_CHECKING:
    from convert.backends.base import Array, Feeds

CHECK = "check"


class MigraphxBackend:
    """``migraphx-driver`` and the migraphx module, of ROCm and of Hygon's DTK."""

    name = NAME

    def probe(self, target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
        """The driver, and for a card the card too: without it nothing can be compiled."""
        return probe(target, environment)

    def assumed(self) -> Toolchain:
        """The newest released version whose source was read."""
        return Toolchain(name="MIGraphX", version=ASSUMED, assumed=True)

    def plan(self, graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
        """See :func:`convert.backends.migraphx.planning.make_plan`."""
        return make_plan(graph, target, options, toolchain)

    def prepare(self, plan: Plan, graph: OnnxGraph, folder: Path) -> tuple[Note, ...]:
        """Put into a folder what the plan needs beside the graph and its own files: a cast graph, calibration data."""
        return prepare(plan, graph, folder)

    def device_files(self, plan: Plan, graph: OnnxGraph) -> dict[str, str]:
        """The script that measures the artifact on its card, for a handoff bundle."""
        return device_files(plan, graph)

    def compile(self, plan: Plan, graph: OnnxGraph, folder: Path, runner: Runner) -> Compiled:
        """Run the plan, then ask the driver for the dimensions of what it made, where they are a range."""
        notes = self.prepare(plan, graph, folder)
        finished = runner(plan.argv, environment=plan.environment)
        for name in calibration_names(plan, graph):
            (folder / name).unlink(missing_ok=True)
        dialect = dialect_of(plan.needs["version"], fork=plan.needs["toolchain"] == "DTK")
        failure = failure_of(plan, finished, _read(folder / LOG), dialect)
        if not failure and not finished.timed_out:
            failure = _check_dims(plan, graph, folder, runner)
        return Compiled(files=(plan.output,), failure=failure, finished=finished, notes=notes)

    def run(self, request: RunRequest, feeds: Feeds, runner: Runner) -> Ran | CannotRun:
        """Run through the module in a child process; the artifact's version and arch are checked first."""
        return run_artifact(request, feeds, runner)

    def timing(
        self, request: RunRequest, feed: Mapping[str, Array], runner: Runner, *, warmup: int, runs: int
    ) -> Timing | None:
        """What ``migraphx-driver perf`` says of many runs, on inputs of its own."""
        from convert.backends.migraphx.timing import time_artifact

        return time_artifact(request, runner, runs=runs)

    def diagnose(self, log: str, plan: Plan) -> Diagnosis:
        """By the table of MIGraphX's messages. It names operators, never nodes of the graph."""
        from convert.diagnosis import read_log

        return read_log("migraphx", log, ())


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""


def _check_dims(plan: Plan, graph: OnnxGraph, folder: Path, runner: Runner) -> str:
    """A form of a range that the driver does not read gives dimension 0, without a word: ask for what came out."""
    ranged = {"--dim-param", "--dyn-input-dim", "--default-dyn-dim"} & set(plan.argv)
    if not ranged or not plan.argv[0].endswith(DRIVER) or not (folder / OUT / plan.output).is_file():
        return ""
    (folder / CHECK).mkdir(exist_ok=True)
    runner((plan.argv[0], "params", f"{OUT}/{plan.output}"), environment=plan.environment, log=f"{CHECK}/params.log")
    told = _read(folder / CHECK / "params.log")
    shutil.rmtree(folder / CHECK)
    name = zero_dimension(told, tuple(spec.name for spec in graph.inputs))
    return f"the driver gave the input {name} a dimension of 0: it reads ranges in another form" if name else ""
