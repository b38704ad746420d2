"""Ranges to quantize with, from inputs to calibrate with: one run for each, nothing held but histograms.

    min-max      the lowest and highest element of every tensor
    percentile   the range that holds 99.99 % of the elements seen
    entropy      the range whose 128 steps keep most of the distribution (Kullback-Leibler, as ONNX Runtime does)

The latter two see the elements that probes gather of each tensor, not the tensors, and merge them into histograms run
by run: memory does not grow with the number of inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto

from convert.arrays import Array
from convert.precision.emulate import Watched
from convert.precision.histograms import Histogram
from convert.precision.probes import Prober
from convert.precision.readings import Reading, Readings
from convert.precision.shapes import shapes_of
from convert.values import CalibrationMethod

PERCENTILE = 99.99
STEPS = 128
GATHERED = 1 << 14
"""Elements of one tensor that a histogram sees of one run, at most."""
ALL_GATHERED = 4 << 20

Range = tuple[float, float]


def calibrated(
    model: ModelProto,
    tensors: Iterable[str],
    feeds: Iterable[Mapping[str, Array]],
    method: CalibrationMethod,
    *,
    weights: Path,
    scratch: Path,
) -> dict[str, Range]:
    """The range of each tensor over all feeds. ``model``: prepared; ``weights``: the folder of its external weights.

    Raises :class:`convert.ort.SessionFailed`.
    """
    wanted = set(tensors)
    inputs = {value.name for value in model.graph.input} & wanted
    copy = ModelProto.FromString(model.SerializeToString())
    elements = max(64, min(GATHERED, ALL_GATHERED // max(1, len(wanted))))
    feeds = iter(feeds)
    first = next(feeds, None)
    if first is None:
        return {}
    prober = Prober(shapes_of(model, {}), elements)
    probes = prober.add(copy, wanted - inputs)
    order = sorted(wanted - inputs)
    watched = Watched(copy, probes, len(model.graph.output), order=order, weights=weights, scratch=scratch, frugal=True)
    try:
        collected = _Ranges(method)
        for feed in _again(first, feeds):
            collected.add(watched.run(feed).readings)
            collected.add(Readings.of((name, _of_input(feed[name])) for name in sorted(inputs & feed.keys())))
        return collected.ranges()
    finally:
        watched.close()


def _again(first: Mapping[str, Array], rest: Iterator[Mapping[str, Array]]) -> Iterator[Mapping[str, Array]]:
    yield first
    yield from rest


def _of_input(array: Array) -> Reading:
    flat = array.reshape(-1).astype(np.float32)
    return Reading(flat[:: max(1, flat.size // GATHERED)], None, float(flat.min()), float(flat.max()))


class _Ranges:
    """Ranges, merged run by run."""

    def __init__(self, method: CalibrationMethod) -> None:
        self.method = method
        self.extremes: dict[str, Range] = {}
        self.histograms: dict[str, Histogram] = {}

    def add(self, told: Mapping[str, Reading]) -> None:
        """Take the readings of one run."""
        for name, reading in told.items():
            sample = reading.sample[np.isfinite(reading.sample)]
            if not sample.size:
                continue
            low = reading.low if reading.low is not None and np.isfinite(reading.low) else float(sample.min())
            high = reading.high if reading.high is not None and np.isfinite(reading.high) else float(sample.max())
            before = self.extremes.get(name, (low, high))
            self.extremes[name] = min(before[0], low), max(before[1], high)
            if self.method != "minmax":
                self.histograms.setdefault(name, Histogram()).add(sample)

    def ranges(self) -> dict[str, Range]:
        """The range of each tensor."""
        # One that is zero throughout has no distribution.
        known = {name: one for name, one in self.histograms.items() if one.reach > 0.0}
        percentile = self.method == "percentile"
        bounds = {
            name: _ordered(one.percentile(PERCENTILE / 100.0) if percentile else one.entropy(STEPS))
            for name, one in known.items()
        }
        return {**self.extremes, **bounds}


def _ordered(bounds: Range) -> Range:
    """Bounds whose lower one is not above the other, as of a value that is the same throughout."""
    low, high = bounds
    return (low, high) if low <= high else (high, high)
