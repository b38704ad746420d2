"""compile: ``CheckedGraph ─▶ CompiledArtifact``, by the backend of the target.

The guards that no backend may forget stand here: the working folder, the time limit, the log, and that the output
exists, is new and is not empty.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path, PurePosixPath

from artifacts.digest import FileEntry, file_entries
from artifacts.runner import Finished, one_of, run_process
from convert.backends import load_backend
from convert.backends.base import LOG, MODEL_IN, OUT, Backend, Compiled, Missing, Runner, Toolchain
from convert.errors import CompileFailed, ResourceLimit, ToolchainMissing
from convert.links import link_or_copy
from convert.values import CheckedGraph, CompiledArtifact, CompileOptions, Note, OnnxGraph, Plan
from op_registry.targets import find_target

LOG_TAIL = 4 << 20
"""How much of a log's end is read for the diagnosis."""
PLACES = Path(tempfile.gettempdir()) / f"model-convert-{os.getuid()}-compilers"
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

    - :class:`UsageError` (CNV-2071 … CNV-2075) for options that the backend or the target does not take;
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
    plan = backend.plan(graph, find_target(options.target), options, toolchain)
    prepare_folder(graph, plan, folder)
    compiled = backend.compile(
        plan, graph, folder, runner_for(options.timeout, folder, options.launcher, options.compilers)
    )
    _check_outcome(backend, plan, compiled, folder)
    names = _collected(plan, compiled, folder)
    return CompiledArtifact(
        parent=checked.digest,
        target=options.target,
        soc=options.soc,
        backend=backend.name,
        precision=options.precision,
        plan=plan,
        toolchain={toolchain.name: toolchain.version},
        notes=(*plan.notes, *compiled.notes, *_hazards(graph, options, folder)),
        files=_entries(graph, folder, names),
        folder=str(folder),
    )


def find_toolchain(options: CompileOptions, environment: Mapping[str, str]) -> tuple[Backend, Toolchain]:
    """The backend of a request and its toolchain on this machine.

    Raises :class:`ToolchainMissing` CNV-6001 where it is not here.
    """
    backend = load_backend(options.backend)
    found = backend.probe(find_target(options.target), environment)
    if isinstance(found, Missing):
        raise ToolchainMissing("CNV-6001", f"{found.name} is not on this machine: {found.reason}", hint=found.hint)
    return backend, found


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
                argv,
                folder=folder,
                log=folder / log,
                timeout=timeout,
                environment=environment,
                launcher=launcher,
                hold=() if place is None else (place,),
            )

    return run


def _check_outcome(backend: Backend, plan: Plan, compiled: Compiled, folder: Path) -> None:
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
        nodes = f" (nodes: {', '.join(diagnosis.nodes)})" if diagnosis.nodes else ""
        raise CompileFailed(diagnosis.code, f"{cause}{nodes}", hint=diagnosis.hint)


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
    """The end of a log, at most 4 MiB of it; empty where there is none."""
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
