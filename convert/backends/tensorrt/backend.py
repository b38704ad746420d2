"""The ``tensorrt`` backend: one class that puts the parts together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from convert.backends.base import CannotRun, Compiled, Diagnosis, Missing, Ran, Runner, RunRequest, Timing, Toolchain
from convert.backends.tensorrt.compile import compile_plan, prepare
from convert.backends.tensorrt.plan import ASSUMED, NAME, make_plan
from convert.backends.tensorrt.probe import probe
from convert.backends.tensorrt.running import run_engine
from convert.diagnosis import read_log
from convert.values import CompileOptions, Note, OnnxGraph, Plan
from op_registry.values import Target

if TYPE_CHECKING:
    from convert.backends.base import Array, Feeds


class TensorrtBackend:
    """``trtexec``."""

    name = NAME

    def probe(self, target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
        """trtexec, its release, and the card: an engine is built on the card that it will run on."""
        return probe(target, environment)

    def assumed(self) -> Toolchain:
        """The release that the operator data is of."""
        return Toolchain(name="TensorRT", version=ASSUMED, assumed=True)

    def plan(self, graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
        """See :func:`convert.backends.tensorrt.plan.make_plan`."""
        return make_plan(graph, target, options, toolchain)

    def prepare(self, plan: Plan, graph: OnnxGraph, folder: Path) -> tuple[Note, ...]:
        """Put into a folder what the plan needs beside the graph and its own files: a graph that is cast."""
        return prepare(plan, graph, folder)

    def compile(self, plan: Plan, graph: OnnxGraph, folder: Path, runner: Runner) -> Compiled:
        """Run trtexec: its exit code and its closing line must both say that it succeeded."""
        return compile_plan(plan, graph, folder, runner)

    def run(self, request: RunRequest, feeds: Feeds, runner: Runner) -> Ran | CannotRun:
        """Run the engine on the card; its TensorRT and its card are looked at first."""
        return run_engine(request, feeds, runner)

    def timing(
        self, request: RunRequest, feed: Mapping[str, Array], runner: Runner, *, warmup: int, runs: int
    ) -> Timing | None:
        """What trtexec itself says of many runs; it warms up by time, not by runs."""
        from convert.backends.tensorrt.timing import time_engine

        return time_engine(request, feed, runner, runs=runs)

    def diagnose(self, log: str, plan: Plan) -> Diagnosis:
        """By the table of TensorRT's messages."""
        return read_log("tensorrt", log)
