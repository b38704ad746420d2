"""``artifact.json`` and ``evidence/``: what a conversion leaves so that its artifact can be run again by itself.

Of the samples and their reference outputs the first few are kept, since they may be large.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from artifacts.digest import canonical_json
from artifacts.names import check_file_name
from artifacts.strictjson import parse_as
from convert.errors import UsageError
from convert.validation_file import replace_file
from convert.values import CompiledArtifact, OnnxGraph, moved

NAME = "artifact.json"
EVIDENCE = "evidence"
SCHEMA = 1
LIMIT = 16 << 20
MOST_SAMPLES = 8
MOST_BYTES = 64 << 20


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``artifact.json``. The graph lists the samples that are kept."""

    schema: int = SCHEMA
    artifact: CompiledArtifact
    graph: OnnxGraph


def write_record(artifact: CompiledArtifact, graph: OnnxGraph, folder: Path) -> Path:
    """Write the record of an artifact into its folder, and copy the samples that are kept."""
    kept = _kept(graph)
    evidence = folder / EVIDENCE
    shutil.rmtree(evidence, ignore_errors=True)
    for entry in kept.files:
        (evidence / entry.name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(graph.path(entry.name), evidence / entry.name)
    record = Record(artifact=msgspec.structs.replace(artifact, folder=""), graph=kept)
    return replace_file(folder / NAME, canonical_json(record))


def _kept(graph: OnnxGraph) -> OnnxGraph:
    """The graph's facts with the first samples that fit, and their references; without its weights."""
    sizes = {entry.name: entry for entry in graph.files}
    files, used = [], 0
    for number in range(min(graph.sample_count, MOST_SAMPLES)):
        pair = [sizes.get(f"{kind}/{number:03d}.npz") for kind in ("samples", "reference")]
        found = [entry for entry in pair if entry is not None]
        used += sum(entry.bytes for entry in found)
        if len(found) < len(pair) or (used > MOST_BYTES and files):
            break
        files += found
    return msgspec.structs.replace(
        graph, files=tuple(files), sample_count=len(files) // 2, calibration_count=0, folder=""
    )


def read_record(folder: Path) -> Record:
    """The record of an artifact's folder, paths put in place.

    Raises :class:`UsageError` CNV-2281 where there is none, or it isn't one.
    """
    path = folder / NAME
    if not path.is_file() or path.stat().st_size > LIMIT:
        raise UsageError(
            "CNV-2281",
            f"{folder} holds no {NAME}, so nothing says how its artifact is run",
            hint="give the folder that `convert` wrote, OUT/NAME/TARGET; an older one is written anew by converting again",
        )
    record = parse_as(Record, path.read_bytes(), str(path), limit=LIMIT)
    for entry in record.artifact.files:
        check_file_name(entry.name)
    return Record(
        artifact=moved(record.artifact, folder.resolve()),
        graph=moved(_checked(record.graph, path), (folder / EVIDENCE).resolve()),
    )


def _checked(graph: OnnxGraph, path: Path) -> OnnxGraph:
    """The graph, whose files may be samples and references only: nothing else is read by a name from the file."""
    numbers = range(min(graph.sample_count, MOST_SAMPLES))
    wanted = {f"{kind}/{number:03d}.npz" for kind in ("samples", "reference") for number in numbers}
    if {entry.name for entry in graph.files} != wanted:
        raise UsageError("CNV-2281", f"{path} is damaged: its samples are not whole", hint="convert again")
    return graph
