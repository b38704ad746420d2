"""Does a graph's output depend on its inputs? Equal numbers prove nothing about one that doesn't. Runs in the worker.

Samples that differ show it by themselves (``convert.compare``); where there is only one, or all are equal, the graph
is run once more on a variation of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from convert.arrays import Array
from convert.measure import fingerprint, kind_of
from convert.ort import SessionFailed, exact_settings, run_samples
from convert.values import Note


def constancy_notes(
    model: Path, feeds: Sequence[Mapping[str, Array]], outputs: Sequence[Sequence[Array]], names: Sequence[str]
) -> tuple[Note, ...]:
    """A warning for each floating-point output that stays the same, bit for bit, when the inputs change.

    ``outputs``: those of ``feeds``, in order, as the same graph on ONNX Runtime gave them. Empty where the samples
    differ among themselves, and where there is nothing to vary or the graph refuses the variation.
    """
    if not feeds or not outputs or len({fingerprint(feed.values()) for feed in feeds}) > 1:
        return ()
    changed = varied(feeds[0])
    if changed is None:
        return ()
    try:
        second = run_samples(model, [changed], exact_settings(model))[0]
    except SessionFailed:
        return ()
    return tuple(
        Note(
            level="warning",
            text=f"output {name!r} does not depend on the input: it stayed constant when the sample was varied, so "
            "equal numbers prove little",
            subject=name,
        )
        for name, first, other in zip(names, outputs[0], second, strict=True)
        if first.size and kind_of(first.dtype) == "float" and fingerprint([first]) == fingerprint([other])
    )


def varied(feed: Mapping[str, Array], seed: int = 0) -> dict[str, Array] | None:
    """The sample with every floating-point input changed and of the same size; None where it has none.

    Elements are shuffled and scaled by 0.5 to 1.5, so that values keep their range; zeros become small numbers.
    Integers and booleans stay: an index or a mask must not be guessed.
    """
    random = np.random.default_rng(seed)
    changed = dict(feed)
    for name, array in feed.items():
        if kind_of(array.dtype) == "float" and array.size:
            flat = random.permutation(array.reshape(-1).astype(np.float64)) * random.uniform(0.5, 1.5, array.size)
            flat = np.where(flat == 0.0, random.uniform(0.01, 0.1, array.size), flat)
            changed[name] = flat.reshape(array.shape).astype(array.dtype)
    return changed if any(kind_of(array.dtype) == "float" and array.size for array in feed.values()) else None
