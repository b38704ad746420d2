"""The report of two compared files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

import numpy as np

from convert.arrays import Array
from convert.compare import Comparison
from convert.stages.diff_options import Side
from convert.values import Note, ValidationReport

MAX_SWAPPED = 16
"""Outputs that are looked at for two that changed places."""


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


def pair_outputs(
    ours: Mapping[str, Array], theirs: Mapping[str, Array]
) -> tuple[list[Array | None], list[Array | None], list[str]]:
    """Reference, candidate and name of each output: by name where one side has all of the other's, else in order."""
    if ours.keys() <= theirs.keys() or theirs.keys() <= ours.keys():
        names = [*ours, *(name for name in theirs if name not in ours)]
        return [ours.get(name) for name in names], [theirs.get(name) for name in names], names
    names = [*ours, *list(theirs)[len(ours) :]]
    return [*ours.values()], [*theirs.values()], names


def swapped(
    reference: Sequence[Array | None], candidate: Sequence[Array | None], names: Sequence[str]
) -> tuple[Note, ...]:
    """A warning for each two outputs that are not alike where they were paired, and are when they change places."""
    pairs = list(zip(reference, candidate, names, strict=True))[:MAX_SWAPPED]
    apart = [pair for pair in pairs if not _alike(pair[0], pair[1])]
    return tuple(
        Note(
            level="warning", text=f"the candidate's {theirs[2]!r} is the reference's {ours[2]!r}: are outputs swapped?"
        )
        for ours, theirs in permutations(apart, 2)
        if _alike(ours[0], theirs[1])
    )


def _alike(one: Array | None, other: Array | None) -> bool:
    if one is None or other is None or one.shape != other.shape or one.dtype.kind not in "fiub" or not one.size:
        return False
    return other.dtype.kind in "fiub" and bool(np.allclose(one, other, rtol=1e-2, atol=1e-6, equal_nan=True))


def _named_otherwise(left: Side, right: Side) -> Iterator[Note]:
    if set(left.outputs) & set(right.outputs) or not left.outputs or not right.outputs:
        return
    pairs = ", ".join(f"{a!r} with {b!r}" for a, b in zip(left.outputs, right.outputs, strict=False))
    yield Note(text=f"outputs are named differently and were paired by position: {pairs}")
