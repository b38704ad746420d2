"""What a report shows: a conversion as it ended, with the pictures of its outputs. No numpy, no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from convert.metrics import OutputPicture
from convert.request import Conversion, TargetResult

PICTURES = "pictures.json"
LIMIT = 64 << 20


class TargetReport(msgspec.Struct, frozen=True, kw_only=True):
    """One target of a report."""

    result: TargetResult
    pictures: tuple[OutputPicture, ...] = ()
    ops: dict[str, int] = {}
    """Operator counts of the graph that was compiled."""


class ReportData(msgspec.Struct, frozen=True, kw_only=True):
    """All that one HTML report shows. ``finished``: when, in words; empty where nobody should see a clock."""

    conversion: Conversion
    targets: tuple[TargetReport, ...]
    finished: str = ""


def report_data(
    conversion: Conversion,
    results: Sequence[TargetResult] | None = None,
    *,
    ops: Mapping[str, Mapping[str, int]] | None = None,
    finished: str = "",
) -> ReportData:
    """The report's data for a conversion, or for some of its targets; reads each validation's ``pictures.json``.

    ``ops``: operator counts by target.
    """
    chosen = conversion.targets if results is None else results
    targets = [
        TargetReport(result=result, pictures=read_pictures(result), ops=dict((ops or {}).get(result.target, {})))
        for result in chosen
    ]
    return ReportData(conversion=conversion, targets=tuple(targets), finished=finished)


def read_pictures(result: TargetResult) -> tuple[OutputPicture, ...]:
    """The pictures of a target's validation; none where there is no file of them, or none that can be read."""
    if result.report is None or not result.report.folder:
        return ()
    path = result.report.path(PICTURES)
    try:
        if path.stat().st_size > LIMIT:
            return ()
        return msgspec.json.decode(path.read_bytes(), type=tuple[OutputPicture, ...])
    except (OSError, msgspec.DecodeError):
        return ()


def write_pictures(folder: Path, pictures: Sequence[OutputPicture]) -> Path:
    """Write ``pictures.json`` into a folder."""
    path = folder / PICTURES
    path.write_bytes(msgspec.json.encode(pictures))
    return path
