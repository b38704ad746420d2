"""One target of a conversion: adapt, check, compile, validate, and the verdict of the gate."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from artifacts.errors import disk_full
from convert.errors import UnsupportedOps, UsageError
from convert.gate import gate_failed, judge
from convert.host import Limits, WorkerDied
from convert.outputs import target_folder, write_artifact, write_validation_files
from convert.request import ArtifactInfo, Request, StageRun, TargetResult
from convert.settings import Settings
from convert.stage import Stages, died
from convert.stages.compile import find_toolchain
from convert.values import (
    AdaptOptions,
    CheckedGraph,
    CheckOptions,
    CompiledArtifact,
    CompileOptions,
    OnnxGraph,
    Precision,
    ValidateOptions,
)
from op_registry.overlay import overlay_digest
from op_registry.values import Target


class Shared(Protocol):
    """What a target needs of its conversion."""

    request: Request
    settings: Settings
    stages: Stages
    shared: list[StageRun]
    compiled: dict[str, CompiledArtifact]

    def limits(self) -> Limits:
        """Limits of one stage."""


UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENOENT)


@contextmanager
def guarded(stage: str, option: str = "--out") -> Iterator[None]:
    """A crash of the worker, a full disk or a folder that can't be written becomes an expected failure.

    ``option`` is what said where to write.
    """
    try:
        yield
    except WorkerDied as death:
        raise died(stage, death) from death
    except OSError as error:
        if full := disk_full(error, f"{stage} was writing"):
            raise full from error
        if error.errno in UNWRITABLE:
            raise UsageError(
                "CNV-2061",
                f"{error.filename or 'a file'} can't be written: {error.strerror}",
                hint=f"point {option} at a place that can be made and written",
            ) from error
        raise


class TargetRun:
    """The stages of one target, and the result as it grows."""

    def __init__(self, run: Shared, graph: OnnxGraph, target: Target, name: str) -> None:
        self.run = run
        self.graph = graph
        self.target = target
        self.name = name
        self.stages: list[StageRun] = []
        self.result = TargetResult(target=target.name, backend=target.backend)

    def go(self) -> None:
        """Everything up to the verdict of the gate. Raises the target's failure."""
        request = self.run.request
        self._adapt()
        checked = self._check()
        precision = _precision(request, self.target)
        self._set(precision=precision)
        if request.until == "check":
            self._set(status="planned")
            return
        options = CompileOptions(
            target=self.target.name,
            soc=request.soc or self.run.settings.soc,
            backend=self.target.backend,
            precision=precision,
            options=request.options,
            timeout=self.run.settings.timeout,
            launcher=tuple(shlex.split(self.run.settings.launcher)),
            compilers=self.run.settings.compilers,
        )
        backend, toolchain = find_toolchain(options, os.environ)
        versions = {toolchain.name: toolchain.version}
        self._set(toolchain=versions, plan=backend.plan(self.graph, self.target, options, toolchain))
        if request.until == "plan":
            self._set(status="planned")
            return
        artifact = self._compile(checked, options, versions)
        self._validate(artifact, options)

    def _adapt(self) -> None:
        """Bring the graph to the target's opset and operators. A target that runs ONNX itself takes it as it is."""
        if self.target.backend == "onnxruntime":
            return
        request = self.run.request
        options = AdaptOptions(
            target=self.target.name,
            toolchain_version=request.toolchain_version,
            opset=request.export.opset,
            overlay=overlay_digest(),
        )
        self.graph = self._stage("adapt", [self.graph], [self.graph, options], options)

    def _check(self) -> CheckedGraph:
        request = self.run.request
        options = CheckOptions(
            target=self.target.name,
            toolchain_version=request.toolchain_version,
            strict=request.strict,
            overlay=overlay_digest(),
        )
        checked: CheckedGraph = self._stage("check", [self.graph], [self.graph, options], options)
        self._set(support=checked.support)
        if not checked.support.supported:
            raise unsupported(checked, strict=request.strict)
        return checked

    def _compile(self, checked: CheckedGraph, options: CompileOptions, versions: dict[str, str]) -> CompiledArtifact:
        artifact: CompiledArtifact = self._stage(
            "compile",
            [checked, self.graph],
            [self.graph, checked, options],
            msgspec.structs.replace(options, timeout=0.0, launcher=(), compilers=0),
            extra_tools=versions,
        )
        self.run.stages.verify(artifact)
        self.run.compiled[self.target.name] = artifact
        with guarded("compile"):
            folder = target_folder(self.run.request, self.run.settings, self.name, self.target.name)
            main = write_artifact(artifact, folder)
        self._set(
            status="built",
            folder=str(folder),
            artifact=ArtifactInfo(
                path=str(main),
                sha256=artifact.files[0].sha256,
                bytes=artifact.files[0].bytes,
                files=artifact.files,
            ),
        )
        return artifact

    def _validate(self, artifact: CompiledArtifact, compiled: CompileOptions) -> None:
        request = self.run.request
        options = ValidateOptions(metrics=request.metrics, argmax=request.argmax)
        report = self._stage(
            "validate",
            [artifact, self.graph],
            [self.graph, artifact, options],
            options,
            extra_tools=self.result.toolchain,
        )
        judged_as = _judged_as(self.graph, compiled.precision)
        verdict = judge(report, judged_as, request.gate)
        if judged_as != compiled.precision:
            remark = f"the graph is quantized: judged as {judged_as}, since runtimes may round a step the other way"
            verdict = msgspec.structs.replace(verdict, remarks=(*verdict.remarks, remark))
        self._set(report=report, verdict=verdict, judged_as=judged_as)
        with guarded("validate"):
            write_validation_files(self.result, report, Path(self.result.folder))
        if not verdict.passed:
            raise gate_failed(verdict, f"{self.name} for {self.target.name}")

    def _stage(
        self,
        name: str,
        parents: Sequence[Any],
        args: Sequence[Any],
        key_options: Any,
        extra_tools: dict[str, str] | None = None,
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
            )
        self.stages.append(run)
        return value

    def _set(self, **changes: Any) -> None:
        self.result = msgspec.structs.replace(self.result, **changes)

    def finished(self) -> TargetResult:
        """The result with the stages that it took, the shared ones first."""
        return msgspec.structs.replace(self.result, stages=(*self.run.shared, *self.stages))


def _precision(request: Request, target: Target) -> Precision:
    wanted = request.precision or target.default_precision
    return cast(Precision, msgspec.convert(wanted, Precision))


QUANTIZED = ("QuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear")


def _judged_as(graph: OnnxGraph, precision: Precision) -> Precision:
    """The row of the gate's table: that of the precision, but never fp32's for a graph that rounds to steps."""
    return "mixed" if precision == "fp32" and any(op in graph.ops for op in QUANTIZED) else precision


def unsupported(checked: CheckedGraph, *, strict: bool) -> UnsupportedOps:
    """The error that lists every refused operator of a graph at once."""
    states = {"refused", "unknown", "risk"} if strict else {"refused"}
    refused = [one for one in checked.support.judged if one.state in states]
    kinds: dict[str, list[str]] = {}
    for one in refused:
        kinds.setdefault(f"{one.op} ({one.reason})", []).append(one.node)
    listed = "; ".join(kind + _named(nodes) for kind, nodes in kinds.items())
    hints = sorted({one.hint for one in refused if one.hint})
    return UnsupportedOps(
        "CNV-5001",
        f"{checked.target} does not take {len(refused)} of {checked.support.nodes} nodes: {listed}",
        hint="; ".join(hints) or "`convert matrix MODEL` shows which targets can take it",
    )


def _named(nodes: list[str]) -> str:
    names = [node for node in nodes if node]
    return f": {', '.join(names[:3])}{' …' if len(names) > 3 else ''}" if names else ""
