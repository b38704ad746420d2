"""Proving that a change kept the numbers: two lists of outputs, judged as the fp32 gate judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from convert.arrays import Array
from convert.compare import compare_outputs, fold
from convert.gate import judge
from convert.ort import SessionFailed, exact_settings, run_samples
from convert.ties import TieCount
from convert.values import Note, TensorSpec, ValidationReport


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


def constant_outputs(
    model: Path, feeds: Sequence[Mapping[str, Array]], outputs: Sequence[Sequence[Array]], specs: Sequence[TensorSpec]
) -> list[Note]:
    """A warning for each output that does not depend on the inputs, however right its numbers are.

    With one sample only, floating-point inputs are run once more with their values turned round and shifted.
    """
    others = [list(array) for array in outputs[1:]]
    if len(feeds) == 1:
        changed = {name: _changed(array) for name, array in feeds[0].items()}
        try:
            others = run_samples(model, [changed], exact_settings(model))
        except SessionFailed:
            return []
    if not others or not any(_varies(feeds[0], feed) for feed in (*feeds[1:], *([changed] if len(feeds) == 1 else []))):
        return []
    return [
        Note(
            level="warning",
            text="the output does not depend on the inputs: it is constant over differing samples",
            subject=spec.name,
        )
        for position, spec in enumerate(specs)
        if outputs[0][position].size and all(_same(outputs[0][position], other[position]) for other in others)
    ]


def _changed(array: Array) -> Array:
    if array.dtype.kind != "f" or not array.size:
        return array
    return (np.flip(array) * array.dtype.type(-0.75) + array.dtype.type(0.125)).astype(array.dtype)


def _varies(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return any(not _same(array, other[name]) for name, array in one.items())


def _same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()
