"""The ``openvino`` backend: OpenVINO IR for Intel processors, by ``convert toolchain install openvino``.

    child_compile.py   converts (and quantizes with NNCF) in the toolchain's own interpreter
    child_run.py       runs the written IR from disk

fp16 stores the weights in fp16 and is run in fp16 where the processor has it, else in fp32: left to itself, the plug-in
computes in bf16 on processors with AMX, whose numbers are ten times worse (measured: silero-vad, relative L2 of 0.0117
instead of 0.0012).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.runner import Finished
from convert.backends.base import (
    MODEL_IN,
    OUT,
    CannotRun,
    Compiled,
    Diagnosis,
    Inside,
    Missing,
    Ran,
    RunRequest,
    Toolchain,
)
from convert.backends.children import (
    OUTPUTS,
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
from convert.values import CompiledArtifact, CompileOptions, Note, OnnxGraph, Plan
from op_registry.values import Target

if TYPE_CHECKING:
    from convert.backends.base import Array, Feeds, Runner

VERIFIED = "2026.4.1"
PRECISIONS = ("fp32", "fp16", "int8")
PRESETS = ("mixed", "performance")
RANGES = ("minmax", "mean", "histogram")
BIASES = ("no", "fast", "slow")
SCOPES = ("products", "all")
TYPES = ("f16", "f32")
OPTIONS = {
    "compute": "f16|f32 (fp16: the type that it is run in; weights are stored in fp16 either way)",
    "preset": "mixed|performance (NNCF: asymmetric activations, or all symmetric)",
    "scope": "products|all (what becomes int8: convolutions and products of matrices, or whatever NNCF finds)",
    "ranges": "minmax|mean|histogram (NNCF: of the samples' ranges the widest, their mean, or by a histogram)",
    "bias_correction": "no|fast|slow (NNCF: it needs hundreds of samples; with few of them it makes the numbers worse)",
}
"""The first choice is taken. With 16 samples NNCF's own choices (mean, fast) left facenet's P-Net at a cosine of 0.905,
these leave it at 0.998. ``products`` are what the forecast emulates; NNCF alone rounds squares and LSTMs to int8, and
silero-vad fell to 0.92 (NNCF 3.4.0, run in int8 on the CPU plug-in)."""
HINT = "INFERENCE_PRECISION_HINT"
ARTIFACT = "model.xml"
WEIGHTS = "model.bin"
COMPILE, COMPILE_SETTINGS = "openvino_compile.py", "openvino_compile.json"
VALUES = "values.json"
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
            "compute": choice(options, "compute", TYPES) if options.precision == "fp16" else "f32",
            "int8": int8,
            "keep": sorted(options.keep),
            "calibration": calibration_places(graph) if int8 else [],
            "preset": choice(options, "preset", PRESETS),
            "scope": choice(options, "scope", SCOPES),
            "ranges": choice(options, "ranges", RANGES),
            "bias_correction": choice(options, "bias_correction", BIASES),
        }
        return Plan(
            backend=self.name,
            argv=("python3", COMPILE, COMPILE_SETTINGS),
            files={COMPILE: script_text(__package__, "child_compile"), COMPILE_SETTINGS: settings_text(settings)},
            output=ARTIFACT,
            needs={
                "toolchain": "OpenVINO",
                "version": toolchain.version,
                "python_packages": "openvino nncf",
            },
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
        finished = _run_child(request.folder, _run_settings(request, count), found, runner)
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

    def inside(self, request: RunRequest, feed: Mapping[str, Array], runner: Runner) -> Inside | CannotRun:
        """What the IR computes on its way, for one sample: run again with every value that has a name as an output."""
        from convert.arrays import load_npz

        found = installed_toolchain("openvino")
        if found is None:
            return CannotRun(reason="OpenVINO is not installed")
        write_feeds([feed], request.folder)
        settings = {**_run_settings(request, 1), "values": VALUES}
        finished = _run_child(request.folder, settings, found, runner)
        if failure := ended_badly(finished, request.folder / "run.log"):
            return CannotRun(reason=f"the CPU plug-in {failure}")
        arrays = load_npz(request.folder / f"{OUTPUTS}/000.npz")
        names = json.loads((request.folder / VALUES).read_text(encoding="utf-8"))
        values = {name: arrays[str(number)] for number, several in enumerate(names) for name in several}
        return Inside(values=values, how="OpenVINO's CPU plug-in, with every value as an output")

    def diagnose(self, log: str, plan: Plan) -> Diagnosis:
        """By the messages of OpenVINO's converter."""
        from convert.diagnosis import read_log

        return read_log("openvino", log, ())


def _run_settings(request: RunRequest, count: int) -> dict[str, Any]:
    """What the script that runs an IR is told; it reads ``count`` samples."""
    return {
        "artifact": str(request.artifact.path(ARTIFACT).resolve()),
        "device": DEVICE,
        "compute": _compute(request.artifact),
        "inputs": [spec.name for spec in request.graph.inputs],
        "samples": sample_pairs(count),
        "times": TIMES,
    }


def _compute(artifact: CompiledArtifact) -> str:
    """The type that an artifact is meant to be run in."""
    settings = json.loads(artifact.plan.files.get(COMPILE_SETTINGS, "{}"))
    return str(settings.get("compute", "f16" if artifact.precision == "fp16" else "f32"))


def _run_child(folder: Path, settings: dict[str, Any], found: Installed, runner: Runner) -> Finished:
    (folder / RUN).write_text(script_text(__package__, "child_run"), encoding="utf-8")
    (folder / RUN_SETTINGS).write_text(settings_text(settings), encoding="utf-8")
    return run_script(runner, (str(found.python), RUN, RUN_SETTINGS), found.python.parent, "run.log")


def _notes(graph: OnnxGraph, options: CompileOptions) -> tuple[Note, ...]:
    notes = []
    if options.precision == "fp16":
        wanted = {"f16": "f16 (f32 where the processor has no fp16)"}.get(choice(options, "compute", TYPES), "f32")
        text = (
            f"load it with {HINT}={wanted}, as the gate does: left to itself, the plug-in computes in bf16 where it can"
        )
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
