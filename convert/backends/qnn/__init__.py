"""The ``qnn`` backend: Qualcomm's HTP through ONNX Runtime's QNN provider, by ``convert toolchain install qnn``.

    child_compile.py   makes the context: ``model.onnx`` with one node, and the binary beside it
    child_run.py       runs the context from disk on the simulator of the HTP

A context binary has no check of its own: a changed byte changes numbers, with exit code 0. Only its digest tells.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from convert.backends.base import (
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
    child_finished,
    ended_badly,
    probe_installed,
    read_outputs,
    run_script,
    sample_pairs,
    script_text,
    settings_text,
    write_feeds,
)
from convert.backends.options import check_options, check_precision, choice
from convert.errors import CompileFailed
from convert.toolchains.place import installed_toolchain
from convert.values import CompileOptions, OnnxGraph, Plan
from op_registry.values import Target

if TYPE_CHECKING:
    from convert.backends.base import Feeds

VERIFIED = "2.7.0"
PRECISIONS = ("fp16", "int8")
LEVELS = ("3", "1", "2", "0")
SOC_MODELS = {"v73": "43", "v75": "57", "v79": "69"}
"""The ``soc_model`` that goes with an HTP architecture where none is given: pairs that were compiled and run."""
OPTIONS = {
    "optimization": "3|1|2|0 (htp_graph_finalization_optimization_mode)",
    "soc_model": "NUMBER (Qualcomm's number of the SoC, where it is another than the usual one of the architecture)",
}
ARTIFACT = "model.onnx"
COMPILE, SETTINGS = "qnn_compile.py", "qnn_compile.json"
RUN, RUN_SETTINGS = "qnn_run.py", "qnn_run.json"


class QnnBackend:
    """ONNX Runtime's QNN provider as compiler and simulator."""

    name = "qnn"

    def probe(self, target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
        """The toolchain that was installed for it."""
        return probe_installed("qnn", name="QNN", distribution="onnxruntime-qnn", note="read its licence first")

    def assumed(self) -> Toolchain:
        """The newest version that was verified."""
        return Toolchain(name="QNN", version=VERIFIED, assumed=True)

    def plan(self, graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
        """One run of a script in the toolchain's interpreter. int8 is a graph that holds its QDQ pairs already."""
        check_options(options, OPTIONS)
        check_precision(options, target, PRECISIONS)
        arch = target.arch.removeprefix("htp-")
        settings = {
            "model": MODEL_IN,
            "output": f"{OUT}/{ARTIFACT}",
            "fp16": options.precision == "fp16",
            "optimization": choice(options, "optimization", LEVELS),
            "soc_model": options.options.get("soc_model", SOC_MODELS[arch]),
            "htp_arch": arch.removeprefix("v"),
        }
        return Plan(
            backend=self.name,
            argv=("python3", COMPILE, SETTINGS),
            files={COMPILE: script_text(__package__, "child_compile"), SETTINGS: settings_text(settings)},
            output=ARTIFACT,
            needs={
                "toolchain": "QNN",
                "version": toolchain.version,
                "arch": arch,
                "python_packages": "onnxruntime_qnn",
            },
        )

    def compile(self, plan: Plan, graph: OnnxGraph, folder: Path, runner: Runner) -> Compiled:
        """Run the script; the binary beside the artifact belongs to it."""
        finished, failure = child_finished("qnn", plan, folder, runner)
        names = sorted(path.name for path in (folder / OUT).iterdir() if path.name != ARTIFACT)
        return Compiled(files=(ARTIFACT, *names), failure=failure, finished=finished)

    def run(self, request: RunRequest, feeds: Feeds, runner: Runner) -> Ran | CannotRun:
        """Run the context from disk on the simulator. Raises :class:`CompileFailed` CNV-7005 where it does not run."""
        found = installed_toolchain("qnn")
        if found is None:
            return CannotRun(reason="QNN's toolchain is not installed", hint="convert toolchain install qnn")
        artifact = request.artifact
        count = write_feeds(feeds, request.folder)
        settings = {
            **json.loads(artifact.plan.files[SETTINGS]),
            "artifact": str(artifact.path(ARTIFACT).resolve()),
            "samples": sample_pairs(count),
            "times": TIMES,
        }
        (request.folder / COMPILE).write_text(script_text(__package__, "child_compile"), encoding="utf-8")
        (request.folder / RUN).write_text(script_text(__package__, "child_run"), encoding="utf-8")
        (request.folder / RUN_SETTINGS).write_text(settings_text(settings), encoding="utf-8")
        finished = run_script(runner, (str(found.python), RUN, RUN_SETTINGS), found.python.parent, "run.log")
        if failure := ended_badly(finished, request.folder / "run.log"):
            raise CompileFailed(
                "CNV-7005",
                f"the artifact for {artifact.target} does not run on the simulator: {failure}",
                hint="the samples must fit the inputs; a context is tied to the version that made it",
            )
        return Ran(
            outputs=read_outputs(request.folder, count),
            ran_on="simulator",
            device=f"Qualcomm's simulator of the HTP {artifact.plan.needs.get('arch', '')}",
            output_names=tuple(spec.name for spec in request.graph.outputs),
        )

    def diagnose(self, log: str, plan: Plan) -> Diagnosis:
        """By the messages of ONNX Runtime and its QNN provider."""
        from convert.diagnosis import read_log

        return read_log("qnn", log, ())
