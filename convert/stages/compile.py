"""compile: ``CheckedGraph ─▶ CompiledArtifact``, by the backend of the target.

The guards that no backend may forget stand here: the working folder, the time limit, the log, and that the output
exists, is new and is not empty.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path, PurePosixPath

import msgspec

from artifacts.digest import FileEntry, file_entries
from artifacts.runner import Finished, one_of, run_process
from artifacts.scratch import machine_tmp
from convert.backends import load_backend
from convert.backends.asking import launcher_fault
from convert.backends.base import LOG, MODEL_IN, OUT, SOC, Backend, Compiled, Diagnosis, Missing, Runner, Toolchain
from convert.backends.kept import plan_notes
from convert.diagnosis.places import place_of
from convert.errors import CompileFailed, ResourceLimit, ToolchainMissing, UsageError
from convert.launcher import launched
from convert.links import link_or_copy
from convert.values import CheckedGraph, CompiledArtifact, CompileOptions, Note, OnnxGraph, Plan
from op_registry.learn import can_be_learned
from op_registry.targets import find_target, members_of

LOG_TAIL = 6 << 20
"""How much of a log's end is read for the diagnosis: all that the process runner keeps of one."""
PLACES = machine_tmp() / f"model-convert-{os.getuid()}-compilers"
"""Locks of the places for compilers, one folder for this user on this machine."""
HAZARDOUS = ("fp16", "bf16", "mixed")


def compile_graph(
    graph: OnnxGraph,
    checked: CheckedGraph,
    options: CompileOptions,
    folder: Path,
) -> CompiledArtifact:
    """Compile a graph for a target; the artifact lies in ``folder``, the log in ``folder/compile.log``.

    Raises:

    - :class:`UsageError` (CNV-2071 … CNV-2075) for options that the backend or the target does not take, CNV-2310 for
      a family whose exact SoC nobody told;
    - :class:`ToolchainMissing` (CNV-6001) where the toolchain is not on this machine;
    - :class:`CompileFailed`: CNV-7001 ONNX Runtime refused the graph, CNV-7002 the compiler failed (or a code of the
      backend's own), CNV-7003 it left no usable output, CNV-7004 ``checked`` is of another graph;
    - :class:`ResourceLimit` (CNV-1001) where the time limit of ``options`` passed.
    """
    if checked.parent != graph.digest:
        raise CompileFailed(
            "CNV-7004",
            "the graph to compile is not the one that was checked",
            hint="check the graph again and compile that one; this is how a stage's result is kept from a mix-up",
        )
    backend, toolchain = find_toolchain(options, os.environ)
    plan = with_soc(backend.plan(graph, find_target(options.target), options, toolchain), options, toolchain)
    prepare_folder(graph, plan, folder)
    compiled = backend.compile(
        plan, graph, folder, runner_for(options.timeout, folder, options.launcher, options.compilers)
    )
    told = ("--toolchain-version", toolchain.version, "--target", options.target)
    _check_outcome(backend, plan, compiled, graph, folder, told=told)
    names = _collected(plan, compiled, folder)
    kept = plan_notes(options, plan.argv, compiled.notes, toolchain.name)
    return CompiledArtifact(
        parent=checked.digest,
        target=options.target,
        soc=soc_of(plan, options, toolchain),
        backend=backend.name,
        precision=options.precision,
        plan=plan,
        toolchain={toolchain.name: toolchain.version},
        notes=(*plan.notes, *compiled.notes, *kept, *_hazards(graph, options, folder)),
        files=_entries(graph, folder, names),
        folder=str(folder),
    )


def probe_toolchain(options: CompileOptions, environment: Mapping[str, str]) -> tuple[Backend, Toolchain | Missing]:
    """The backend of a request, and its toolchain or what is missing.

    Where a launcher is set, the toolchain is on its other side. A backend that can't ask there only says what this
    machine lacks, and then it is taken on trust, as long as the launcher can start anything at all.
    """
    backend = load_backend(options.backend)
    told = {"CONVERT_SOC": options.soc, "CONVERT_LAUNCHER": shlex.join(options.launcher)}
    seen = {**environment, **{name: text for name, text in told.items() if text}}
    found = backend.probe(find_target(options.target), seen)
    if isinstance(found, Missing) and options.launcher and (fault := launcher_fault(options.launcher)):
        words = shlex.join(options.launcher)
        hint = "run it by hand with `echo hello` behind it: it must run that where the toolkit is, and print it"
        found = Missing(name=found.name, reason=f"the launcher `{words}` does not work: {fault}", hint=hint, asked=True)
    if isinstance(found, Missing) and options.launcher and not found.asked:
        assumed = backend.assumed()
        found = Toolchain(
            name=assumed.name,
            version=options.toolchain_version or assumed.version,
            details={**assumed.details, "launcher": shlex.join(options.launcher)},
        )
    return backend, found


def find_toolchain(options: CompileOptions, environment: Mapping[str, str]) -> tuple[Backend, Toolchain]:
    """The backend of a request and its toolchain on this machine, or behind the launcher.

    Raises :class:`ToolchainMissing` CNV-6001 where it is not here.
    """
    backend, found = probe_toolchain(options, environment)
    if isinstance(found, Missing):
        raise ToolchainMissing("CNV-6001", f"{found.name} is not on this machine: {found.reason}", hint=found.hint)
    return backend, found


def soc_of(plan: Plan, options: CompileOptions, toolchain: Toolchain) -> str:
    """The exact SoC that a plan is for: as the plan says, as the request says, or the card found; empty: not told."""
    told = plan.needs.get("soc", "") or options.soc or toolchain.details.get("soc", "")
    return "" if told == SOC else told


def with_soc(plan: Plan, options: CompileOptions, toolchain: Toolchain) -> Plan:
    """A plan for a toolchain that is here, with the SoC at its places. Raises CNV-2310 where it is unknown."""
    if not has_soc_places(plan):
        return plan
    soc = soc_of(plan, options, toolchain)
    if not soc:
        raise soc_unknown(options.target)
    return put_soc(plan, soc)


def soc_unknown(target: str) -> UsageError:
    """The error for a family whose exact SoC nobody told."""
    members = ", ".join(member.name for member in members_of(find_target(target)))
    return UsageError(
        "CNV-2310",
        f"{target} is a family, and which of its parts the card is could not be found out",
        hint=f"say it with --soc, or as the setting `soc`: {members}",
    )


def has_soc_places(plan: Plan) -> bool:
    """Whether a plan leaves the SoC open."""
    return any(SOC in text for text in (*plan.argv, *plan.files.values(), *plan.environment.values()))


def put_soc(plan: Plan, soc: str) -> Plan:
    """The plan with the SoC at its places."""
    return msgspec.structs.replace(
        plan,
        argv=tuple(word.replace(SOC, soc) for word in plan.argv),
        environment={name: text.replace(SOC, soc) for name, text in plan.environment.items()},
        files={name: text.replace(SOC, soc) for name, text in plan.files.items()},
        needs={**plan.needs, "soc": soc},
    )


def prepare_folder(graph: OnnxGraph, plan: Plan, folder: Path) -> None:
    """Lay out the working folder of a plan: the graph linked, configuration files written, ``out/`` empty."""
    shutil.rmtree(folder / OUT, ignore_errors=True)
    (folder / OUT).mkdir(parents=True)
    for entry in graph.files:
        if "/" not in entry.name:
            link_or_copy(graph.path(entry.name), (folder / MODEL_IN).with_name(entry.name))
    for name, content in plan.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def runner_for(timeout: float, folder: Path, launcher: Sequence[str] = (), compilers: int = 0) -> Runner:
    """The process runner with folder, time limit, launcher and the machine's limit of compilers set."""

    def run(argv: Sequence[str], *, environment: Mapping[str, str] | None = None, log: str = LOG) -> Finished:
        with one_of(compilers, PLACES) if compilers else nullcontext() as place:
            return run_process(
                launched(launcher, argv, environment or {}, folder),
                folder=folder,
                log=folder / log,
                timeout=timeout,
                environment=environment,
                hold=() if place is None else (place,),
            )

    return run


def _check_outcome(
    backend: Backend, plan: Plan, compiled: Compiled, graph: OnnxGraph, folder: Path, *, told: Sequence[str]
) -> None:
    """Raise what ended a compilation; ``told`` is what `convert ops learn` must be told beside the log."""
    finished = compiled.finished
    if finished is not None and finished.timed_out:
        raise ResourceLimit(
            "CNV-1001",
            f"{plan.argv[0]} took longer than its limit and was stopped after {finished.seconds:.0f} s",
            hint="raise --timeout; finished stages are kept, so the next run goes on from here",
        )
    if compiled.failure:
        diagnosis = backend.diagnose(read_tail(folder / LOG) or compiled.failure, plan)
        cause = diagnosis.cause if diagnosis.known else f"{compiled.failure}: {diagnosis.cause}".rstrip(": ")
        place = place_of(diagnosis, graph, folder)
        small = f"; {place.cut} holds just that, with inputs {place.cut_inputs}" if place.cut else ""
        hint = f"{diagnosis.hint}{_lesson(diagnosis, folder / LOG, told)}{small}"
        raise CompileFailed(diagnosis.code, f"{cause}{place.words()}", hint=hint)


def _lesson(diagnosis: Diagnosis, log: Path, told: Sequence[str]) -> str:
    """The command that makes `check` know what this log says, where it can be learned from it."""
    if not diagnosis.ops or not log.is_file() or not can_be_learned(log):
        return ""
    return f"; `convert ops learn {shlex.join([str(log), *told])}` makes `convert check` know it"


def _collected(plan: Plan, compiled: Compiled, folder: Path) -> list[str]:
    """Move what the compiler made from ``out/`` into the folder itself; names, the artifact's own first."""
    names = list(dict.fromkeys((plan.output, *compiled.files)))
    for name in names:
        path = folder / OUT / name
        inside = not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts
        if not inside or path.is_symlink() or not path.is_file() or (name == plan.output and not path.stat().st_size):
            state = "is empty" if inside and path.is_file() and not path.is_symlink() else "is missing"
            raise CompileFailed(
                "CNV-7003",
                f"{plan.argv[0]} said that it succeeded, and its output {name} {state}",
                hint=f"read {folder / LOG}; a compiler that runs elsewhere must write into the same folder",
            )
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / OUT / name).replace(folder / name)
    shutil.rmtree(folder / OUT)
    shutil.rmtree((folder / MODEL_IN).parent)
    return names


def _entries(graph: OnnxGraph, folder: Path, names: Sequence[str]) -> tuple[FileEntry, ...]:
    """Digests of the artifact's files, its own first. A file that is linked from the graph keeps the digest it has."""
    known = {entry.name: entry for entry in graph.files if (folder / entry.name).is_file()}
    linked = {name for name in known if graph.path(name).samefile(folder / name)}
    entries = {entry.name: entry for entry in file_entries(folder, [name for name in names if name not in linked])}
    return tuple(entries.get(name) or known[name] for name in names)


def read_tail(log: Path) -> str:
    """The end of a log, at most 6 MiB of it; empty where there is none."""
    if not log.is_file():
        return ""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - LOG_TAIL))
        return stream.read().decode("utf-8", "replace")


def _hazards(graph: OnnxGraph, options: CompileOptions, folder: Path) -> tuple[Note, ...]:
    if options.precision not in HAZARDOUS:
        return ()
    from convert.precision.hazards import hazards

    return hazards(graph, options.precision, folder)
