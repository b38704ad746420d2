"""What a conversion leaves in ``OUT/NAME/TARGET/``: the artifact, ``validation.json``, ``support.json``, the report."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from artifacts.digest import canonical_json, sha256_bytes
from convert.report.data import report_data
from convert.report.html import render_report
from convert.request import Conversion, Request, TargetResult
from convert.settings import Settings
from convert.validation_file import StoredValidation, replace_file, write_validation
from convert.values import CompiledArtifact, ValidationReport

PICTURES = "pictures.json"
REPORT = "report.html"


def target_folder(request: Request, settings: Settings, name: str, target: str) -> Path:
    """Where the files of one target go."""
    folder = Path(request.out or settings.out) / name / target
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def write_artifact(artifact: CompiledArtifact, folder: Path) -> Path:
    """Copy the artifact's files into a folder; gives the main one. A file that is already right stays.

    Copied, not linked: whoever edits a file in the folder must not change the cache or the registry.
    """
    for entry in artifact.files:
        _place(artifact.path(entry.name), folder / entry.name)
    return folder / artifact.files[0].name


def _place(source: Path, destination: Path) -> None:
    if _is_copy(source, destination):
        return
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = destination.with_name(f".{destination.name}.partial")
    try:
        # With the times of the source: a copy that nobody touched since is known by them.
        shutil.copyfile(source, partial)
        shutil.copystat(source, partial)
        partial.replace(destination)
    finally:
        partial.unlink(missing_ok=True)


def _is_copy(source: Path, destination: Path) -> bool:
    if not destination.is_file():
        return False
    ours, theirs = source.stat(), destination.stat()
    return (ours.st_size, ours.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns)


def write_validation_files(result: TargetResult, report: ValidationReport, folder: Path) -> None:
    """Write ``validation.json``, ``support.json`` and the picture data of the report."""
    assert result.verdict is not None
    bare = msgspec.structs.replace(report, folder="")  # where it lies on this machine is nobody's business
    stored = StoredValidation(precision=result.judged_as, report=bare, verdict=result.verdict)  # type: ignore[arg-type]
    write_validation(folder, stored)
    replace_file(folder / "support.json", canonical_json(result.support))
    shutil.copyfile(report.path(PICTURES), folder / PICTURES)


def write_report(conversion: Conversion, result: TargetResult, ops: Mapping[str, int]) -> Path:
    """Write ``report.html`` of one target; ``ops`` counts the operators of the graph that was compiled.

    Where every stage came from the cache, the report of the run that made them says more than one of a run that did
    nothing, and stays as long as it says the same.
    """
    path = Path(result.folder) / REPORT
    mark = _mark(conversion, result)
    if all(run.cached for run in result.stages) and _ends_with(path, mark):
        return path
    data = report_data(conversion, [result], ops={result.target: ops}, finished=time.strftime("%Y-%m-%d %H:%M %Z"))
    return replace_file(path, render_report(data).encode() + mark)


def _mark(conversion: Conversion, result: TargetResult) -> bytes:
    """An HTML comment with the digest of everything that a report says but the times."""
    said = [
        conversion.name,
        conversion.model,
        conversion.versions,
        result.status,
        [run.digest for run in result.stages],
        result.artifact,
        result.verdict,
        result.error,
    ]
    return f"\n<!-- {sha256_bytes(canonical_json(said))} -->\n".encode()


def _ends_with(path: Path, mark: bytes) -> bool:
    try:
        with path.open("rb") as stream:
            stream.seek(-len(mark), os.SEEK_END)
            return stream.read() == mark
    except OSError:
        return False
