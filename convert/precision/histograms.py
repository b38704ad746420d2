"""Histograms of values that come run by run, in memory that does not grow, whatever the values are.

Each has the same number of bins over [-reach, reach]. A value beyond doubles the reach, as often as it takes, and joins
the bins two by two; so a first input of almost nothing, as a black image, costs later ones no memory and half of the
resolution at most.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnxruntime.quantization.calibrate import entropy
from onnxruntime.quantization.quant_utils import smooth_distribution

from convert.arrays import Array

BINS = 2048


class Histogram:
    """Counts of finite values in :data:`BINS` bins over ``[-reach, reach]``."""

    def __init__(self) -> None:
        self.counts: Array = np.zeros(BINS, np.int64)
        self.reach = 0.0
        self.low, self.high = math.inf, -math.inf

    def add(self, values: Array) -> None:
        """Count values, of which there is at least one."""
        low, high = float(values.min()), float(values.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        peak = max(-low, high)
        self.reach = self.reach or peak
        while self.reach < peak:
            joined = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.pad(joined, BINS // 4)
            self.reach *= 2.0
        if self.reach == 0.0:
            self.counts[BINS // 2] += values.size
            return
        self.counts += np.histogram(values.astype(np.float64), BINS, range=(-self.reach, self.reach))[0]

    def percentile(self, share: float) -> tuple[float, float]:
        """The range around zero that holds a share of the values seen."""
        half = BINS // 2
        magnitudes = self.counts[half:] + self.counts[:half][::-1]
        held = np.cumsum(magnitudes) / max(int(magnitudes.sum()), 1)
        reach = (int(np.searchsorted(held, share)) + 1) / half * self.reach
        return self._within(-reach, reach)

    def entropy(self, steps: int) -> tuple[float, float]:
        """The range around zero whose ``steps`` steps keep most of the distribution (Kullback-Leibler).

        Of ONNX Runtime's ``HistogramCollector.get_entropy_threshold`` the same numbers, without its loops over bins.
        """
        half, total = BINS // 2, int(self.counts.sum())
        before = np.concatenate([[0], np.cumsum(self.counts)])
        widths = range(steps // 2, half + 1)
        lost = []
        for width in widths:
            begin, end = half - width, min(half + width + 1, BINS)
            lost.append(_lost(self.counts[begin:end], int(before[begin]), total - int(before[end]), steps))
        best = widths[int(np.argmin(lost))]
        bin_width = self.reach / half
        return self._within(-best * bin_width, min(best + 1, half) * bin_width)

    def _within(self, low: float, high: float) -> tuple[float, float]:
        """A range without what was never seen."""
        return max(low, self.low), min(high, self.high)


def _lost(inside: Array, left: int, right: int, steps: int) -> float:
    """What is lost of a distribution where its ends are cut and the rest has ``steps`` values alone."""
    whole = inside.copy()
    whole[0] += left
    whole[-1] += right
    merged = inside.size // steps
    body = merged * steps
    sums = inside[:body].reshape(steps, merged).sum(axis=1)
    sums[-1] += inside[body:].sum()
    some = (whole[:body] != 0).reshape(steps, merged).sum(axis=1)
    spread = np.zeros_like(whole)
    spread[:body] = np.repeat(np.where(some > 0, sums // np.maximum(some, 1), 0), merged)
    smooth: Any = smooth_distribution
    ours, theirs = smooth(whole), smooth(spread)
    return math.inf if ours is None or theirs is None else float(entropy(ours, theirs))
