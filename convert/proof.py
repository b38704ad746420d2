"""Proving that a change kept the numbers: two lists of outputs, judged as the fp32 gate judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convert.arrays import Array
from convert.compare import compare_outputs, fold
from convert.gate import judge
from convert.ties import TieCount
from convert.values import ValidationReport


def departures(
    names: Sequence[str],
    reference: Sequence[Sequence[Array]],
    candidate: Sequence[Sequence[Array]],
    ties: Sequence[Mapping[str, Array]] = (),
    count: TieCount | None = None,
) -> tuple[str, ...]:
    """One sentence for each output that departs, over all samples; empty where the numbers are the same.

    ``ties``: per sample what :func:`convert.ties.settle` needs to let indices of equal elements pass; ``count`` is
    told how many did.
    """
    counted = count or TieCount(names)
    searched = ties or [{}] * len(reference)
    rows = zip(reference, candidate, searched, strict=True)
    compared = fold(compare_outputs(ours, counted.settle(ours, theirs, tie), names) for ours, theirs, tie in rows)
    report = ValidationReport(parent="", ran_on="host", outputs=compared.outputs, samples=compared.samples)
    return judge(report, "fp32").failures
