"""The ``rknn`` backend: Rockchip's RK3588 and RK3576, by ``convert toolchain install rknn``.

The toolkit's simulator runs a graph that it has just built, never an exported file. So what is judged here is the same
build, made again in memory: ``ran_on`` says ``host``, and the card has not spoken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from convert.backends.base import (
    LOG,
    MODEL_IN,
    OUT,
    CannotRun,
    Compiled,
    Diagnosis,
    Missing,
    Ran,
    Runner,
    RunRequest,
    Toolchain,
)
from convert.backends.children import (
    TIMES,
    calibration_places,
    child_finished,
    ended_badly,
    link_calibration,
    probe_installed,
    read_outputs,
    run_script,
    sample_pairs,
    script_text,
    settings_text,
    write_feeds,
)
from convert.backends.options import check_options, check_precision
from convert.errors import CompileFailed
from convert.toolchains.place import installed_toolchain
from convert.values import CompileOptions, Note, OnnxGraph, Plan
from op_registry.values import Target

if TYPE_CHECKING:
    from convert.backends.base import Feeds

VERIFIED = "2.5.0"
PRECISIONS = ("fp16", "int8")
ARTIFACT = "model.rknn"
BUILD, SETTINGS = "rknn_build.py", "rknn_build.json"
RUN_SETTINGS = "rknn_run.json"
SAID = "rknn_build: "
LEFT_OUT = f"{SAID}the optimizer's rule"
UNBUILT = re.compile(r"No lowering found for:[^\n]{0,300}")
"""The build says this of an operator that it can't map, and all its steps return 0 all the same."""


class RknnBackend:
    """RKNN-Toolkit2 as compiler and simulator."""

    name = "rknn"

    def probe(self, target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
        """The toolchain that was installed for it."""
        return probe_installed(
            "rknn", name="RKNN-Toolkit2", distribution="rknn-toolkit2", note="read its licence first"
        )

    def assumed(self) -> Toolchain:
        """The newest version that was verified."""
        return Toolchain(name="RKNN-Toolkit2", version=VERIFIED, assumed=True)

    def plan(self, graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
        """One run of a script in the toolchain's interpreter."""
        check_options(options, {})
        check_precision(options, target, PRECISIONS)
        int8 = options.precision == "int8"
        settings = {
            "model": MODEL_IN,
            "output": f"{OUT}/{ARTIFACT}",
            "platform": target.name.lower(),
            "int8": int8,
            "calibration": calibration_places(graph) if int8 else [],
            "inputs": [spec.name for spec in graph.inputs],
        }
        return Plan(
            backend=self.name,
            argv=("python3", BUILD, SETTINGS),
            files={BUILD: script_text(__package__, "child_build"), SETTINGS: settings_text(settings)},
            output=ARTIFACT,
            needs={"toolchain": "RKNN-Toolkit2", "version": toolchain.version, "soc": target.name},
        )

    def prepare(self, plan: Plan, graph: OnnxGraph, folder: Path) -> tuple[Note, ...]:
        """Put the data to calibrate with into a working folder."""
        if json.loads(plan.files[SETTINGS])["calibration"]:
            link_calibration(graph, folder)
        return ()

    def compile(self, plan: Plan, graph: OnnxGraph, folder: Path, runner: Runner) -> Compiled:
        """Run the script. An operator without a lowering fails the compile, though the toolkit returns 0."""
        notes = self.prepare(plan, graph, folder)
        finished, failure = child_finished("rknn", plan, folder, runner)
        log = (folder / LOG).read_text(encoding="utf-8", errors="replace") if (folder / LOG).is_file() else ""
        if not failure and (found := UNBUILT.search(log)):
            failure = found[0]
        left_out = tuple(Note(text=line.removeprefix(SAID)) for line in log.splitlines() if LEFT_OUT in line)
        return Compiled(files=(ARTIFACT,), failure=failure, finished=finished, notes=(*notes, *left_out))

    def run(self, request: RunRequest, feeds: Feeds, runner: Runner) -> Ran | CannotRun:
        """Build again and simulate. Raises :class:`CompileFailed` CNV-7005 where that fails."""
        found = installed_toolchain("rknn")
        if found is None:
            return CannotRun(reason="RKNN-Toolkit2 is not installed", hint="convert toolchain install rknn")
        artifact, folder = request.artifact, request.folder
        if not request.graph.folder:
            return CannotRun(
                reason="the simulator does not run an exported .rknn, and the graph that it was built from is not here",
                hint="run it on the card",
            )
        count = write_feeds(feeds, folder)
        settings = {
            **json.loads(artifact.plan.files[SETTINGS]),
            "model": str(request.graph.model_path.resolve()),
            "output": "",
            "samples": sample_pairs(count),
            "times": TIMES,
        }
        if settings["calibration"]:
            link_calibration(request.graph, folder)
        (folder / BUILD).write_text(script_text(__package__, "child_build"), encoding="utf-8")
        (folder / RUN_SETTINGS).write_text(settings_text(settings), encoding="utf-8")
        finished = run_script(runner, (str(found.python), BUILD, RUN_SETTINGS), found.python.parent, "run.log")
        if failure := ended_badly(finished, folder / "run.log"):
            raise CompileFailed(
                "CNV-7005",
                f"the graph for {artifact.target} does not run on the simulator: {failure}",
                hint="the samples must fit the inputs",
            )
        return Ran(
            outputs=read_outputs(folder, count),
            ran_on="host",
            device="RKNN's simulator, on the same build in memory: it does not run the exported file",
            output_names=tuple(spec.name for spec in request.graph.outputs),
        )

    def diagnose(self, log: str, plan: Plan) -> Diagnosis:
        """By the messages of the toolkit."""
        from convert.diagnosis import read_log

        return read_log("rknn", log, ())
