"""The ``openvino`` backend: OpenVINO IR for Intel processors, by ``convert toolchain install openvino``.

    child_compile.py   converts (and quantizes with NNCF) in the toolchain's own interpreter
    child_run.py       runs the written IR from disk

fp16 stores the weights in fp16; the CPU plug-in then computes in whatever its processor does best, mostly fp32.
"""

from __future__ import annotations

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
from convert.backends.options import check_options, check_precision, choice
from convert.errors import CompileFailed
from convert.toolchains.place import Installed, installed_toolchain
from convert.values import CompileOptions, Note, OnnxGraph, Plan
from op_registry.values import Target

if TYPE_CHECKING:
    from convert.backends.base import Feeds, Runner

VERIFIED = "2026.4.1"
PRECISIONS = ("fp32", "fp16", "int8")
PRESETS = ("mixed", "performance")
SWITCHES = ("yes", "no")
OPTIONS = {
    "preset": "mixed|performance (NNCF: asymmetric activations, or all symmetric)",
    "fast_bias_correction": "yes|no (NNCF: no is slower and mostly more accurate)",
}
ARTIFACT = "model.xml"
WEIGHTS = "model.bin"
COMPILE, COMPILE_SETTINGS = "openvino_compile.py", "openvino_compile.json"
RUN, RUN_SETTINGS = "openvino_run.py", "openvino_run.json"
DEVICE = "CPU"


class OpenvinoBackend:
    """OpenVINO's converter, NNCF, and its CPU plug-in."""

    name = "openvino"

    def probe(self, target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
        """The toolchain that was installed for it."""
        return probe_installed("openvino", name="OpenVINO", distribution="openvino")

    def assumed(self) -> Toolchain:
        """The newest version that was verified."""
        return Toolchain(name="OpenVINO", version=VERIFIED, assumed=True)

    def plan(self, graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
        """One run of a script in the toolchain's interpreter; its settings are a file of the plan."""
        check_options(options, OPTIONS)
        check_precision(options, target, PRECISIONS)
        int8 = options.precision == "int8"
        settings = {
            "model": MODEL_IN,
            "output": f"{OUT}/{ARTIFACT}",
            "device": DEVICE,
            "fp16": options.precision == "fp16",
            "int8": int8,
            "keep": sorted(options.keep),
            "calibration": calibration_places(graph) if int8 else [],
            "preset": choice(options, "preset", PRESETS),
            "fast_bias_correction": choice(options, "fast_bias_correction", SWITCHES) == "yes",
        }
        return Plan(
            backend=self.name,
            argv=("python3", COMPILE, COMPILE_SETTINGS),
            files={COMPILE: script_text(__package__, "child_compile"), COMPILE_SETTINGS: settings_text(settings)},
            output=ARTIFACT,
            needs={"toolchain": "OpenVINO", "version": toolchain.version, "python_packages": "openvino nncf"},
            notes=_notes(graph, options),
        )

    def prepare(self, plan: Plan, graph: OnnxGraph, folder: Path) -> tuple[Note, ...]:
        """Put the data to calibrate with into a working folder."""
        if '"calibration": []' not in plan.files[COMPILE_SETTINGS]:
            link_calibration(graph, folder)
        return ()

    def compile(self, plan: Plan, graph: OnnxGraph, folder: Path, runner: Runner) -> Compiled:
        """Run the script. It says ``done`` only after the written IR was read again and compiled for the device."""
        notes = self.prepare(plan, graph, folder)
        finished, failure = child_finished("openvino", plan, folder, runner)
        return Compiled(files=(ARTIFACT, WEIGHTS), failure=failure, finished=finished, notes=notes)

    def run(self, request: RunRequest, feeds: Feeds, runner: Runner) -> Ran | CannotRun:
        """Run the IR from disk on the CPU plug-in, in the toolchain's interpreter.

        Raises :class:`CompileFailed` CNV-7005 where it does not load, or fails while it runs.
        """
        found = installed_toolchain("openvino")
        if found is None:
            return CannotRun(reason="OpenVINO is not installed", hint="convert toolchain install openvino")
        artifact = request.artifact
        count = write_feeds(feeds, request.folder)
        settings = {
            "artifact": str(artifact.path(ARTIFACT).resolve()),
            "device": DEVICE,
            "hints": {} if artifact.precision == "fp16" else {"INFERENCE_PRECISION_HINT": "f32"},
            "inputs": [spec.name for spec in request.graph.inputs],
            "samples": sample_pairs(count),
            "times": TIMES,
        }
        (request.folder / RUN).write_text(script_text(__package__, "child_run"), encoding="utf-8")
        (request.folder / RUN_SETTINGS).write_text(settings_text(settings), encoding="utf-8")
        finished = run_script(runner, (str(found.python), RUN, RUN_SETTINGS), found.python.parent, "run.log")
        if failure := ended_badly(finished, request.folder / "run.log"):
            raise CompileFailed(
                "CNV-7005",
                f"the artifact for {artifact.target} does not run: {failure}",
                hint="the samples must fit the inputs; if they do, try another precision",
            )
        return Ran(
            outputs=read_outputs(request.folder, count),
            ran_on="device",
            device=_device(request.folder / "run.log", found),
            output_names=tuple(spec.name for spec in request.graph.outputs),
        )

    def diagnose(self, log: str, plan: Plan) -> Diagnosis:
        """By the messages of OpenVINO's converter."""
        from convert.diagnosis import read_log

        return read_log("openvino", log, ())


def _notes(graph: OnnxGraph, options: CompileOptions) -> tuple[Note, ...]:
    notes = []
    if options.precision == "fp16":
        text = "weights are stored in fp16; the CPU plug-in computes in the type that its processor does best"
        notes.append(Note(text=text))
    if options.precision == "int8" and not graph.calibration_count:
        text = f"calibrated on the {graph.sample_count} samples of the run: give real inputs with --calibration"
        notes.append(Note(level="warning", text=text))
    return tuple(notes)


def _device(log: Path, found: Installed) -> str:
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("openvino_run: device "):
            return line.removeprefix("openvino_run: device ")
    return f"OpenVINO {found.record.version}"
