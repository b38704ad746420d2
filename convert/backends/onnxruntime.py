"""The ``onnxruntime`` backend: a portable ``.onnx`` of standard operators, for the CPU and for execution providers.

The graph goes through ONNX Runtime's offline optimizer at its BASIC level (which stays within the standard operators),
then through the caster of ``convert.precision``. Inputs and outputs keep their dtypes, the opset stays what it was, and
the same graph gives the same bytes. It needs no process of its own: the stage already runs in a worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from convert.backends.base import (
    LOG,
    MODEL_IN,
    CannotRun,
    Compiled,
    Diagnosis,
    Missing,
    Ran,
    Runner,
    RunRequest,
    Toolchain,
)
from convert.backends.options import check_options, check_precision, choice
from convert.backends.pairs import check_ranges, require_pairs
from convert.backends.recipe import Recipe
from convert.errors import CompileFailed, ResourceLimit, UsageError
from convert.installed import installed
from convert.values import CompileOptions, Note, OnnxGraph, Plan, Precision
from op_registry.targets import find_target
from op_registry.values import Target

if TYPE_CHECKING:
    from convert.backends.base import Array, Feeds
    from convert.ort import SessionSettings

PRECISIONS = ("fp32", "fp16", "bf16", "int8", "mixed")
AS_IT_STANDS = ("int8", "mixed")
"""Precisions whose plan names nodes, which the optimizer would fuse: it is left out unless it is asked for."""
LEVELS = ("basic", "off")
OPTIONS = {
    "level": "basic|off (the offline optimizer)",
    "keep_fp32": "NODE,NODE… (these nodes stay in float32)",
}
VERIFIED = "1.32.0"
PROVIDERS = {"maca": "MACAExecutionProvider"}
"""Architectures that run ONNX through an execution provider of their own; ``host`` stands in where it is missing."""
IR_VERSIONS = {"maca": 8}
"""The highest IR version of a provider's ONNX Runtime: MetaX's MacaRT is 1.12 (opset 17, IR 8; ONNX's own table)."""
FAMILY = "driver, MXMACA SDK and MacaRT must be of one release family, and MacaRT runs what MACA lacks on the CPU"


def _outputs(model: Path, feeds: Feeds, settings: SessionSettings, target: str) -> Iterator[list[Array]]:
    from convert.ort import SessionFailed, stream_samples

    try:
        yield from stream_samples(model, feeds, settings)
    except SessionFailed as failure:
        if failure.kind == "memory":
            raise ResourceLimit(
                "CNV-1002",
                f"running the artifact for {target} takes more memory than it may have: {failure}",
                hint="raise the setting `memory` (CONVERT_MEMORY), give smaller samples, or use a larger machine",
            ) from failure
        raise CompileFailed(
            "CNV-7005",
            f"the artifact for {target} does not run: {failure}",
            hint="the samples must fit the inputs; if they do, try another precision, or --option level=off",
        ) from failure


def _stored_as(precision: Precision) -> Precision:
    """What the caster is asked for: mixed is fp16 with exceptions, int8 stands in the graph itself."""
    others: dict[Precision, Precision] = {"mixed": "fp16", "int8": "fp32"}
    return others.get(precision, precision)


class OnnxRuntimeBackend:
    """ONNX Runtime as compiler and runtime."""

    name = "onnxruntime"

    def probe(self, target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
        """The installed ONNX Runtime; execution providers matter to ``run`` only."""
        found = installed()
        for distribution in ("onnxruntime", "onnxruntime_gpu", "onnxruntime_maca"):
            if distribution in found:
                return Toolchain(name="onnxruntime", version=found[distribution])
        return Missing(
            name="onnxruntime",
            reason="the Python package onnxruntime is not installed",
            hint="pip install 'model-convert[convert]'",
        )

    def assumed(self) -> Toolchain:
        """The newest version that was verified."""
        return Toolchain(name="onnxruntime", version=VERIFIED, assumed=True)

    def plan(self, graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
        """One call of this module in the worker; the argument list says its settings.

        For a card with a provider of its own the graph must be one that the provider's ONNX Runtime reads; int8 there
        means QuantizeLinear and DequantizeLinear. Raises UsageError CNV-2268 and CNV-2272 beside the usual.
        """
        check_options(options, OPTIONS)
        provider = PROVIDERS.get(target.arch, "")
        check_precision(options, target, PRECISIONS)
        kept = {name for name in options.options.get("keep_fp32", "").split(",") if name}
        level = choice(options, "level", LEVELS)
        if options.precision in AS_IT_STANDS and "level" not in options.options:
            level = "off"
        recipe = Recipe(
            precision=_stored_as(options.precision),
            level=level,
            keep_fp32=tuple(sorted(kept | set(options.keep if options.precision == "mixed" else ()))),
            ir_version=IR_VERSIONS.get(target.arch, 0),
        )
        if not provider:
            needs = {"precision": "int8"} if options.precision == "int8" else {}
            return Plan(backend=self.name, argv=recipe.as_argv(), output=Path(MODEL_IN).name, needs=needs)
        if target.opset_max and graph.opset > target.opset_max:
            raise UsageError(
                "CNV-2272",
                f"the ONNX Runtime of {target.name} reads opset {target.opset_max}, and the graph has {graph.opset}",
                hint=f"convert with --opset {target.opset_max}, or lower the file with `convert graph lower`",
            )
        if options.precision == "int8":
            check_ranges(graph)
        needs = {"toolchain": "MacaRT", "provider": provider, "card": target.name}
        needs |= {"opset": str(target.opset_max), "precision": options.precision}
        return Plan(
            backend=self.name,
            argv=recipe.as_argv(),
            output=Path(MODEL_IN).name,
            needs=needs,
            notes=(Note(text=FAMILY),),
        )

    def compile(self, plan: Plan, graph: OnnxGraph, folder: Path, runner: Runner) -> Compiled:
        """Optimize, cast, prove that ONNX Runtime loads the result, and write it."""
        from convert.backends.portable import make_portable
        from convert.ort import SessionFailed

        if plan.needs.get("precision") == "int8":
            require_pairs(graph)
        try:
            files, notes = make_portable(Recipe.from_argv(plan.argv), graph, folder)
        except SessionFailed as failure:
            (folder / LOG).write_text(f"{failure.kind}: {failure}\n", encoding="utf-8")
            return Compiled(files=(), failure=str(failure))
        (folder / LOG).write_text("".join(f"{note.level}: {note.text}\n" for note in notes), encoding="utf-8")
        return Compiled(files=files, notes=notes)

    def run(self, request: RunRequest, feeds: Feeds, runner: Runner) -> Ran | CannotRun:
        """Run in this process, one sample at a time."""
        from onnxruntime.capi.onnxruntime_pybind11_state import get_available_providers, get_device

        from convert.ort import CPU, settings_for

        model = request.artifact.path(request.artifact.files[0].name)
        settings = settings_for(model)
        wanted = PROVIDERS.get(find_target(request.artifact.target).arch)
        here = wanted is None or wanted in get_available_providers()
        if wanted and here:
            settings = msgspec.structs.replace(settings, providers=(wanted, CPU))
        return Ran(
            outputs=_outputs(model, feeds, settings, request.artifact.target),
            ran_on="device" if here else "host",
            device=wanted if wanted and here else get_device().lower(),
            output_names=tuple(spec.name for spec in request.graph.outputs),
            in_process=True,
        )

    def diagnose(self, log: str, plan: Plan) -> Diagnosis:
        """ONNX Runtime's one line says what is wrong; a missing kernel gets its own advice."""
        line = log.strip().splitlines()[-1] if log.strip() else "no reason given"
        kind, _, cause = line.partition(": ")
        if kind == "not_implemented":
            return Diagnosis(
                code="CNV-7001",
                cause=f"ONNX Runtime lacks a kernel: {cause}",
                hint="it is mostly the type, not the opset: cast to float32 around the node, in the model",
            )
        return Diagnosis(
            code="CNV-7001",
            cause=f"ONNX Runtime refused the graph: {cause or line}",
            hint="check the graph with onnx.checker, or convert with --option level=off to leave the optimizer out",
        )
