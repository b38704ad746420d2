"""``validation.json``: a stored report with its verdict, written by ``validate`` and judged again by ``convert gate``.

The file comes from wherever the user got it, so it is read strictly: bounded size, checked types, known schema.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from artifacts.digest import canonical_json, read_start
from convert.errors import UsageError
from convert.metrics import OutputMetrics
from convert.values import GateVerdict, Precision, RanOn, ValidationReport

NAME = "validation.json"
SCHEMA = 1
LIMIT = 64 << 20
"""No report of ours comes near this many bytes."""


class StoredValidation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of ``validation.json``."""

    schema: int = SCHEMA
    precision: Precision
    report: ValidationReport
    verdict: GateVerdict


class _ManifestValidation(msgspec.Struct, frozen=True, kw_only=True):
    """What of a manifest's ``validation`` a gate needs."""

    outputs: tuple[OutputMetrics, ...]
    samples: int = 1
    ran_on: RanOn = "host"
    passed: bool = False
    judged_as: Precision | None = None
    """The precision whose thresholds were used, where it isn't the artifact's own."""


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    schema: int
    precision: Precision
    validation: _ManifestValidation


def write_validation(folder: Path, stored: StoredValidation) -> Path:
    """Write ``validation.json`` into a folder."""
    return replace_file(folder / NAME, canonical_json(stored))


def replace_file(path: Path, data: bytes) -> Path:
    """Write a file anew, never into the old one: that may be linked into a registry, whose files must not change."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def read_validation(path: Path) -> StoredValidation:
    """Read a stored report: ``validation.json``, a folder that holds one, or a ``manifest.json`` with metrics.

    Raises UsageError CNV-2054 where there is none, or it isn't one.
    """
    file = _find(path)
    try:
        data = read_start(file, LIMIT + 1)
    except OSError as error:
        raise _refused(file, error.strerror or str(error)) from error
    if len(data) > LIMIT:
        raise _refused(file, f"larger than {LIMIT >> 20} MiB")
    try:
        stored = _decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _refused(file, str(error)) from error
    if stored.schema != SCHEMA:
        raise _refused(file, f"schema {stored.schema}, and this version reads schema {SCHEMA}")
    return stored


def _find(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in (NAME, "manifest.json"):
        if (path / name).is_file():
            return path / name
    raise _refused(path, f"the folder holds neither {NAME} nor manifest.json")


def _decode(data: bytes) -> StoredValidation:
    if not _is_manifest(data):
        return msgspec.json.decode(data, type=StoredValidation)
    manifest = msgspec.json.decode(data, type=_Manifest)
    report = ValidationReport(
        parent="",
        ran_on=manifest.validation.ran_on,
        outputs=manifest.validation.outputs,
        samples=manifest.validation.samples,
    )
    verdict = GateVerdict(passed=manifest.validation.passed, thresholds={})
    precision = manifest.validation.judged_as or manifest.precision
    return StoredValidation(schema=manifest.schema, precision=precision, report=report, verdict=verdict)


def _is_manifest(data: bytes) -> bool:
    top = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    return "validation" in top and "report" not in top


def _refused(path: Path, why: str) -> UsageError:
    return UsageError(
        "CNV-2054",
        f"{path} is no stored validation report: {why}",
        hint=f"give the {NAME} of a conversion, the folder that holds it, or a manifest.json with metrics",
    )


def as_document(path: str, stored: StoredValidation, verdict: GateVerdict) -> dict[str, Any]:
    """What ``convert gate --json`` prints."""
    return {
        "schema": 1,
        "report": path,
        "precision": stored.precision,
        "ran_on": stored.report.ran_on,
        "passed": verdict.passed,
        "thresholds": verdict.thresholds,
        "failures": verdict.failures,
        "remarks": verdict.remarks,
        "outputs": stored.report.outputs,
        "error": None,
    }
