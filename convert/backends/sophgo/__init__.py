"""The ``sophgo`` backend: tpu-mlir for Sophgo's BM1684X and BM1688, by ``convert toolchain install sophgo``.

The plan is a small bash script of tpu-mlir's own commands, the same here and in a bundle for another machine:

    lower the IR version ─▶ model_transform ─▶ (int8: run_calibration) ─▶ model_deploy ─▶ out/model.bmodel

    script.py       that script, and the settings of the steps between
    child_steps.py  the steps between, in tpu-mlir's environment
    inside.py       the values inside of a compiled graph, for a gate that failed

The artifact runs on tpu-mlir's simulator of the chip. A file that was damaged runs too, with NaN and exit code 0: only
the numbers tell, and the digest.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from convert.backends.base import (
    LOG,
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
    INPUTS,
    OUTPUTS,
    ended_badly,
    link_calibration,
    probe_installed,
    run_script,
    write_feeds,
)
from convert.backends.kept import told_in
from convert.backends.options import check_options, check_precision, choice
from convert.backends.sophgo.inside import inside
from convert.backends.sophgo.script import ARTIFACT, BUILD, QUANTIZE, TABLE, WIDE, Choices, build_files
from convert.errors import CompileFailed, UsageError
from convert.toolchains.place import installed_toolchain
from convert.values import CompileOptions, Note, OnnxGraph, Plan, TensorSpec
from op_registry.targets import find_target
from op_registry.values import Target

if TYPE_CHECKING:
    from convert.backends.base import Array, Feeds, Runner

VERIFIED = "1.30.2"
OPTIONS = {
    "scope": "products|all (int8: convolutions, products of matrices and what stands between them, or all that can be)",
    "calibrate": "max|kl|percentile9999|mse (int8: how run_calibration finds the ranges; kl takes minutes)",
    "wider": "F32|F16 (mixed, int8: the type of what is left out; F16 is faster, and sums of squares overflow in it)",
    "simulate": "yes|no (run the artifact on the chip's simulator for the gate; no leaves that to another machine)",
    "opt": "2|1|3 (model_deploy's level of optimization)",
}
"""The first choice is taken. ``max`` is what the forecast calibrates with. Of few samples ``kl`` cuts off too much, it
tunes for minutes, and with an output of one element it ended with the process ("data size 128 exceeds model tensor
size 1", tpu-mlir 1.30.2)."""
SCOPES = ("products", "all")
METHODS = ("max", "kl", "percentile9999", "mse")
WIDE_TYPES = ("F32", "F16")
SWITCHES = ("yes", "no")
LEVELS = ("2", "1", "3")
RUN = "run.sh"
SLOW = 3 * 64 * 64
"""Elements of an input from which on the simulator takes minutes rather than seconds for a sample: a ResNet-18 at
3x224x224 was measured at 368 s, a small network at 3x64x64 at under 10 s (tpu-mlir 1.30.2, two cores)."""
DTYPES = {"int64": "int32", "bool": "float32", "float64": "float32", "float16": "float32"}
"""What tpu-mlir makes of the inputs' dtypes."""


class SophgoBackend:
    """tpu-mlir's compiler and its simulator."""

    name = "sophgo"

    def probe(self, target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
        """The toolchain that was installed for it."""
        return probe_installed("sophgo", name="tpu-mlir", distribution="tpu-mlir", note="it needs Python 3.10")

    def assumed(self) -> Toolchain:
        """The newest version that was verified."""
        return Toolchain(name="tpu-mlir", version=VERIFIED, assumed=True)

    def plan(self, graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
        """A bash script of tpu-mlir's commands. Raises UsageError CNV-2384 for dimensions that are not fixed."""
        check_options(options, OPTIONS)
        check_precision(options, target, tuple(QUANTIZE))
        shapes = _fixed_shapes(graph)
        simulate = choice(options, "simulate", SWITCHES)
        choices = Choices(
            opt=choice(options, "opt", LEVELS),
            scope=choice(options, "scope", SCOPES),
            calibrate=choice(options, "calibrate", METHODS),
            wider=choice(options, "wider", WIDE_TYPES),
        )
        return Plan(
            backend=self.name,
            argv=("bash", BUILD),
            files=build_files(graph, target, options, shapes, choices),
            output=ARTIFACT,
            needs={"toolchain": "tpu-mlir", "version": toolchain.version, "soc": target.name, "simulate": simulate},
            notes=_notes(graph, options, shapes, simulate),
        )

    def prepare(self, plan: Plan, graph: OnnxGraph, folder: Path) -> tuple[Note, ...]:
        """Put the data to calibrate with into a working folder."""
        if "run_calibration" in plan.files[BUILD]:
            link_calibration(graph, folder)
        return ()

    def compile(self, plan: Plan, graph: OnnxGraph, folder: Path, runner: Runner) -> Compiled:
        """Run the script with the toolchain's commands first on PATH."""
        notes = self.prepare(plan, graph, folder)
        found = installed_toolchain("sophgo")
        bin_folder = found.python.parent if found else Path("/usr/bin")
        finished = run_script(runner, plan.argv, bin_folder, LOG)
        failure = ended_badly(finished, folder / LOG)
        made = tuple(name for name in (TABLE, WIDE) if (folder / OUT / name).is_file())
        told = () if failure else told_in(folder / LOG, "tpu-mlir's lowered graph")
        return Compiled(files=(ARTIFACT, *made), failure=failure, finished=finished, notes=(*notes, *told))

    def run(self, request: RunRequest, feeds: Feeds, runner: Runner) -> Ran | CannotRun:
        """Run the artifact on the chip's simulator, sample by sample.

        Raises :class:`CompileFailed` CNV-7005 where it does not load, or fails while it runs.
        """
        found = installed_toolchain("sophgo")
        if found is None:
            return CannotRun(reason="tpu-mlir is not installed", hint="convert toolchain install sophgo")
        artifact = request.artifact
        if request.replaceable and artifact.plan.needs.get("simulate") == "no":
            return CannotRun(reason="the simulator was left out (--option simulate=no)")
        count = write_feeds(_cast(feeds), request.folder)
        (request.folder / RUN).write_text(_run_script(artifact.path(ARTIFACT), count), encoding="utf-8")
        finished = run_script(runner, ("bash", RUN), found.python.parent, "run.log")
        if failure := ended_badly(finished, request.folder / "run.log"):
            raise CompileFailed(
                "CNV-7005",
                f"the artifact for {artifact.target} does not run on the simulator: {failure}",
                hint="a damaged file says `is broken`; else the samples must have the shapes that it was compiled for",
            )
        return Ran(
            outputs=_outputs(request, count),
            ran_on="simulator",
            device=f"tpu-mlir's simulator of {find_target(artifact.target).name}",
        )

    def inside(self, request: RunRequest, feed: Mapping[str, Array], runner: Runner) -> Inside | CannotRun:
        """What the artifact computes on its way, for one sample."""
        found = installed_toolchain("sophgo")
        if found is None:
            return CannotRun(reason="tpu-mlir is not installed")
        (cast,) = _cast([feed])
        return inside(request, cast, found, runner)

    def diagnose(self, log: str, plan: Plan) -> Diagnosis:
        """By the messages of tpu-mlir's front end."""
        from convert.diagnosis import read_log

        return read_log("sophgo", log, ())


def _fixed_shapes(graph: OnnxGraph) -> list[list[int]]:
    """Every input's shape, [1] for a scalar. A symbolic dimension with one size has that size; others are refused."""
    sizes = {dim.name: dim.sizes[0] for dim in graph.dims if len(dim.sizes) == 1}
    sizes |= {dim.name: dim.low for dim in graph.dims if not dim.sizes and dim.low == dim.high}
    open_dims = sorted({str(dim) for spec in graph.inputs for dim in spec.shape if isinstance(dim, str)} - set(sizes))
    if open_dims:
        raise UsageError(
            "CNV-2384",
            f"Sophgo's compiler takes fixed shapes, and {', '.join(open_dims)} may be of any size",
            hint="say one size for each: " + " ".join(f"--dim {name}=1" for name in open_dims),
        )
    # The front end makes a tensor of one element of a scalar, and asks for that shape.
    return [[sizes[dim] if isinstance(dim, str) else dim for dim in spec.shape] or [1] for spec in graph.inputs]


def _run_script(artifact: Path, count: int) -> str:
    lines = ["#!/usr/bin/env bash", "set -euo pipefail"]
    for number in range(count):
        sample = f"{number:03d}.npz"
        lines.append(
            f"model_runner.py --input {INPUTS}/{sample} --model {shlex.quote(str(artifact.resolve()))}"
            f" --output {OUTPUTS}/{sample}"
        )
    return "\n".join(lines) + "\n"


def _cast(feeds: Feeds) -> Iterator[dict[str, Array]]:
    import numpy

    for arrays in feeds:
        yield {
            name: numpy.atleast_1d(array.astype(DTYPES.get(array.dtype.name, array.dtype.name)))
            for name, array in arrays.items()
        }


def _outputs(request: RunRequest, count: int) -> Iterator[list[Array]]:
    from convert.arrays import load_npz

    for number in range(count):
        arrays = load_npz(request.folder / OUTPUTS / f"{number:03d}.npz")
        yield in_order(arrays, request.graph.outputs)


def in_order(arrays: Mapping[str, Array], specs: tuple[TensorSpec, ...]) -> list[Array]:
    """The arrays in the order of the graph's outputs, in its dtypes.

    tpu-mlir calls an output ``NAME_OPERATOR_DTYPE``; where names don't tell, the order counts. What the graph calls
    int64 or bool comes as int32 or float32.
    """
    left = dict(arrays)
    chosen: list[Array | None] = []
    # Longer names first: `out` must not take what belongs to `out_2`.
    for spec in sorted(specs, key=lambda one: -len(one.name)):
        match = next((name for name in left if name == spec.name or name.startswith(f"{spec.name}_")), None)
        chosen.append(left.pop(match) if match is not None else None)
    by_name = dict(zip(sorted((spec.name for spec in specs), key=lambda name: -len(name)), chosen, strict=True))
    rest = iter(left.values())
    found = [by_name[spec.name] if by_name[spec.name] is not None else next(rest, None) for spec in specs]
    return [_as_told(array, spec) for spec, array in zip(specs, found, strict=True) if array is not None]


def _as_told(array: Array, spec: TensorSpec) -> Array:
    """An output in the graph's dtype, and as a scalar where it is one."""
    shaped = array.reshape(()) if spec.shape == () and array.size == 1 else array
    return shaped.astype(spec.dtype) if spec.dtype in ("int64", "bool") else shaped


def _notes(graph: OnnxGraph, options: CompileOptions, shapes: list[list[int]], simulate: str) -> tuple[Note, ...]:
    notes = []
    if options.precision == "int8" and not graph.calibration_count:
        text = f"calibrated on the {graph.sample_count} samples of the run: give real inputs with --calibration"
        notes.append(Note(level="warning", text=text))
    largest = max((math.prod(shape) for shape in shapes), default=0)
    if largest > SLOW and simulate == "yes":
        text = (
            "the chip's simulator may take minutes for a sample of this size (a ResNet-18 at 3x224x224: 6 minutes);"
            " --option simulate=no leaves that to another machine (`convert bench REF` there)"
        )
        notes.append(Note(level="warning", text=text))
    return tuple(notes)
