"""The ``ixrt`` backend: one class that puts the parts together."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.runner import Finished
from convert.backends.base import CannotRun, Compiled, Diagnosis, Missing, Ran, Runner, RunRequest, Timing, Toolchain
from convert.backends.casting import cast
from convert.backends.children import (
    TIMES,
    ended_badly,
    read_outputs,
    sample_pairs,
    script_text,
    settings_text,
    write_feeds,
)
from convert.backends.ixrt.child_run import NO_MODULE
from convert.backends.ixrt.plan import ASSUMED, NAME, PROGRAM, make_plan
from convert.backends.ixrt.probe import PYTHON, probe
from convert.backends.pairs import require_pairs
from convert.backends.spans import open_inputs
from convert.diagnosis import read_log
from convert.errors import CompileFailed
from convert.values import CompileOptions, Note, OnnxGraph, Plan
from op_registry.targets import find_target
from op_registry.values import Target

if TYPE_CHECKING:
    from convert.backends.base import Array, Feeds

SCRIPT = "ixrt_run.py"
RUN_SETTINGS = "ixrt_run.json"
LOG = "run.log"
TIMING_LOG = "timing.log"
RATE = re.compile(r"^Throughput: ([\d.]+(?:e[+-]?\d+)?) qps", re.MULTILINE)


class IxrtBackend:
    """``ixrtexec`` and the package ``ixrt``."""

    name = NAME

    def probe(self, target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
        """ixrtexec, its edition and the card: an engine is built, and tried, on the card that it will run on."""
        return probe(target, environment)

    def assumed(self) -> Toolchain:
        """The newest public version, with the newest flags."""
        return Toolchain(name="IxRT", version=ASSUMED, assumed=True)

    def plan(self, graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
        """See :func:`convert.backends.ixrt.plan.make_plan`."""
        return make_plan(graph, target, options, toolchain)

    def prepare(self, plan: Plan, graph: OnnxGraph, folder: Path) -> tuple[Note, ...]:
        """Put into a folder what the plan needs beside the graph and its own files: a graph that is cast."""
        if "int8" in plan.argv and "--quant_file" not in plan.argv:
            require_pairs(graph)
        return cast(plan, graph, folder)

    def compile(self, plan: Plan, graph: OnnxGraph, folder: Path, runner: Runner) -> Compiled:
        """Run ixrtexec. It has no closing line: its exit code speaks, and the stage looks for the engine."""
        notes = self.prepare(plan, graph, folder)
        finished = runner(plan.argv, environment=plan.environment)
        return Compiled(files=(plan.output,), failure=failure_of(finished), finished=finished, notes=notes)

    def run(self, request: RunRequest, feeds: Feeds, runner: Runner) -> Ran | CannotRun:
        """Run the engine on the card, in the SDK's interpreter. Raises CompileFailed CNV-7005 where it does not run."""
        artifact = request.artifact
        toolchain = probe(find_target(artifact.target), os.environ)
        if isinstance(toolchain, Missing):
            return CannotRun(reason=toolchain.reason, hint=toolchain.hint)
        built = artifact.plan.needs.get("version", toolchain.version)
        if built != toolchain.version:
            return CannotRun(
                reason=f"the engine is of IxRT {built}, and {toolchain.version} is here", hint="convert again here"
            )
        count = write_feeds(feeds, request.folder)
        place = str(artifact.path(artifact.files[0].name).resolve())
        settings = {"artifact": place, "samples": sample_pairs(count), "times": TIMES}
        (request.folder / SCRIPT).write_text(script_text("convert.backends.ixrt", "child_run"), encoding="utf-8")
        (request.folder / RUN_SETTINGS).write_text(settings_text(settings), encoding="utf-8")
        python = toolchain.details["python"]
        finished = runner((python, SCRIPT, RUN_SETTINGS), log=LOG)
        if finished.returncode == NO_MODULE:
            return CannotRun(
                reason=f"{python} lacks ixrt, cuda-python or numpy",
                hint=f"install the SDK's wheels there, or name the Python that has them in {PYTHON}",
            )
        if failure := ended_badly(finished, request.folder / LOG):
            raise CompileFailed(
                "CNV-7005",
                f"the artifact for {artifact.target} does not run: {failure}",
                hint="the samples must fit the sizes that it was built for",
            )
        outputs = read_outputs(request.folder, count)
        return Ran(outputs=outputs, ran_on="device", device=toolchain.details.get("card", artifact.target))

    def timing(
        self, request: RunRequest, feed: Mapping[str, Array], runner: Runner, *, warmup: int, runs: int
    ) -> Timing | None:
        """What ixrtexec says of many runs without their copies; it tells a rate alone."""
        artifact = request.artifact
        toolchain = probe(find_target(artifact.target), os.environ)
        if isinstance(toolchain, Missing):
            return None
        shapes = [f"{one.name}:{'x'.join(map(str, feed[one.name].shape))}" for one in open_inputs(request.graph)]
        engine = str(artifact.path(artifact.files[0].name).resolve())
        argv = (
            toolchain.details.get("program", PROGRAM),
            *("--load_engine", engine, "--iterations", str(runs), "--warmUp", str(warmup)),
            *(("--shapes", ",".join(shapes)) if shapes else ()),
        )
        finished = runner(argv, log=TIMING_LOG)
        text = (request.folder / TIMING_LOG).read_text(encoding="utf-8", errors="replace")
        return None if finished.returncode or finished.timed_out else read_rate(text, runs, warmup)

    def diagnose(self, log: str, plan: Plan) -> Diagnosis:
        """By the tables of ixrtexec's messages and of TensorRT's, whose parser IxRT's follows."""
        return read_log("ixrt", log)


def read_rate(text: str, runs: int, warmup: int) -> Timing | None:
    """The numbers of ixrtexec's log, ``Throughput: 97.5 qps`` (ixrt/cli/ixrtexec.py); None where it has none."""
    if not (found := RATE.search(text)) or not float(found[1]):
        return None
    rate = float(found[1])
    return Timing(tool=PROGRAM, runs=runs, warmup=warmup, mean=1e3 / rate, per_second=rate)


def failure_of(finished: Finished) -> str:
    """How ixrtexec failed, in words; empty where it ended well."""
    if finished.returncode < 0 or finished.returncode > 128:
        signal = -finished.returncode if finished.returncode < 0 else finished.returncode - 128
        return f"ixrtexec was ended by signal {signal}"
    return f"ixrtexec failed with exit code {finished.returncode}" if finished.returncode else ""
