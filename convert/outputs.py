"""What a conversion leaves in ``OUT/NAME/TARGET/``: the artifact, ``validation.json``, ``support.json``, the report."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from artifacts.digest import FileEntry, canonical_json, sha256_file
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
        _place(artifact.path(entry.name), folder / entry.name, entry)
    return folder / artifact.files[0].name


def _place(source: Path, destination: Path, entry: FileEntry) -> None:
    if destination.is_file() and destination.stat().st_size == entry.bytes and sha256_file(destination) == entry.sha256:
        return
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = destination.with_name(f".{destination.name}.partial")
    try:
        shutil.copyfile(source, partial)
        partial.replace(destination)
    finally:
        partial.unlink(missing_ok=True)


def write_validation_files(result: TargetResult, report: ValidationReport, folder: Path) -> None:
    """Write ``validation.json``, ``support.json`` and the picture data of the report."""
    assert result.verdict is not None
    stored = StoredValidation(precision=result.judged_as, report=report, verdict=result.verdict)  # type: ignore[arg-type]
    write_validation(folder, stored)
    replace_file(folder / "support.json", canonical_json(result.support))
    shutil.copyfile(report.path(PICTURES), folder / PICTURES)


def write_report(conversion: Conversion, result: TargetResult, ops: Mapping[str, int]) -> Path:
    """Write ``report.html`` of one target; ``ops`` counts the operators of the graph that was compiled."""
    data = report_data(conversion, [result], ops={result.target: ops}, finished=time.strftime("%Y-%m-%d %H:%M %Z"))
    path = Path(result.folder) / REPORT
    return replace_file(path, render_report(data).encode())
