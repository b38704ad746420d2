"""What ``diff`` takes and gives; apart from the stage itself, so that the command line imports no numpy."""

from __future__ import annotations

import msgspec

from artifacts.digest import Digest
from convert.values import LoadOptions, ValidationReport


class DiffOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``diff`` reads of a request. ``left`` is the reference; its ``samples`` and inputs serve both sides."""

    left: LoadOptions
    right: LoadOptions
    metrics: tuple[str, ...] = ()


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two files: what it is, and the names of its outputs in order."""

    path: str
    sha256: Digest
    format: str
    outputs: tuple[str, ...]


class DiffResult(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides, and the report before any threshold."""

    left: Side
    right: Side
    report: ValidationReport
