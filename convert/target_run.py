"""One target of a conversion: adapt, check, forecast, compile, validate, and the verdict of the gate.

Where the target's toolchain is not on this machine, all but the last two are done, and a handoff bundle is written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from artifacts.scratch import temporary_folder
from convert.acceptance.stored import write_stored
from convert.backends import knows_backend
from convert.backends.base import Backend, Missing, Toolchain
from convert.backends.preprocess import ImageOptions
from convert.causes import why
from convert.errors import EXPECTED, ToolchainMissing
from convert.evidence import Evidence
from convert.failures import FAILED, drop_failed
from convert.gate import METRICS, gate_failed, judge, judged_as
from convert.guarding import guarded
from convert.host import Limits
from convert.installed import device_nodes
from convert.ladder import PLANNED, accumulation, climb, holds_with_plan, narrow_of, no_int8, no_plan, takes_pairs
from convert.launcher import parse_launcher
from convert.outputs import target_folder, write_artifact, write_validation_files
from convert.request import ArtifactInfo, Request, StageRun, TargetResult, validation_json
from convert.settings import Settings
from convert.stage import Stages, library_versions
from convert.stages.compile import probe_toolchain, soc_of, with_soc
from convert.target_options import (
    cannot_rehearse,
    judged_version,
    other_version,
    precision_of,
    same_version,
    soc_asked,
    takes_preprocessing,
    unsupported,
    version_asked,
    worth_asking,
)
from convert.values import (
    AdaptOptions,
    CheckedGraph,
    CheckOptions,
    CompiledArtifact,
    CompileOptions,
    Forecast,
    ForecastOptions,
    ModelFile,
    Note,
    OnnxGraph,
    Plan,
    Precision,
    QuantizeOptions,
    ValidateOptions,
)
from op_registry.overlay import overlay_digest
from op_registry.targets import find_target
from op_registry.values import Target

VERSIONS = ("torch", "onnx", "onnxruntime", "onnxsim", "onnxscript", "numpy")


class Shared(Protocol):
    """What a target needs of its conversion."""

    request: Request
    settings: Settings
    stages: Stages
    model: ModelFile | None
    shared: list[StageRun]
    compiled: dict[str, CompiledArtifact]

    def limits(self) -> Limits:
        """Limits of one stage."""


class TargetRun:
    """The stages of one target, and the result as it grows."""

    def __init__(
        self, run: Shared, graph: OnnxGraph, target: Target, name: str, request: Request | None = None
    ) -> None:
        self.run = run
        self.request = request or run.request
        self.graph = graph
        self.target = target
        self.name = name
        self.stages: list[StageRun] = []
        self.found: Toolchain | Missing | None = None
        self.result = TargetResult(target=target.name, backend=target.backend)

    def go(self) -> None:
        """Everything up to the verdict of the gate. Raises the target's failure."""
        request, precision = self.request, precision_of(self.request, self.target)
        options = self._compile_options(precision)
        self._set(precision=precision)
        if request.toolchain_version and not options.toolchain_version:
            self._note(f"--toolchain-version {request.toolchain_version} is another target's", level="info")
        backend, found = probe_toolchain(options, os.environ) if request.until != "check" else (None, None)
        self.found = found
        self._adapt(judged_version(self.target, version_asked(self.target, request), found))
        self._take_images(options)
        checked = self._check(judged_version(self.target, version_asked(self.target, request), found))
        if backend is None or found is None:
            self._precheck(checked, options)
            self._set(status="planned")
            return
        if worth_asking(request, checked, found):
            checked = self._precheck(checked, options)
        precision, forecast = self._forecast(precision, backend, options)
        keep = forecast.keep if forecast is not None and precision in PLANNED else ()
        options = msgspec.structs.replace(options, precision=precision, keep=keep)
        found = self._lacking(backend, found, options) or found
        if precision == "int8" and takes_pairs(self.target.backend, request.options):
            checked = self._quantize(keep, judged_version(self.target, version_asked(self.target, request), found))
        toolchain, plan = self._plan(backend, found, options)
        if request.until == "plan":
            self._set(status="planned")
            return
        if request.gate_on:
            self._rehearse(precision)
        if isinstance(found, Missing):
            self._hand_off(found, backend, checked, options, plan, forecast)
        artifact = self._compile(checked, options, toolchain)
        self.validate(artifact, precision, Evidence(forecast=forecast), toolchain.details)

    def _lacking(self, backend: Backend, found: Toolchain | Missing, options: CompileOptions) -> Missing | None:
        """What the toolchain that is here can't do of a request, for backends that say so (``lacks``)."""
        ask = getattr(backend, "lacks", None)
        return ask(self.graph, options, found) if ask is not None and isinstance(found, Toolchain) else None

    def _compile_options(self, precision: Precision) -> CompileOptions:
        request, settings = self.request, self.run.settings
        return CompileOptions(
            target=self.target.name,
            soc=soc_asked(self.target, request, settings),
            backend=self.target.backend,
            precision=precision,
            options=request.options,
            preprocess=request.preprocess if takes_preprocessing(self.target.backend) else "",
            toolchain_version=version_asked(self.target, request),
            timeout=settings.timeout,
            launcher=parse_launcher(settings.launcher),
            compilers=settings.compilers,
        )

    # ------------------------------------------------------------------------------------------- before the compiler

    def _adapt(self, version: str) -> None:
        """Bring the graph to the target's opset and operators. ONNX Runtime of this release takes it as it is."""
        if self.target.arch == "cpu":
            return
        options = AdaptOptions(
            target=self.target.name,
            toolchain_version=version,
            opset=self.request.export.opset,
            overlay=overlay_digest(),
        )
        self.graph = self._stage("adapt", [self.graph], [self.graph, options], options)

    def _take_images(self, options: CompileOptions) -> None:
        """``--preprocess``: from here on the samples are those that 8-bit images make, and so are the references."""
        if not options.preprocess:
            return
        load = self.request.load
        wanted = ImageOptions(
            backend=options.backend, preprocess=options.preprocess, given=bool(load.samples), seed=load.seed
        )
        self.graph = self._stage("images", [self.graph], [self.graph, wanted], wanted)

    def _check(self, version: str) -> CheckedGraph:
        request = self.request
        options = CheckOptions(
            target=self.target.name,
            toolchain_version=version,
            strict=request.strict,
            overlay=overlay_digest(),
        )
        checked: CheckedGraph = self._stage("check", [self.graph], [self.graph, options], options)
        self._set(support=checked.support)
        if not checked.support.supported:
            raise unsupported(checked, strict=request.strict)
        return checked

    def _precheck(self, checked: CheckedGraph, options: CompileOptions) -> CheckedGraph:
        """Where the toolkit is here and can be asked: its own word joins the support data's."""
        if not knows_backend(self.target.backend):
            return checked
        backend, found = probe_toolchain(options, os.environ)
        if isinstance(found, Missing) or getattr(backend, "precheck", None) is None:
            return checked
        versions = {found.name: found.version}
        try:
            asked: CheckedGraph = self._stage(
                "precheck", [checked, self.graph], [self.graph, checked, options], options, extra_tools=versions
            )
        except EXPECTED as error:
            self._note(f"{found.name} was not asked: [{error.code}] {error.message}", level="warning")
            return checked
        self._set(support=asked.support, toolchain=versions)
        if not asked.support.supported:
            raise unsupported(asked, strict=self.request.strict)
        return asked

    def _forecast(
        self, precision: Precision, backend: Backend, options: CompileOptions
    ) -> tuple[Precision, Forecast | None]:
        """What the precision will do to the numbers, or with ``auto`` the first of the ladder that keeps the gate.

        Without a forecast the run goes on where no plan is needed: a device can still tell. Raises GateFailed CNV-8104
        where no plan of ``mixed`` keeps the gate, CNV-8105 where no precision does.
        """
        if self.request.precision == "auto":
            precision, forecast, rungs = climb(
                self.target, lambda one: self._refusal(one, backend, options), self._forecast_of
            )
            self._set(precision=precision, ladder=rungs, forecast=forecast)
            return precision, forecast
        if self.target.backend == "onnxruntime" and precision not in PLANNED:
            return precision, None
        try:
            forecast = self._forecast_of(precision)
        except EXPECTED as error:
            if precision in PLANNED:
                raise
            self._note(f"there is no forecast of {precision}: [{error.code}] {error.message}", level="warning")
            return precision, None
        self._set(forecast=forecast)
        if precision == "mixed" and not holds_with_plan(forecast):
            raise no_plan(forecast, self.name)
        return precision, forecast

    def _forecast_of(self, precision: Precision) -> Forecast:
        options = ForecastOptions(
            precision=precision,
            gate={name: limit for name, limit in self.request.gate.items() if name in METRICS},
            plan=precision in PLANNED,
            accumulate=accumulation(self.target),
            calibration=self.request.calibration,
            narrow=narrow_of(self.request.options),
        )
        forecast: Forecast = self._stage("forecast", [self.graph], [self.graph, options], options)
        return forecast

    def _refusal(self, precision: Precision, backend: Backend, options: CompileOptions) -> str:
        """Why the ladder leaves a precision out: no inputs to calibrate with, or the compiler does not take it."""
        if precision == "int8" and (why_not := no_int8(self.graph, given=bool(self.request.load.samples))):
            return why_not
        wanted = msgspec.structs.replace(options, precision=precision)
        if self.found is not None and (lacking := self._lacking(backend, self.found, wanted)):
            return f"{lacking.name} is not on this machine: {lacking.reason}"
        try:
            backend.plan(self.graph, self.target, wanted, backend.assumed())
        except EXPECTED as error:
            return error.message
        return ""

    def _quantize(self, keep: tuple[str, ...], version: str) -> CheckedGraph:
        """Put the pairs of int8 into the graph, and ask the support data of it again."""
        options = QuantizeOptions(calibration=self.request.calibration, keep=keep)
        self.graph = self._stage("quantize", [self.graph], [self.graph, options], options)
        return self._check(version)

    def _plan(self, backend: Backend, found: Toolchain | Missing, options: CompileOptions) -> tuple[Toolchain, Plan]:
        """What the compiler will be told, and the toolchain that it is for: the one here, else the one asked for.

        Raises :class:`UsageError`: CNV-2308 where another version is here than was asked for, CNV-2310 where the
        toolchain is here and nobody told the SoC, and what the backend refuses.
        """
        asked = options.toolchain_version
        if isinstance(found, Toolchain) and asked and not same_version(self.target, asked, found.version):
            if self.request.until != "plan":
                raise other_version(found, asked)
            found = Missing(name=found.name, reason="", hint="")
        if isinstance(found, Missing):
            assumed = backend.assumed()
            toolchain = msgspec.structs.replace(
                assumed, version=asked or found.version or assumed.version, assumed=True
            )
            plan = backend.plan(self.graph, self.target, options, toolchain)
            needs = {"toolchain": toolchain.name, "version": toolchain.version, **plan.needs}
            plan = msgspec.structs.replace(plan, needs=needs)
        else:
            toolchain = found
            plan = with_soc(backend.plan(self.graph, self.target, options, toolchain), options, toolchain)
        versions = {toolchain.name: toolchain.version}
        self._set(toolchain=versions, plan=plan, soc=soc_of(plan, options, toolchain))
        return toolchain, plan

    def _rehearse(self, precision: Precision) -> None:
        """``--gate-on``: convert for another target first, run it there, and go on only where its gate passes."""
        target = find_target(self.request.gate_on)
        same = target.backend == self.target.backend
        request = msgspec.structs.replace(
            self.request,
            soc="",
            gate_on="",
            toolchain_version="",
            preprocess="",
            precision=precision,
            options=self.request.options if same else {},
        )
        rehearsal = TargetRun(self.run, self.graph, target, self.name, request)
        try:
            rehearsal.go()
        except ToolchainMissing as error:
            raise cannot_rehearse(target, error) from error
        finally:
            self._set(rehearsal={"target": target.name, **(validation_json(rehearsal.result) or {})})

    # -------------------------------------------------------------------------------------------------- the handoff

    def _hand_off(
        self,
        missing: Missing,
        backend: Backend,
        checked: CheckedGraph,
        options: CompileOptions,
        plan: Plan,
        forecast: Forecast | None,
    ) -> None:
        """Write the bundle that goes on elsewhere. Always raises :class:`ToolchainMissing` (CNV-6001)."""
        # Imported here: the common case, a toolchain that is here, needs none of it.
        from convert.handoff.writing import HandoffSource, made_for, needs_of, write_bundle

        assert self.run.model is not None
        device_files = getattr(backend, "device_files", None)
        source = HandoffSource(
            request=self.request,
            name=self.name,
            model=self.run.model,
            graph=self.graph,
            checked=checked,
            options=options,
            plan=plan,
            judged_as=judged_as(self.graph, options.precision),
            forecast=forecast,
            stages=(*self.run.shared, *self.stages),
            libraries=library_versions(VERSIONS),
            device_files=device_files(plan, self.graph) if device_files is not None else {},
        )
        self.run.stages.verify(self.graph)
        with guarded("handoff"), temporary_folder("handoff") as scratch:
            folder = target_folder(self.request, self.run.settings, self.name, self.target.name)
            source = msgspec.structs.replace(source, made=made_for(backend, plan, self.graph, Path(scratch)))
            packed, bundle = write_bundle(source, folder)
        needs = needs_of(plan)
        self._set(
            status="handoff",
            folder=str(folder),
            handoff={"path": packed.path, "sha256": packed.sha256, "bytes": packed.bytes, "needs": needs},
        )
        if forecast is not None and not forecast.holds and forecast.plan_holds is not True:
            text = f"the forecast of {forecast.precision} does not keep the gate: expect the device to fail it, too"
            self._note(text, level="warning")
        told = f", for one of {', '.join(bundle.members)}" if bundle.members else ""
        raise ToolchainMissing(
            "CNV-6001",
            f"{missing.name} is not on this machine: {missing.reason}; everything before the compiler is done",
            hint=f"carry {packed.path} to a machine with {' '.join(needs[key] for key in ('toolchain', 'version'))}, "
            f"run `bash compile.sh` in it{told}, then `convert resume` here; or here: {missing.hint}",
        )

    # --------------------------------------------------------------------------------------------- compile, validate

    def _compile(self, checked: CheckedGraph, options: CompileOptions, toolchain: Toolchain) -> CompiledArtifact:
        failed = self._failed_folder()
        artifact: CompiledArtifact = self._stage(
            "compile",
            [checked, self.graph],
            [self.graph, checked, options],
            msgspec.structs.replace(options, timeout=0.0, launcher=(), compilers=0),
            extra_tools={toolchain.name: toolchain.version, **toolchain.details},
            failed=failed,
        )
        drop_failed(failed)
        self.keep(artifact)
        return artifact

    def _failed_folder(self) -> Path:
        out = Path(self.request.out or self.run.settings.out).absolute()
        return out / self.name / self.target.name / FAILED

    def compile_here(
        self, backend: Backend, found: Toolchain, options: CompileOptions, version: str
    ) -> CompiledArtifact:
        """Judge the graph for the toolchain that is here, plan for it, and compile: the second half of a handoff."""
        checked = self._check(version)
        toolchain, _ = self._plan(backend, found, options)
        return self._compile(checked, options, toolchain)

    def keep(self, artifact: CompiledArtifact) -> None:
        """Put an artifact into the target's folder, and note it for publishing."""
        self.run.stages.verify(artifact)
        self.run.compiled[self.target.name] = artifact
        with guarded("compile"):
            folder = target_folder(self.request, self.run.settings, self.name, self.target.name)
            main = write_artifact(artifact, folder)
            write_stored(artifact, self.graph, folder, given=bool(self.request.load.samples))
        self._set(
            status="built",
            soc=artifact.soc,
            folder=str(folder),
            artifact=ArtifactInfo(
                path=str(main),
                sha256=artifact.files[0].sha256,
                bytes=artifact.files[0].bytes,
                files=artifact.files,
            ),
        )

    def validate(
        self, artifact: CompiledArtifact, precision: Precision, evidence: Evidence, details: dict[str, str]
    ) -> None:
        """Measure an artifact and judge it; ``details`` are facts of the toolchain that a run here depends on.

        Where nothing here runs it and nothing stands in for a run, the target stays ``built``, ungated.
        """
        request, settings = self.request, self.run.settings
        options = ValidateOptions(metrics=request.metrics, argmax=request.argmax)
        own = msgspec.structs.replace(options, timeout=settings.timeout, launcher=parse_launcher(settings.launcher))
        parents = [artifact, self.graph, *(one for one in (evidence.measured, evidence.forecast) if one is not None)]
        try:
            report = self._stage(
                "validate",
                parents,
                [self.graph, artifact, own, evidence],
                options,
                extra_tools={**self.result.toolchain, **details, "devices": device_nodes()},
                failed=self._failed_folder(),
            )
            drop_failed(self._failed_folder())
        except EXPECTED as error:
            if error.code != "CNV-6002":
                raise
            self._note(f"built, and not judged: {error.message}; {error.hint}", level="warning")
            return
        row = judged_as(self.graph, precision)
        verdict = judge(report, row, request.gate)
        if row != precision:
            remark = f"the graph is quantized: judged as {row}, since runtimes may round a step the other way"
            verdict = msgspec.structs.replace(verdict, remarks=(*verdict.remarks, remark))
        self._set(report=report, verdict=verdict, judged_as=row)
        with guarded("validate"):
            write_validation_files(self.result, report, Path(self.result.folder))
        if not verdict.passed:
            inputs = [self.graph, artifact, own]
            cause = why(
                self.result, evidence, lambda at: self._stage("locate", [artifact, self.graph], [*inputs, at], at)
            )
            raise gate_failed(verdict, f"{self.name} for {self.target.name}", cause=cause)

    def _stage(
        self,
        name: str,
        parents: Sequence[Any],
        args: Sequence[Any],
        key_options: Any,
        extra_tools: dict[str, str] | None = None,
        failed: Path | None = None,
    ) -> Any:
        with guarded(name):
            value, run = self.run.stages.run(
                name,
                parents,
                args,
                key_options=key_options,
                limits=self.run.limits(),
                target=self.target.name,
                extra_tools=extra_tools,
                failed=failed,
            )
        self.stages.append(run)
        return value

    def _set(self, **changes: Any) -> None:
        self.result = msgspec.structs.replace(self.result, **changes)

    def _note(self, text: str, *, level: Any = "info") -> None:
        self._set(notes=(*self.result.notes, Note(level=level, text=text)))

    def finished(self) -> TargetResult:
        """The result with the stages that it took, the shared ones first."""
        return msgspec.structs.replace(self.result, stages=(*self.run.shared, *self.stages))
