"""Running a stage: its key, the cache, a worker, and what it cost. Each stage is one line of :data:`STAGES`."""

from __future__ import annotations

import functools
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from artifacts.digest import FileEntry, canonical_json, file_entry, sha256_bytes
from convert.cache import Cache, Record, key_of
from convert.errors import (
    CompileFailed,
    ConvertError,
    ExportError,
    GateFailed,
    LoadError,
    ResourceLimit,
    UnsupportedOps,
)
from convert.failures import keep_failed
from convert.host import Answer, Limits, StageBug, StageHost, Worker, WorkerDied
from convert.installed import installed, normalized
from convert.request import StageRun
from convert.values import (
    CheckedGraph,
    CompiledArtifact,
    Forecast,
    LoadedModel,
    Located,
    OnnxGraph,
    ValidationReport,
    Value,
    moved,
)

V = TypeVar("V", bound=Value)
TORCH = ("torch", "onnx", "onnxscript", "onnx-ir", "onnxruntime", "numpy")
ONNX = ("onnx", "onnxruntime", "numpy")
CODE = (".py", ".toml", ".csv", ".json")
"""Suffixes of the program's own files that a result can depend on."""


class StageDef(msgspec.Struct, frozen=True, kw_only=True):
    """One stage: its function ``module:callable``, and the distributions whose versions its result depends on."""

    name: str
    function: str
    kind: type[Value]
    tools: tuple[str, ...]


STAGES = {
    stage.name: stage
    for stage in (
        StageDef(name="load", function="convert.stages.load:load_model", kind=LoadedModel, tools=TORCH),
        StageDef(name="export", function="convert.stages.export:export_graph", kind=OnnxGraph, tools=TORCH),
        StageDef(
            name="simplify", function="convert.stages.simplify:simplify_graph", kind=OnnxGraph, tools=("onnxsim", *ONNX)
        ),
        StageDef(
            name="adapt", function="convert.stages.adapt:adapt_graph", kind=OnnxGraph, tools=("onnxscript", *ONNX)
        ),
        StageDef(name="images", function="convert.stages.images:image_samples", kind=OnnxGraph, tools=ONNX),
        StageDef(name="check", function="convert.stages.check:check_graph", kind=CheckedGraph, tools=ONNX),
        StageDef(name="precheck", function="convert.stages.precheck:precheck_graph", kind=CheckedGraph, tools=ONNX),
        StageDef(name="forecast", function="convert.stages.forecast:forecast_graph", kind=Forecast, tools=ONNX),
        StageDef(name="quantize", function="convert.stages.quantize:quantize_graph", kind=OnnxGraph, tools=ONNX),
        StageDef(name="compile", function="convert.stages.compile:compile_graph", kind=CompiledArtifact, tools=ONNX),
        StageDef(name="validate", function="convert.stages.validate:validate_with", kind=ValidationReport, tools=ONNX),
        StageDef(name="locate", function="convert.stages.locate:locate_departure", kind=Located, tools=ONNX),
    )
}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Progress: a stage began, or ended as ``run`` says."""

    target: str
    stage: str
    run: StageRun | None = None


Listener = Callable[[Event], None]


class CacheCorrupt(Exception):
    """A cached value's files are not what they were; its entry is gone, and the conversion starts over."""


class Stages:
    """Runs stages for one conversion; safe for several threads."""

    def __init__(self, cache: Cache, host: StageHost, *, use_cache: bool, listener: Listener) -> None:
        self._cache = cache
        self._host = host
        self._use_cache = use_cache
        self._listener = listener
        self._trusted: set[str] = set()

    def run(
        self,
        name: str,
        parents: Sequence[Value],
        args: Sequence[Any],
        *,
        key_options: Any,
        limits: Limits,
        target: str = "",
        worker: Callable[[], Worker] | None = None,
        extra_tools: dict[str, str] | None = None,
        failed: Path | None = None,
    ) -> tuple[Any, StageRun]:
        """One stage's value, from the cache or from a worker, and how it went.

        ``args`` are what the stage function gets before its folder. ``key_options`` is what of them counts for the
        key. ``worker`` gives a worker to share with other stages; without it the stage gets one of its own. ``failed``
        is where a failed compilation's files are kept.
        """
        stage = STAGES[name]
        self._listener(Event(target=target, stage=name))
        begun = time.monotonic()
        digests = tuple(parent.digest for parent in parents)
        key = key_of(name, 1, digests, key_options, {**tool_versions(stage.tools), **(extra_tools or {})})
        found = self._cache.find(key, stage.kind) if self._use_cache else None
        if found is not None:
            value, record = found
            run = _run_of(name, value, time.monotonic() - begun, record.cpu_seconds, record.peak_rss, cached=True)
        else:
            self._verify(parents)
            try:
                value, answer = self._fresh(stage, key, args, limits=limits, worker=worker, failed=failed)
            except (ConvertError, StageBug) as error:
                self._still_there(parents, error)
                raise
            run = _run_of(name, value, answer.seconds, answer.cpu_seconds, answer.peak_rss, cached=False)
        self._listener(Event(target=target, stage=name, run=run))
        return value, run

    def _verify(self, parents: Sequence[Value]) -> None:
        """Hash the parents' files again, once, before anything is built on them."""
        for parent in parents:
            if parent.folder in self._trusted or not parent.folder:
                continue
            if not self._cache.sound(parent):
                self._cache.drop_value(parent)
                raise CacheCorrupt(parent.folder)
            self._trusted.add(parent.folder)

    def _still_there(self, parents: Sequence[Value], error: Exception) -> None:
        """A stage whose parents' entries were pruned while it ran says nothing about the model: start over."""
        for parent in parents:
            if parent.folder and not Path(parent.folder).is_dir():
                raise CacheCorrupt(parent.folder) from error

    def tell(self, event: Event) -> None:
        """Pass on the progress of something that is no stage of its own."""
        self._listener(event)

    def verify(self, value: Value) -> None:
        """Hash a value's files again before something outside the stages relies on them."""
        self._verify([value])

    def _fresh(
        self,
        stage: StageDef,
        key: str,
        args: Sequence[Any],
        *,
        limits: Limits,
        worker: Callable[[], Worker] | None,
        failed: Path | None,
    ) -> tuple[Any, Answer]:
        folder = self._cache.scratch(stage.name)
        try:
            if worker is not None:
                answer = _call(worker(), stage, args, folder, limits)
            else:
                with self._host.worker() as own:
                    answer = _call(own, stage, args, folder, limits)
            value = msgspec.json.decode(answer.value, type=stage.kind)
            sources = tuple(_source(path) for path in answer.sources)
            if isinstance(value, LoadedModel) and sources:
                value = msgspec.structs.replace(value, code=sha256_bytes(canonical_json(sources)))
            record = Record(
                stage=stage.name,
                value=msgspec.Raw(b"null"),
                seconds=answer.seconds,
                cpu_seconds=answer.cpu_seconds,
                peak_rss=answer.peak_rss,
                sources=sources,
            )
            value = self._cache.commit(key, folder, moved(value, folder), record)
        except ConvertError as error:
            if failed is not None:
                keep_failed(folder, failed, error)
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._trusted.add(value.folder)
        return value, answer


def _call(worker: Worker, stage: StageDef, args: Sequence[Any], folder: Path, limits: Limits) -> Answer:
    return worker.call(stage.function, *args, str(folder), limits=replace(limits, folder=str(folder)))


def _source(path: str) -> FileEntry:
    entry = file_entry(Path(path).parent, Path(path).name)
    return msgspec.structs.replace(entry, name=path)


def _run_of(name: str, value: Any, seconds: float, cpu: float, peak: int, *, cached: bool) -> StageRun:
    return StageRun(
        stage=name,
        seconds=seconds,
        cached=cached,
        digest=value.digest,
        parent=value.parent,
        cpu_seconds=cpu,
        peak_rss=peak,
        notes=getattr(value, "notes", ()),
        adapted=getattr(value, "adapted", ()) if name == "adapt" else (),
        exporters=getattr(value, "exporters", ()) if name == "export" else (),
    )


CRASHED: dict[str, tuple[type[ConvertError], str]] = {
    "load": (LoadError, "CNV-3090"),
    "export": (ExportError, "CNV-4090"),
    "simplify": (ExportError, "CNV-4090"),
    "adapt": (ExportError, "CNV-4090"),
    "images": (ExportError, "CNV-4090"),
    "check": (UnsupportedOps, "CNV-5090"),
    "precheck": (UnsupportedOps, "CNV-5090"),
    "forecast": (GateFailed, "CNV-8103"),
    "quantize": (ExportError, "CNV-4090"),
    "compile": (CompileFailed, "CNV-7090"),
    "validate": (GateFailed, "CNV-8090"),
    "locate": (GateFailed, "CNV-8090"),
}


def died(stage: str, death: WorkerDied) -> ConvertError:
    """The error for a stage whose worker was ended by a native fault, or killed from outside."""
    if death.cause == "SIGKILL":
        return ResourceLimit(
            "CNV-1006",
            f"{stage} was killed from outside (SIGKILL), as the system does when memory runs out",
            hint="use a machine with more memory, or run fewer conversions at once; what was finished is kept",
        )
    if "bad_alloc" in death.log_tail[-1000:]:
        return ResourceLimit(
            "CNV-1002",
            f"{stage} asked for more memory than it may have, and ended its process",
            hint="raise the setting `memory` (CONVERT_MEMORY), or use a machine with more memory",
        )
    kind, code = CRASHED[stage]
    told = death.log_tail.strip().splitlines()
    return kind(
        code,
        f"{stage} ended its process: {death.cause}" + (f" ({told[-1][:200]})" if told else ""),
        hint="native code crashed; nothing else was harmed, and what was finished is kept",
    )


@functools.cache
def tool_versions(names: tuple[str, ...]) -> dict[str, str]:
    """Versions of distributions, of Python, and the digest of this program's own code."""
    versions = {"python": platform.python_version(), "machine": platform.machine(), "model-convert": code_digest()}
    found = installed()
    return {**versions, **{name: found.get(normalized(name), "missing") for name in names}}


def library_versions(names: tuple[str, ...]) -> dict[str, str]:
    """Versions that a manifest names: of this program, of Python and of distributions."""
    found = installed()
    versions = {name: found.get(normalized(name), "missing") for name in ("model-convert", *names)}
    return {"python": platform.python_version(), **versions}


@functools.cache
def code_digest() -> str:
    """The digest of the program's own source and data: what a stage's result depends on beside its tools."""
    root = Path(__file__).resolve().parent
    files = [path for package in (root, root.parent / "op_registry") for path in sorted(package.rglob("*"))]
    parts = [
        f"{path.relative_to(root.parent)}\0{sha256_bytes(path.read_bytes())}"
        for path in files
        if path.suffix in CODE and path.is_file()
    ]
    return sha256_bytes("\n".join(parts).encode())


__all__ = ["STAGES", "CacheCorrupt", "Event", "Listener", "StageBug", "Stages", "died", "tool_versions"]
