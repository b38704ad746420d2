"""READ THIRD: a conversion from the user's file to published artifacts.

    load ─▶ export ─▶ simplify                    once
    adapt ─▶ check ─▶ compile ─▶ validate         per target, side by side where asked
    publish                                       the targets that passed, as one version
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from artifacts.digest import canonical_json, sha256_bytes, sha256_file
from artifacts.errors import disk_full
from artifacts.names import default_name
from convert.backends import backend_names, knows_backend
from convert.cache import Cache
from convert.errors import EXPECTED, ConvertError, UnsupportedOps, UsageError
from convert.gate import gate_failed, judge
from convert.host import Limits, StageHost, Worker, WorkerDied
from convert.loading.sniff import identify
from convert.outputs import target_folder, write_artifact, write_report, write_validation_files
from convert.publishing import publish_targets
from convert.request import ArtifactInfo, Conversion, Request, StageRun, Status, TargetResult, worst
from convert.settings import Settings, memory_limit
from convert.stage import CacheCorrupt, Event, Listener, Stages, died, tool_versions
from convert.stages.compile import find_toolchain
from convert.values import (
    AdaptOptions,
    CheckedGraph,
    CheckOptions,
    CompiledArtifact,
    CompileOptions,
    LoadedModel,
    ModelFile,
    OnnxGraph,
    Precision,
    SimplifyOptions,
    ValidateOptions,
)
from op_registry.errors import RegistryDataError
from op_registry.overlay import overlay_digest
from op_registry.targets import find_target
from op_registry.values import Target

VERSIONS = ("torch", "onnx", "onnxruntime", "onnxsim", "onnxscript", "numpy")
RESTARTS = 20
"""How many damaged cache entries one conversion may meet; each is found when the stage after it needs it."""
R = TypeVar("R")


def convert_model(
    request: Request,
    settings: Settings,
    listener: Listener = lambda event: None,
    host: StageHost | None = None,
) -> Conversion:
    """Convert one model for every target asked for, and publish what passed.

    Whoever converts many models gives a ``host`` of their own, which then imports the libraries once for all.
    Never raises an expected failure: it is in ``error`` of the conversion and of its targets. What is no expected
    failure (a bug) passes through.
    """
    with _workspace(request, settings, host) as (cache, workers):
        for attempt in range(RESTARTS):
            stages = Stages(cache, workers, use_cache=request.use_cache, listener=listener)
            try:
                return _Run(request, settings, stages, workers).convert()
            except CacheCorrupt:
                if attempt == RESTARTS - 1:
                    raise
    raise AssertionError("unreachable")


def with_graph(
    request: Request,
    settings: Settings,
    use: Callable[[ModelFile, OnnxGraph], R],
    listener: Listener = lambda event: None,
) -> R:
    """Load, export and simplify a model, and hand its graph to ``use`` while the graph's folder stands.

    Raises what the stages raise (exits 2, 3, 4 and 10).
    """
    with _workspace(request, settings, None) as (cache, workers):
        run = _Run(request, settings, Stages(cache, workers, use_cache=request.use_cache, listener=listener), workers)
        model = identify(Path(request.load.path))
        return use(model, run._shared_stages(model))


@contextmanager
def _workspace(request: Request, settings: Settings, host: StageHost | None) -> Iterator[tuple[Cache, StageHost]]:
    """The cache and the stage host of one conversion; without a cache, a throw-away one."""
    cache = Cache(Path(settings.cache_dir))
    with ExitStack() as stack:
        try:
            cache.sweep()
            scratch = cache.scratch("run")
        except OSError as error:
            full = disk_full(error, "preparing the cache")
            raise full or UsageError(
                "CNV-2004",
                f"the cache can't be written: {error.strerror}: {error.filename}",
                hint="point the setting `cache_dir` (CONVERT_CACHE_DIR) at a folder that can be written",
            ) from error
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        if not request.use_cache:
            cache = Cache(scratch / "cache")
        yield cache, host or stack.enter_context(StageHost(scratch / "workers.log"))


class _Run:
    """One attempt at a conversion."""

    def __init__(self, request: Request, settings: Settings, stages: Stages, host: StageHost) -> None:
        self.request = request
        self.settings = settings
        self.stages = stages
        self.host = host
        self.shared: list[StageRun] = []
        self.compiled: dict[str, CompiledArtifact] = {}
        self.ops: dict[str, int] = {}

    def convert(self) -> Conversion:
        request = self.request
        model: ModelFile | None = None
        name = request.name or default_name(Path(request.load.path).stem)
        try:
            targets = _resolve(request.targets, compiles=request.until != "check")
            _known_precisions(request, targets)
            with self._guarded("load"):
                model = identify(Path(request.load.path))
            graph = self._shared_stages(model)
            self.ops = graph.ops
        except EXPECTED as error:
            return self._ended(name, model, [self._failed(text, error) for text in request.targets])
        results = self._each_target(graph, targets, name)
        return self._publish(name, model, results)

    # ------------------------------------------------------------------------------------------------ shared stages

    def _shared_stages(self, model: ModelFile) -> OnnxGraph:
        """load, export and simplify: the same for every target."""
        request, limits = self.request, self._limits()
        key = _load_key(request, model)
        with _shared_worker(self.host) as worker:
            with self._guarded("load"):
                loaded: LoadedModel = self._stage("load", [], [request.load], key, limits, worker=worker)
            with self._guarded("export"):
                args = [loaded, request.load, request.export]
                graph: OnnxGraph = self._stage("export", [loaded], args, request.export, limits, worker=worker)
        return self._simplified(graph)

    def _simplified(self, graph: OnnxGraph) -> OnnxGraph:
        """Simplify, one rung lower each time the simplifier brings its process down or runs out of time."""
        options = SimplifyOptions() if self.request.simplify else SimplifyOptions(mode="off")
        limits = Limits(seconds=self.settings.simplify_timeout, memory=memory_limit(self.settings))
        lower: dict[str, Any] = {"full": "safe", "safe": "off"}
        while True:
            try:
                result: OnnxGraph = self._stage("simplify", [graph], [graph, options], options, limits)
            except (WorkerDied, ConvertError) as failure:
                if options.mode not in lower or getattr(failure, "code", "CNV-1001") not in ("CNV-1001", "CNV-1002"):
                    with self._guarded("simplify"):
                        raise
                reason = (
                    str(failure) if isinstance(failure, ConvertError) else f"onnxsim ended its process: {failure.cause}"
                )
                options = SimplifyOptions(mode=lower[options.mode], reason=reason)
            else:
                return result

    def _stage(
        self,
        name: str,
        parents: Sequence[Any],
        args: Sequence[Any],
        key_options: Any,
        limits: Limits,
        worker: Callable[[], Worker] | None = None,
    ) -> Any:
        value, run = self.stages.run(name, parents, args, key_options=key_options, limits=limits, worker=worker)
        self.shared.append(run)
        return value

    def _limits(self) -> Limits:
        return Limits(seconds=self.settings.timeout, memory=memory_limit(self.settings))

    @contextmanager
    def _guarded(self, stage: str) -> Iterator[None]:
        """A crash of the worker or a full disk becomes an expected failure of the stage."""
        try:
            yield
        except WorkerDied as death:
            raise died(stage, death) from death
        except OSError as error:
            if full := disk_full(error, f"{stage} was writing"):
                raise full from error
            raise

    # ------------------------------------------------------------------------------------------------- per target

    def _each_target(self, graph: OnnxGraph, targets: Sequence[Target], name: str) -> list[TargetResult]:
        if self.settings.jobs <= 1 or len(targets) == 1:
            return [self._target(graph, target, name) for target in targets]
        with ThreadPoolExecutor(max_workers=self.settings.jobs) as pool:
            return list(pool.map(lambda target: self._target(graph, target, name), targets))

    def _target(self, graph: OnnxGraph, target: Target, name: str) -> TargetResult:
        """check, compile, validate and judge for one target; a failure is part of the result."""
        run = _TargetRun(self, graph, target, name)
        try:
            run.go()
        except EXPECTED as error:
            run.result = msgspec.structs.replace(run.result, status="failed", error=error.as_json())
        return run.finished()

    def _failed(self, target: str, error: ConvertError | RegistryDataError) -> TargetResult:
        return TargetResult(target=target, stages=tuple(self.shared), error=error.as_json())

    # ---------------------------------------------------------------------------------------------------- publish

    def _publish(self, name: str, model: ModelFile, results: list[TargetResult]) -> Conversion:
        ended = self._ended(name, model, results)
        if ended.error or self.request.until != "publish" or not self.request.publish:
            return self._reported(ended)
        self._reported(ended)
        try:
            with self._guarded("publish"):
                self.stages.tell(Event(target="", stage="publish"))
                ended, run = publish_targets(ended, self.compiled, Path(self.settings.registry))
            self.stages.tell(Event(target="", stage="publish", run=run))
        except EXPECTED as error:
            failed = [
                msgspec.structs.replace(result, status="built", error=error.as_json()) for result in ended.targets
            ]
            ended = self._ended(name, model, failed)
        return self._reported(ended)

    def _ended(self, name: str, model: ModelFile | None, results: list[TargetResult]) -> Conversion:
        error = worst([result.error for result in results if result.error])
        status: Status = "failed" if error else (results[0].status if results else "failed")
        return Conversion(
            request=self.request,
            status=status,
            model=model,
            name=name,
            targets=tuple(results),
            versions=tool_versions(VERSIONS),
            error=error,
        )

    def _reported(self, conversion: Conversion) -> Conversion:
        for result in conversion.targets:
            if result.folder:
                with self._guarded("report"):
                    write_report(conversion, result, self.ops)
        return conversion


class _TargetRun:
    """The stages of one target, and the result as it grows."""

    def __init__(self, run: _Run, graph: OnnxGraph, target: Target, name: str) -> None:
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
            soc=request.soc,
            backend=self.target.backend,
            precision=precision,
            options=request.options,
            timeout=self.run.settings.timeout,
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
            [self.graph],
            [self.graph, checked, options],
            msgspec.structs.replace(options, timeout=0.0),
            extra_tools=versions,
        )
        self.run.stages.verify(artifact)
        self.run.compiled[self.target.name] = artifact
        folder = target_folder(self.run.request, self.run.settings, self.name, self.target.name)
        with self.run._guarded("compile"):
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
        with self.run._guarded("validate"):
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
        with self.run._guarded(name):
            value, run = self.run.stages.run(
                name,
                parents,
                args,
                key_options=key_options,
                limits=self.run._limits(),
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


def unsupported(checked: CheckedGraph, *, strict: bool) -> UnsupportedOps:
    """The error that lists every refused operator of a graph at once."""
    states = {"refused", "unknown", "risk"} if strict else {"refused"}
    refused = [one for one in checked.support.judged if one.state in states]
    kinds: dict[str, list[str]] = {}
    for one in refused:
        kinds.setdefault(f"{one.op} ({one.reason})", []).append(one.node)
    listed = "; ".join(
        f"{kind}: {', '.join(nodes[:3])}{' …' if len(nodes) > 3 else ''}" for kind, nodes in kinds.items()
    )
    hints = sorted({one.hint for one in refused if one.hint})
    return UnsupportedOps(
        "CNV-5001",
        f"{checked.target} does not take {len(refused)} of {checked.support.nodes} nodes: {listed}",
        hint="; ".join(hints)
        or "change the model, or choose another target: `convert matrix MODEL` shows which can take it",
    )


def _resolve(texts: Sequence[str], *, compiles: bool) -> list[Target]:
    """Targets by name, each once; where the run compiles, only those that a backend serves."""
    found = {target.name: target for target in map(find_target, texts)}
    lacking = sorted(name for name, target in found.items() if not knows_backend(target.backend))
    if lacking and compiles:
        raise UsageError(
            "CNV-2006",
            f"this version has no compiler backend for {', '.join(lacking)}",
            hint="`convert check MODEL --target …` tells what the card takes; the backends here are "
            + ", ".join(backend_names()),
        )
    return list(found.values())


def _precision(request: Request, target: Target) -> Precision:
    wanted = request.precision or target.default_precision
    return cast(Precision, msgspec.convert(wanted, Precision))


QUANTIZED = ("QuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear")


def _judged_as(graph: OnnxGraph, precision: Precision) -> Precision:
    """The row of the gate's table: that of the precision, but never fp32's for a graph that rounds to steps."""
    return "mixed" if precision == "fp32" and any(op in graph.ops for op in QUANTIZED) else precision


def _known_precisions(request: Request, targets: Sequence[Target]) -> None:
    """Refuse a precision that a target does not have, for all targets at once."""
    if not request.precision:
        return
    lacking = [target for target in targets if target.precisions.get(request.precision, "no") == "no"]
    if lacking:
        states = "; ".join(
            f"{target.name} has {', '.join(name for name, state in target.precisions.items() if state != 'no')}"
            for target in lacking
        )
        raise UsageError(
            "CNV-2005",
            f"{request.precision} is not a precision of {', '.join(target.name for target in lacking)}",
            hint=states,
        )


@contextmanager
def _shared_worker(host: StageHost) -> Iterator[Callable[[], Worker]]:
    """One worker for load and export, forked when the first of them needs it, so that torch is imported once."""
    with ExitStack() as stack:
        made: list[Worker] = []

        def worker() -> Worker:
            if not made:
                made.append(stack.enter_context(host.worker()))
            return made[0]

        yield worker


def _load_key(request: Request, model: ModelFile) -> dict[str, Any]:
    """What of a request decides what ``load`` gives: contents instead of paths."""
    options = msgspec.to_builtins(request.load)
    del options["path"]
    samples = Path(request.load.samples) if request.load.samples else None
    if samples is not None and samples.exists():
        options["samples"] = _content(samples)
    return {"options": options, "model": [model.format, model.sha256, msgspec.to_builtins(model.external)]}


def _content(path: Path) -> str:
    """The digest of a file, or of all files of a folder."""
    if path.is_file():
        return sha256_file(path)
    listed = [(item.name, sha256_file(item)) for item in sorted(path.iterdir()) if item.is_file()]
    return sha256_bytes(canonical_json(listed))


__all__ = ["Event", "convert_model", "unsupported", "with_graph"]
