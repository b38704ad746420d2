"""What holds for any outputs and any thresholds."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from convert.compare import compare_outputs, fold
from convert.gate import METRICS, THRESHOLDS, judge
from convert.values import GateVerdict, ValidationReport

QUICK = settings(max_examples=120, deadline=None, derandomize=True)
VALUES = st.one_of(st.floats(-1e4, 1e4, width=32), st.sampled_from([0.0, float("nan"), float("inf"), -float("inf")]))
PAIRS = st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=24)
PRECISIONS = st.sampled_from(sorted(THRESHOLDS))
NAMES = ("cosine", "worst_row_cosine", "rel_l2", "norm_ratio", "max_abs", "max_rel", "exact_match", "floor")


def report_of(reference: Any, candidate: Any) -> ValidationReport:
    comparison = fold([compare_outputs([reference], [candidate], ["y"])])
    return ValidationReport(parent="", ran_on="host", outputs=comparison.outputs, samples=comparison.samples)


def arrays(pairs: list[tuple[float, float]]) -> tuple[Any, Any]:
    rows = 2 if len(pairs) % 2 == 0 else 1
    reference, candidate = (np.array(side, "f4").reshape(rows, -1) for side in zip(*pairs, strict=True))
    return reference, candidate


def judged(pairs: list[tuple[float, float]], precision: Any, gate: dict[str, float]) -> GateVerdict:
    return judge(report_of(*arrays(pairs)), precision, gate)


@QUICK
@given(pairs=PAIRS, precision=PRECISIONS, name=st.sampled_from(NAMES), limit=st.floats(0, 1), by=st.floats(0, 2))
def test_loosening_a_threshold_never_turns_a_pass_into_a_failure(
    pairs: list[tuple[float, float]], precision: Any, name: str, limit: float, by: float
) -> None:
    looser = max(limit - by, METRICS[name].low) if METRICS[name].rule == "least" else limit + by
    if judged(pairs, precision, {name: limit}).passed:
        assert judged(pairs, precision, {name: looser}).passed


@QUICK
@given(pairs=PAIRS, precision=PRECISIONS)
def test_nan_and_inf_must_stand_where_they_stand_in_the_reference(
    pairs: list[tuple[float, float]], precision: Any
) -> None:
    reference, candidate = arrays(pairs)
    kinds = [np.where(np.isnan(a), 2, np.where(np.isinf(a), np.sign(a) * 3, 0)) for a in (reference, candidate)]
    if (kinds[0] != kinds[1]).any():
        loose = {"rel_l2": 1e30, "cosine": -1.0, "worst_row_cosine": -1.0, "norm_ratio": 1e30, "floor": 1e30}
        for gate in ({}, loose):
            verdict = judged(pairs, precision, gate)
            assert not verdict.passed
            assert any("NaN" in text or "Inf" in text for text in verdict.failures)


FACTORS = st.floats(1.5, 100, width=32).flatmap(lambda factor: st.sampled_from([factor, 1 / factor, -factor]))


@QUICK
@given(values=st.lists(st.floats(1, 1e3, width=32), min_size=2, max_size=24), precision=PRECISIONS, factor=FACTORS)
def test_another_scale_fails_every_precision(values: list[float], precision: Any, factor: float) -> None:
    reference = np.array(values, "f4").reshape(1, -1)
    assert not judge(report_of(reference, (reference * np.float32(factor))), precision).passed
    assert judge(report_of(reference, reference.copy()), precision).passed


@QUICK
@given(pairs=PAIRS, precision=PRECISIONS, seed=st.integers(0, 1000))
def test_the_order_of_elements_does_not_count(pairs: list[tuple[float, float]], precision: Any, seed: int) -> None:
    reference, candidate = (side.reshape(1, -1) for side in arrays(pairs))
    order = np.random.default_rng(seed).permutation(reference.size)
    first = report_of(reference, candidate).outputs[0]
    again = report_of(reference[:, order], candidate[:, order]).outputs[0]
    assert (first.state, first.nonfinite_mismatch, first.max_abs) == (
        again.state,
        again.nonfinite_mismatch,
        again.max_abs,
    )
