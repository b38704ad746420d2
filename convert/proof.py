"""Proving that a change kept the numbers: two lists of outputs, judged as the fp32 gate judges them."""

from __future__ import annotations

from collections.abc import Sequence

from convert.arrays import Array
from convert.compare import compare_outputs, fold
from convert.gate import judge
from convert.values import ValidationReport


def departures(
    names: Sequence[str], reference: Sequence[Sequence[Array]], candidate: Sequence[Sequence[Array]]
) -> tuple[str, ...]:
    """One sentence for each output that departs, over all samples; empty where the numbers are the same."""
    pairs = zip(reference, candidate, strict=True)
    compared = fold(compare_outputs(ours, theirs, names) for ours, theirs in pairs)
    report = ValidationReport(parent="", ran_on="host", outputs=compared.outputs, samples=compared.samples)
    return judge(report, "fp32").failures
