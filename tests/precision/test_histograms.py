"""Histograms for int8 ranges keep their size whatever comes, and count as numpy does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.quantization.calibrate import HistogramCollector
from precision_graphs import parsed

from convert.precision import histograms
from convert.precision.calibrate import calibrated
from convert.precision.flow import prepared
from convert.precision.histograms import BINS, Histogram

SCALES = st.lists(st.sampled_from([0.0, 1e-30, 1e-9, 1.0, 3.0, 1e3, 1e30, 3e38]), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(scales=SCALES)
def test_a_histogram_keeps_its_size_and_every_count_whatever_comes(scales):
    rng, told = np.random.default_rng(0), Histogram()
    for scale in scales:
        told.add((rng.uniform(-1, 1, 100) * scale).astype(np.float32))
    assert told.counts.size == BINS
    assert told.counts.sum() == 100 * len(scales)
    assert told.reach <= 2 * max(-told.low, told.high) * (1 + 1e-6)


def test_doubling_counts_as_one_histogram_of_all_values_does():
    rng, told = np.random.default_rng(1), Histogram()
    parts = [(rng.standard_normal(500) * scale).astype(np.float32) for scale in (0.1, 1.0, 5.0)]
    for part in parts:
        told.add(part)
    whole = np.histogram(np.concatenate(parts).astype(np.float64), BINS, range=(-told.reach, told.reach))[0]
    assert np.abs(told.counts - whole).sum() <= 4


def test_the_entropy_range_is_the_one_that_onnxruntime_finds(monkeypatch):
    monkeypatch.setattr(histograms, "BINS", 256)
    told = Histogram()
    told.add(np.random.default_rng(3).standard_t(2, 4000).astype(np.float32))
    collector = HistogramCollector(
        method="entropy", symmetric=True, num_bins=256, num_quantized_bins=128, percentile=99.99, scenario="same"
    )
    edges = np.linspace(-told.reach, told.reach, 257).astype(np.float32)
    wanted = collector.get_entropy_threshold((told.counts, edges, np.float32(told.low), np.float32(told.high)), 128)
    assert told.entropy(128) == pytest.approx([float(end) for end in wanted], rel=1e-5)


@pytest.mark.parametrize("method", ["percentile", "entropy"])
def test_a_first_input_of_almost_nothing_costs_later_ones_neither_memory_nor_range(method, tmp_path: Path):
    model = prepared(parsed("g (float[1,4096] x) => (float[1,4096] y) { y = Tanh(x) }"))
    rng = np.random.default_rng(2)
    feeds = [{"x": (rng.standard_normal((1, 4096)) * scale).astype(np.float32)} for scale in (0.0, 1e-9, 1.0, 1.0)]
    ranges = calibrated(model, ["x", "y"], feeds, method, weights=tmp_path, scratch=tmp_path / "s")
    assert 2.0 < ranges["x"][1] < 5.0
    assert 0.9 < ranges["y"][1] <= 1.0


def test_a_value_that_is_always_zero_keeps_an_empty_range(tmp_path: Path):
    model = prepared(parsed("g (float[1,8] x) => (float[1,8] y) { y = Relu(x) }"))
    feeds = [{"x": np.full((1, 8), -1, np.float32)}]
    ranges = calibrated(model, ["x", "y"], feeds, "percentile", weights=tmp_path, scratch=tmp_path / "s")
    assert ranges == {"x": (-1.0, -1.0), "y": (0.0, 0.0)}
