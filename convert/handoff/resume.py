"""From a bundle that came back to a published artifact: take what was compiled, or compile it here; judge; publish."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from artifacts.digest import file_entries
from convert.backends import load_backend
from convert.backends.base import Missing
from convert.errors import EXPECTED, CompileFailed, ToolchainMissing, UsageError
from convert.evidence import Evidence, MeasuredOutputs
from convert.guarding import guarded
from convert.handoff.archive import Opened, open_bundle
from convert.handoff.bundle import COMPILED, LOG, MEASURED, OUT, SOC_PATTERN, Bundle, CompiledElsewhere, place_of
from convert.host import StageHost
from convert.launcher import check_launcher, parse_launcher
from convert.pipeline import RESTARTS, Run, check_names, workspace
from convert.request import Conversion, Request, StageRun, Status, TargetResult
from convert.settings import Settings
from convert.stage import CacheCorrupt, Listener, Stages
from convert.stages.compile import has_soc_places, probe_toolchain, put_soc, read_tail, soc_unknown
from convert.target_options import judged_version, part_of
from convert.target_run import TargetRun
from convert.values import (
    CompiledArtifact,
    ExportOptions,
    LoadOptions,
    ModelFile,
    Note,
    OnnxGraph,
    Plan,
    moved,
)
from op_registry.targets import find_target


class ResumeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What ``convert resume`` is asked. Empty texts: as the bundle says, or as it holds.

    ``compiled``: the compiled file, where it lies elsewhere. ``measured``: a folder of ``NNN.npz``, or one file.
    """

    place: str
    compiled: str = ""
    measured: str = ""
    soc: str = ""
    gate: dict[str, float] = {}
    metrics: tuple[str, ...] = ()
    name: str = ""
    version: str = ""
    out: str = ""
    publish: bool = True
    use_cache: bool = True


def resume_bundle(
    wanted: ResumeRequest,
    settings: Settings,
    listener: Listener = lambda event: None,
    host: StageHost | None = None,
) -> Conversion:
    """Go on with a bundle.

    Raises :class:`UsageError` where the bundle or what was given with it can't be used (CNV-2301 … CNV-2306); failures
    from there on are in the conversion, as those of ``convert_model`` are.
    """
    bare = Request(load=LoadOptions(path=wanted.place), targets=(), use_cache=wanted.use_cache)
    with workspace(bare, settings, host) as (cache, workers, scratch):
        with guarded("resume"):
            opened = open_bundle(Path(wanted.place), scratch / "bundle")
            graph = _graph(opened, scratch / "graph")
        request = _request(opened.bundle, wanted)
        check_names(request)
        check_launcher(settings.launcher)
        for attempt in range(RESTARTS):
            stages = Stages(cache, workers, use_cache=request.use_cache, listener=listener)
            run = Run(request, settings, stages, workers, scratch)
            run.model = _model(opened.bundle)
            run.ops = graph.ops
            run.shared = [
                _told(link.stage, link.digest, link.parent, graph if link.digest == graph.digest else None)
                for link in opened.bundle.chain
            ]
            try:
                return run.publish(request.name, [_Resumed(run, opened, graph, wanted).result()])
            except CacheCorrupt:
                if attempt == RESTARTS - 1:
                    raise
    raise AssertionError("unreachable")


def _graph(opened: Opened, folder: Path) -> OnnxGraph:
    """The graph, with its files under the names that a graph has; the bundle's copy is ours, so files are moved."""
    for entry in opened.bundle.graph.files:
        (folder / entry.name).parent.mkdir(parents=True, exist_ok=True)
        opened.path(place_of(entry.name)).rename(folder / entry.name)
    return moved(opened.bundle.graph, folder)


def _request(bundle: Bundle, wanted: ResumeRequest) -> Request:
    return Request(
        load=LoadOptions(path=bundle.model.name),
        targets=(bundle.target,),
        declared=bundle.declared,
        soc=wanted.soc,
        precision=bundle.precision,
        export=ExportOptions(),
        gate={**bundle.gate, **wanted.gate},
        metrics=wanted.metrics,
        argmax=bundle.argmax,
        options=bundle.options.options,
        preprocess=bundle.options.preprocess,
        name=wanted.name or bundle.name,
        version=wanted.version or bundle.version,
        out=wanted.out,
        publish=wanted.publish,
        use_cache=wanted.use_cache,
    )


def _model(bundle: Bundle) -> ModelFile:
    model = bundle.model
    return ModelFile(path=model.name, format=model.format, sha256=model.sha256, bytes=model.bytes)


def _told(stage: str, digest: str, parent: str, graph: OnnxGraph | None = None) -> StageRun:
    """A stage that ran on another machine: what it gave, and no time of ours. ``graph`` tells what was done to it."""
    run = StageRun(stage=stage, seconds=0.0, cached=True, digest=digest, parent=parent)
    return msgspec.structs.replace(run, adapted=graph.adapted, exporters=graph.exporters) if graph else run


class _Resumed:
    """The rest of one target's run."""

    def __init__(self, run: Run, opened: Opened, graph: OnnxGraph, wanted: ResumeRequest) -> None:
        self.run = run
        self.opened = opened
        self.bundle = opened.bundle
        self.graph = graph
        self.wanted = wanted
        self.target = TargetRun(run, graph, find_target(self.bundle.target), run.request.name)

    def result(self) -> TargetResult:
        """The target from the compiled file to the verdict; a failure is part of the result."""
        bundle = self.bundle
        self.target.result = msgspec.structs.replace(
            self.target.result,
            precision=bundle.precision,
            support=bundle.checked.support,
            plan=bundle.plan,
            forecast=bundle.forecast,
            notes=self._notes(),
        )
        try:
            self._go()
        except EXPECTED as error:
            status: Status = "built" if self.target.result.artifact and error.exit_code != 8 else "failed"
            self.target.result = msgspec.structs.replace(self.target.result, status=status, error=error.as_json())
        return self.target.finished()

    def _notes(self) -> tuple[Note, ...]:
        lost = [name for name in self.bundle.metrics if name not in self.wanted.metrics]
        text = (
            f"metrics are not taken from a bundle: give {' '.join(f'--metric {name}' for name in lost)} to measure them"
        )
        return (Note(level="warning", text=text),) if lost else ()

    def _go(self) -> None:
        main = self._compiled_file()
        details: dict[str, str] = {}
        if main is None:
            artifact, details = self._compile_here()
        else:
            artifact = self._taken(main)
            told = _told("compile", artifact.digest, artifact.parent)
            self.target.stages.append(msgspec.structs.replace(told, notes=artifact.notes))
            self.target.keep(artifact)
        evidence = Evidence(measured=self._measured(artifact.soc), forecast=self.bundle.forecast)
        self.target.validate(artifact, self.bundle.precision, evidence, details)

    # ------------------------------------------------------------------------------------------------- the artifact

    def _compiled_file(self) -> Path | None:
        """The compiled file: that of ``--compiled``, or what came in ``out/``."""
        if self.wanted.compiled:
            return Path(self.wanted.compiled)
        name = f"{OUT}/{self.bundle.plan.output}"
        return self.opened.path(name) if name in self.opened.brought else None

    def _taken(self, main: Path) -> CompiledArtifact:
        """What was compiled elsewhere, copied into a folder of ours. Raises CNV-2306, CNV-2307 and CNV-2310."""
        bundle, output = self.bundle, self.bundle.plan.output
        folder = self.run.work / "compiled"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        others = [] if self.wanted.compiled else [name for name in self.opened.brought if name.startswith(f"{OUT}/")]
        sources = {name.removeprefix(f"{OUT}/"): self.opened.path(name) for name in others} | {output: main}
        for name, source in sources.items():
            _copy(source, folder / name)
        entries = {entry.name: entry for entry in file_entries(folder, sources)}
        if not entries[output].bytes:
            raise _unusable(f"{main.name} is empty")
        told = self._told_by_the_script()
        plan = bundle.plan
        soc = self._soc(told.soc)
        if has_soc_places(plan):
            plan = put_soc(plan, soc)
        toolchain = {plan.needs.get("toolchain", plan.backend): told.version or "not known"}
        self.target.result = msgspec.structs.replace(self.target.result, plan=plan, toolchain=toolchain)
        return CompiledArtifact(
            parent=bundle.checked.digest,
            target=bundle.target,
            soc=soc,
            backend=plan.backend,
            precision=bundle.precision,
            plan=plan,
            toolchain=toolchain,
            notes=(*plan.notes, Note(text="compiled on another machine, from a handoff bundle"), *_unseen(plan, told)),
            files=(entries.pop(output), *(entries[name] for name in sorted(entries))),
            folder=str(folder),
        )

    def _told_by_the_script(self) -> CompiledElsewhere:
        """What ``compile.sh`` noted; nothing where there is no note, or none that can be read."""
        if COMPILED not in self.opened.brought:
            return CompiledElsewhere()
        try:
            told = msgspec.json.decode(self.opened.path(COMPILED).read_bytes(), type=CompiledElsewhere)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _unusable(f"{COMPILED} can't be read: {error}") from error
        if any(text and not SOC_PATTERN.fullmatch(text) for text in (told.soc, told.version)):
            raise _unusable(f"{COMPILED} names no SoC or no version")
        return told

    def _soc(self, told: str) -> str:
        """The exact SoC of what was compiled: as the plan, the script, or ``--soc`` says."""
        bundle = self.bundle
        is_open = has_soc_places(bundle.plan)
        planned = "" if is_open else bundle.plan.needs.get("soc", "") or bundle.options.soc
        soc = planned or told or self.wanted.soc
        if not soc and is_open:
            raise soc_unknown(bundle.target)
        differing = {text for text in (planned, told, self.wanted.soc) if text}
        if len(differing) > 1 or (soc and is_open and not part_of(find_target(bundle.target), soc)):
            raise UsageError(
                "CNV-2307",
                f"{', '.join(sorted(differing))}: what was compiled and what is said of it are not one part of"
                f" {bundle.target}",
                hint="leave --soc out where compile.sh noted the part itself, or compile again for the right one",
            )
        return soc

    def _compile_here(self) -> tuple[CompiledArtifact, dict[str, str]]:
        """Compile on this machine, by a plan of its own: nothing of the bundle is executed."""
        settings, target = self.run.settings, self.target.target
        options = msgspec.structs.replace(
            self.bundle.options,
            soc=part_of(target, self.wanted.soc) or self.bundle.options.soc or part_of(target, settings.soc),
            timeout=settings.timeout,
            launcher=parse_launcher(settings.launcher),
            compilers=settings.compilers,
            toolchain_version="",
        )
        backend, found = probe_toolchain(options, os.environ)
        if isinstance(found, Missing):
            raise self._nothing_compiled(found)
        return self.target.compile_here(backend, found, options, judged_version(target, "", found)), found.details

    def _nothing_compiled(self, missing: Missing) -> CompileFailed | ToolchainMissing:
        """Why there is nothing to go on with: the log that came back says it, or it was never compiled."""
        if LOG in self.opened.brought:
            log = read_tail(self.opened.path(LOG))
            diagnosis = load_backend(self.bundle.plan.backend).diagnose(log, self.bundle.plan)
            return CompileFailed(
                diagnosis.code, f"compiled elsewhere, and failed: {diagnosis.cause}", hint=diagnosis.hint
            )
        return ToolchainMissing(
            "CNV-6003",
            f"the bundle has no {OUT}/{self.bundle.plan.output}, and {missing.name} is not on this machine to make it",
            hint="run `bash compile.sh` in the bundle where the toolchain is, and resume the folder or a tar of it "
            "(or give the compiled file with --compiled)",
        )

    # ------------------------------------------------------------------------------------------------ what it gave

    def _measured(self, soc: str) -> MeasuredOutputs | None:
        """Outputs that came with the bundle or with ``--measured``; None where there are none at all."""
        folder = self.run.work / "brought"
        shutil.rmtree(folder, ignore_errors=True)
        names = []
        for name, source in self._measured_sources().items():
            _copy(source, folder / name)
            names.append(name)
        if not names:
            return None
        device = f"{soc or self.bundle.target}, measured outside"
        return MeasuredOutputs(
            parent=self.graph.digest, device=device, files=file_entries(folder, names), folder=str(folder)
        )

    def _measured_sources(self) -> dict[str, Path]:
        expected = [f"{MEASURED}/{number:03d}.npz" for number in range(self.graph.sample_count)]
        if not self.wanted.measured:
            return {name: self.opened.path(name) for name in expected if name in self.opened.brought}
        place = Path(self.wanted.measured)
        if place.is_dir():
            found = {name: place / Path(name).name for name in expected if (place / Path(name).name).is_file()}
        else:
            found = {expected[0]: place} if expected else {}
        if not found:
            raise UsageError(
                "CNV-2305",
                f"the measured outputs can't be used: {place} has none of {', '.join(expected[:3])} …",
                hint="give the folder with 000.npz, 001.npz, …: one for each sample",
            )
        return found


def _copy(source: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copyfile(source, destination)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise _unusable(f"{source} can't be read: {error.strerror}") from error


def _unusable(why: str) -> UsageError:
    return UsageError(
        "CNV-2306",
        f"the compiled file can't be used: {why}",
        hint="compile.log beside it says how the compiler ended; give the right file with --compiled",
    )


def _unseen(plan: Plan, told: CompiledElsewhere) -> tuple[Note, ...]:
    """A warning where the toolkit compiles for the card of its machine, and nothing says that it was the target's."""
    card = plan.needs.get("card", "")
    if not card or told.card == "seen":
        return ()
    text = f"no card was seen where it was compiled: {plan.backend} compiles for the card of its machine, and whether "
    return (Note(level="warning", text=f"{text}that was {card} is not known; measure it there before you rely on it"),)
