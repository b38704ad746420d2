"""READ THIRD: a conversion from the user's file to published artifacts.

load ─▶ export ─▶ simplify                            once
adapt ─▶ check ─▶ forecast ─▶ compile ─▶ validate     per target, side by side where asked
publish                                               the targets that passed: as one version, or as its draft
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from artifacts.digest import canonical_json, sha256_bytes, sha256_file
from artifacts.errors import disk_full
from artifacts.names import check_name, check_version, default_name
from convert.backends import knows_backend, no_backend
from convert.cache import Cache
from convert.errors import EXPECTED, ConvertError, UsageError
from convert.guarding import guarded
from convert.host import Limits, StageHost, Worker, WorkerDied
from convert.launcher import check_launcher
from convert.loading.sniff import identify
from convert.outputs import write_report
from convert.publishing import has_passed, publish_targets
from convert.request import Conversion, Request, StageRun, Status, TargetResult, status_of, worst
from convert.settings import Settings, stage_limits
from convert.stage import CacheCorrupt, Event, Listener, Stages, library_versions
from convert.target_options import check_request
from convert.target_run import VERSIONS, TargetRun
from convert.user_metrics import find_metrics
from convert.values import (
    CompiledArtifact,
    LoadedModel,
    LoadOptions,
    ModelFile,
    OnnxGraph,
    SimplifyOptions,
)
from op_registry.errors import RegistryDataError
from op_registry.targets import find_target
from op_registry.values import Target

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
    with workspace(request, settings, host) as (cache, workers, scratch):
        for attempt in range(RESTARTS):
            stages = Stages(cache, workers, use_cache=request.use_cache, listener=listener)
            try:
                return Run(request, settings, stages, workers, scratch).convert()
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
    return with_stages(request, settings, lambda model, graph, run: use(model, graph), listener)


def with_stages(
    request: Request,
    settings: Settings,
    use: Callable[[ModelFile, OnnxGraph, Run], R],
    listener: Listener = lambda event: None,
) -> R:
    """The same, with the run whose ``stages`` go on from the graph."""
    with workspace(request, settings, None) as (cache, workers, scratch):
        for attempt in range(RESTARTS):
            stages = Stages(cache, workers, use_cache=request.use_cache, listener=listener)
            run = Run(request, settings, stages, workers, scratch)
            model = identify(Path(request.load.path))
            _require_libraries(model)
            try:
                return use(model, run._shared_stages(model), run)
            except CacheCorrupt:
                if attempt == RESTARTS - 1:
                    raise
    raise AssertionError("unreachable")


@contextmanager
def workspace(request: Request, settings: Settings, host: StageHost | None) -> Iterator[tuple[Cache, StageHost, Path]]:
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
        yield cache, host or stack.enter_context(StageHost(scratch / "workers.log")), scratch


class Run:
    """One attempt at a conversion."""

    def __init__(self, request: Request, settings: Settings, stages: Stages, host: StageHost, work: Path) -> None:
        self.request = request
        self.settings = settings
        self.stages = stages
        self.host = host
        self.work = work
        self.model: ModelFile | None = None
        self.shared: list[StageRun] = []
        self.compiled: dict[str, CompiledArtifact] = {}
        self.ops: dict[str, int] = {}

    def convert(self) -> Conversion:
        request = self.request
        name = request.name or default_name(Path(request.load.path).stem)
        try:
            targets = _resolve(request.targets, compiles=request.until != "check")
            _known_precisions(request, targets)
            check_request(request, targets)
            find_metrics(request.metrics)
            check_launcher(self.settings.launcher)
            check_names(request)
            with guarded("load"):
                self.model = model = identify(Path(request.load.path))
            _require_libraries(model)
            graph = self._shared_stages(model)
            self.ops = graph.ops
        except EXPECTED as error:
            return self._ended(name, [self._failed(text, error) for text in request.targets])
        results = self._each_target(graph, targets, name)
        return self.publish(name, results)

    # ------------------------------------------------------------------------------------------------ shared stages

    def _shared_stages(self, model: ModelFile) -> OnnxGraph:
        """load, export and simplify: the same for every target."""
        request, limits = self.request, self.limits()
        load = msgspec.structs.replace(request.load, preprocess=request.preprocess)
        key = _load_key(load, model)
        with _shared_worker(self.host) as worker:
            with guarded("load"):
                loaded: LoadedModel = self._stage("load", [], [load], key, limits, worker=worker)
            with guarded("export"):
                args = [loaded, request.load, request.export]
                graph: OnnxGraph = self._stage("export", [loaded], args, request.export, limits, worker=worker)
        return self._simplified(graph)

    def _simplified(self, graph: OnnxGraph) -> OnnxGraph:
        """Simplify, one rung lower each time the simplifier brings its process down or runs out of time."""
        options = SimplifyOptions() if self.request.simplify else SimplifyOptions(mode="off")
        limits = msgspec.structs.replace(self.limits(), seconds=self.settings.simplify_timeout)
        lower: dict[str, Any] = {"full": "safe", "safe": "off"}
        while True:
            try:
                result: OnnxGraph = self._stage("simplify", [graph], [graph, options], options, limits)
            except (WorkerDied, ConvertError) as failure:
                if options.mode not in lower or getattr(failure, "code", "CNV-1001") not in ("CNV-1001", "CNV-1002"):
                    with guarded("simplify"):
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

    def limits(self) -> Limits:
        """Limits of one stage."""
        return Limits(**stage_limits(self.settings))

    # ------------------------------------------------------------------------------------------------- per target

    def _each_target(self, graph: OnnxGraph, targets: Sequence[Target], name: str) -> list[TargetResult]:
        if self.settings.jobs <= 1 or len(targets) == 1:
            return [self._target(graph, target, name) for target in targets]
        with ThreadPoolExecutor(max_workers=self.settings.jobs) as pool:
            return list(pool.map(lambda target: self._target(graph, target, name), targets))

    def _target(self, graph: OnnxGraph, target: Target, name: str) -> TargetResult:
        """check, compile, validate and judge for one target; a failure is part of the result."""
        run = TargetRun(self, graph, target, name)
        try:
            run.go()
        except EXPECTED as error:
            status: Status = "handoff" if run.result.status == "handoff" else "failed"
            run.result = msgspec.structs.replace(run.result, status=status, error=error.as_json())
        return run.finished()

    def _failed(self, target: str, error: ConvertError | RegistryDataError) -> TargetResult:
        return TargetResult(target=target, stages=tuple(self.shared), error=error.as_json())

    # ---------------------------------------------------------------------------------------------------- publish

    def publish(self, name: str, results: list[TargetResult]) -> Conversion:
        """The end of a conversion: what passed is published, or waits as a draft for the others; a report of each."""
        ended = self._ended(name, results)
        passed = [result for result in results if has_passed(result)]
        if not passed or self.request.until != "publish" or not self.request.publish:
            return self._reported(ended)
        self._reported(ended)
        try:
            with guarded("publish"):
                self.stages.tell(Event(target="", stage="publish"))
                ended, run = publish_targets(ended, self.compiled, self.settings.registry, self.work)
            self.stages.tell(Event(target="", stage="publish", run=run))
        except EXPECTED as error:
            failed = [
                msgspec.structs.replace(result, status="built", error=error.as_json()) if has_passed(result) else result
                for result in ended.targets
            ]
            ended = self._ended(name, failed)
        return self._reported(ended)

    def _ended(self, name: str, results: list[TargetResult]) -> Conversion:
        return Conversion(
            request=self.request,
            status=status_of(results),
            model=self.model,
            name=name,
            targets=tuple(results),
            versions=library_versions(VERSIONS),
            error=worst([result.error for result in results if result.error]),
        )

    def _reported(self, conversion: Conversion) -> Conversion:
        for result in conversion.targets:
            if result.folder:
                with guarded("report"):
                    write_report(conversion, result, self.ops)
        return conversion


def check_names(request: Request) -> None:
    """Refuse a name or version that the registry has no place for, before anything runs (CNV-2402, CNV-2403)."""
    if request.name:
        check_name(request.name)
    if request.version:
        check_version(request.version)


def _require_libraries(model: ModelFile) -> None:
    """A deploy machine has the command without the libraries that converting takes."""
    needed = ("numpy", "onnx", "onnxruntime", "onnxsim", *(() if model.format == "onnx" else ("torch", "onnxscript")))
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            "CNV-2062",
            f"this installation can't convert: {', '.join(missing)} is not installed",
            hint="pip install 'model-convert[convert]'",
        )


def _resolve(texts: Sequence[str], *, compiles: bool) -> list[Target]:
    """Targets by name, each once; where the run compiles, only those that a backend serves."""
    found = {target.name: target for target in map(find_target, texts)}
    lacking = sorted(name for name, target in found.items() if not knows_backend(target.backend))
    if lacking and compiles:
        raise no_backend(lacking)
    return list(found.values())


def _known_precisions(request: Request, targets: Sequence[Target]) -> None:
    """Refuse a precision that a target does not have, for all targets at once."""
    if not request.precision or request.precision == "auto":
        return
    # A mixed plan is made of fp16 and fp32; whether a backend can express it, the backend says.
    needed = "fp16" if request.precision == "mixed" else request.precision
    lacking = [target for target in targets if target.precisions.get(needed, "no") == "no"]
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


def _load_key(load: LoadOptions, model: ModelFile) -> dict[str, Any]:
    """What of a request decides what ``load`` gives: contents instead of paths."""
    options = msgspec.to_builtins(load)
    del options["path"]
    for name in ("samples", "calibration"):
        if options[name] and Path(options[name]).exists():
            options[name] = _content(Path(options[name]))
    return {"options": options, "model": [model.format, model.sha256, msgspec.to_builtins(model.external)]}


def _content(path: Path) -> str:
    """The digest of a file, or of all files of a folder. Raises UsageError CNV-2014 for what is neither."""
    if path.is_file():
        return sha256_file(path)
    if not path.is_dir():
        raise UsageError(
            "CNV-2014",
            f"{path} is neither a file nor a folder of samples",
            hint="give a .npz by input name, a .pt holding (args, kwargs), a folder of either, or module:callable",
        )
    listed = [(item.name, sha256_file(item)) for item in sorted(path.iterdir()) if item.is_file()]
    return sha256_bytes(canonical_json(listed))


__all__ = ["Event", "convert_model", "with_graph", "with_stages"]
