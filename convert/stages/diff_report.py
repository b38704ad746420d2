"""The report of two compared files."""

from __future__ import annotations

from collections.abc import Iterator

from convert.compare import Comparison
from convert.stages.diff_options import Side
from convert.values import Note, ValidationReport


def report_of(comparison: Comparison, left: Side, right: Side, notes: tuple[Note, ...] = ()) -> ValidationReport:
    """The report of a comparison of two files; ``notes``: what was said while they were opened."""
    return ValidationReport(
        parent=left.sha256,
        ran_on="host",
        device="cpu",
        reference=left.path,
        outputs=comparison.outputs,
        samples=comparison.samples,
        notes=notes + comparison.notes + tuple(_named_otherwise(left, right)),
    )


def _named_otherwise(left: Side, right: Side) -> Iterator[Note]:
    if set(left.outputs) & set(right.outputs) or not left.outputs or not right.outputs:
        return
    pairs = ", ".join(f"{a!r} with {b!r}" for a, b in zip(left.outputs, right.outputs, strict=False))
    yield Note(text=f"outputs are named differently and were paired by position: {pairs}")
