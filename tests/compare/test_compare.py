"""Metrics of one output: defined for every kind of array, and right."""

import math
import tracemalloc
import warnings

import ml_dtypes
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convert import measure
from convert.compare import compare_outputs, fold
from convert.metrics import OutputMetrics, OutputPicture

RNG = np.random.default_rng(0)


def normal(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


def compared(reference, candidate, **options):
    return fold([compare_outputs([reference], [candidate], ["y"], **options)])


def metrics(reference, candidate) -> OutputMetrics:
    return compared(reference, candidate).outputs[0]


def test_equal_arrays_reach_the_best_value_of_every_metric():
    a = normal(3, 7)
    m = metrics(a, a.copy())
    assert (m.state, m.cosine, m.worst_row_cosine, m.rel_l2, m.norm_ratio) == ("compared", 1.0, 1.0, 0.0, 1.0)
    assert (m.max_abs, m.max_rel, m.argmax_agreement, m.problems) == (0.0, 0.0, 1.0, ())


def test_a_doubled_output_has_cosine_one_and_shows_in_norm_ratio_and_relative_l2():
    a = normal(1, 1000)
    m = metrics(a, a * 2)
    assert m.cosine == pytest.approx(1.0, abs=1e-12)
    assert (m.norm_ratio, m.rel_l2) == (pytest.approx(2.0), pytest.approx(1.0))


def test_formulas_agree_with_their_plain_form():
    a, b = normal(5, 11), normal(5, 11)
    m = metrics(a, b)
    x, y = a.astype("f8").ravel(), b.astype("f8").ravel()
    assert m.cosine == pytest.approx(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
    assert m.rel_l2 == pytest.approx(np.linalg.norm(x - y) / np.linalg.norm(x))
    assert m.norm_ratio == pytest.approx(np.linalg.norm(y) / np.linalg.norm(x))
    assert m.max_abs == pytest.approx(np.abs(x - y).max())
    assert m.max_rel == pytest.approx((np.abs(x - y) / np.maximum(np.abs(x), 0.01 * np.sqrt((x**2).mean()))).max())


def test_one_inverted_row_of_64_is_named():
    a = normal(64, 128)
    b = a.copy()
    b[17] = -b[17]
    m = metrics(a, b)
    assert m.worst_row == (17,)
    assert m.cosine > 0.96 and m.worst_row_cosine < -0.9


def test_a_row_that_should_be_zero_is_found_in_a_batch_of_attention():
    a = normal(2, 4, 8, 16)
    a[0, 1, 3] = 0.0
    b = a.copy()
    b[0, 1, 3] = 0.3
    m = metrics(a, b)
    assert m.worst_row == (0, 1, 3)
    assert m.worst_row_cosine < 0.5 < 0.99 < m.cosine


def test_rounding_in_a_row_of_almost_nothing_is_judged_on_the_scale_of_the_tensor():
    a = normal(16, 32)
    a[4] *= 1e-7
    b = a.copy()
    b[4] = normal(32) * 1e-7
    assert metrics(a, b).worst_row_cosine > 0.999999


@pytest.mark.parametrize("shape", [(5,), (1, 5), (5, 1), (1, 1), ()])
def test_tensors_of_one_row_have_no_worst_row(shape):
    a = np.ones(shape, "float32")
    assert metrics(a, a * np.float32(1.5)).worst_row_cosine is None


def test_trailing_axes_of_one_do_not_make_rows_of_one_element():
    a = normal(4, 6, 1, 1)
    b = a.copy()
    b[2] = -b[2]
    assert metrics(a, b).worst_row == (2,)


def test_all_zero_on_both_sides_has_no_cosine_and_max_abs_zero():
    result = compared(np.zeros((2, 3), "f4"), np.zeros((2, 3), "f4"))
    m = result.outputs[0]
    assert (m.state, m.cosine, m.max_abs, m.rel_l2) == ("all-zero", None, 0.0, 0.0)
    assert "cosine undefined, all-zero on both sides, max_abs=0" in result.notes[0].text


@pytest.mark.parametrize("sides", [(0.0, 1.0), (1.0, 0.0)])
def test_zero_on_one_side_alone_has_cosine_zero_and_relative_l2_one(sides):
    a, b = (np.full(4, value, "f4") for value in sides)
    m = metrics(a, b)
    assert (m.cosine, m.rel_l2) == (0.0, 1.0)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_is_judged_by_relative_difference_not_cosine(shape):
    m = metrics(np.full(shape, 2.0, "f4"), np.full(shape, -2.0, "f4"))
    assert (m.state, m.cosine, m.rel_l2, m.shape) == ("scalar", None, 2.0, shape)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_empty_on_both_sides_is_a_match_reported_as_empty(dtype):
    result = compared(np.zeros((0, 4), dtype), np.zeros((0, 4), dtype))
    assert (result.outputs[0].state, result.outputs[0].problems) == ("empty", ())
    assert "empty on both sides" in result.notes[0].text


def test_empty_against_three_rows_is_a_mismatch_of_shape():
    m = metrics(np.zeros((0, 4), "f4"), np.zeros((3, 4), "f4"))
    assert (m.state, m.problems) == ("mismatch", ("has shape [3, 4], and the reference has [0, 4] (sample 0)",))


def test_a_scalar_that_became_one_element_is_a_mismatch_of_shape():
    assert metrics(np.float32(1.0), np.ones(1, "f4")).state == "mismatch"


def test_another_kind_of_dtype_is_a_mismatch_and_another_width_is_kept_for_the_gate():
    assert metrics(normal(3), np.ones(3, "int32")).problems == (
        "has dtype int32, and the reference has float32 (sample 0)",
    )
    m = metrics(np.ones(3, "f4"), np.ones(3, "f2"))
    assert (m.state, m.dtype, m.candidate_dtype) == ("compared", "float32", "float16")


def test_integers_are_compared_exactly_as_k_of_n():
    m = metrics(np.array([3, 1, 2]), np.array([3, 2, 1]))
    assert (m.state, m.matching, m.elements, m.exact_match) == ("exact", 1, 3, pytest.approx(1 / 3))
    assert (m.cosine, m.max_abs) == (None, 1.0)


def test_large_integers_that_floats_cannot_tell_apart_differ():
    assert metrics(np.array([2**53]), np.array([2**53 + 1])).matching == 0


def test_booleans_and_text_are_compared_exactly():
    assert metrics(np.array([True, False]), np.array([True, True])).exact_match == 0.5
    assert metrics(np.array(["a", "b"], object), np.array(["a", "c"], object)).exact_match == 0.5


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_narrow_floats_are_widened(dtype):
    a = np.array([1.0, 2.0, -4.0], dtype)
    assert metrics(a, (a.astype("f4") * 2).astype(dtype)).norm_ratio == pytest.approx(2.0)


def test_bfloat16_that_a_file_turned_into_blanks_is_read_as_bfloat16():
    a = np.array([1.0, 2.0, -4.0], ml_dtypes.bfloat16)
    m = metrics(a.view("V2"), a.astype("f4"))
    assert (m.rel_l2, m.max_abs) == (0.0, 0.0)


def test_complex_numbers_are_compared_as_pairs():
    a = (normal(4) + 1j * normal(4)).astype("complex64")
    assert metrics(a, a.conj()).rel_l2 > 0.5
    assert metrics(a, a).rel_l2 == 0.0


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_float64_far_from_one_neither_overflows_nor_vanishes(scale):
    a = normal(6, dtype="float64")
    m = metrics(a * scale, a * scale * 1.5)
    assert (m.norm_ratio, m.rel_l2) == (pytest.approx(1.5), pytest.approx(0.5))
    assert m.max_abs == pytest.approx(0.5 * scale * np.abs(a).max())


def test_three_nan_of_the_candidate_are_counted_and_the_rest_is_compared():
    a = normal(1, 500)
    b = a.copy()
    b[0, :3] = np.nan
    m = metrics(a, b)
    assert (m.nan_candidate, m.nonfinite_mismatch, m.rel_l2) == (3, 3, 0.0)
    assert m.problems == ("has NaN at 3 of 500 positions, the reference at 0 (sample 0)",)


def test_nan_on_both_sides_at_the_same_positions_is_a_warning_about_the_original_model():
    a = normal(2, 8)
    a[0, :5] = np.nan
    result = compared(a, a.copy())
    assert result.outputs[0].problems == ()
    assert [note.level for note in result.notes] == ["warning"]
    assert "the original model already gives NaN at 5 of 16 positions" in result.notes[0].text


def test_nan_at_other_positions_than_in_the_reference_is_a_problem_that_names_both_sides():
    a, b = normal(9), normal(9)
    a[2], b[3] = np.nan, np.nan
    problems = metrics(a, b).problems
    assert "the original model already gives NaN at 1 positions" in problems[0]
    assert "2 positions differ" in problems[1]


def test_infinities_must_have_the_same_sign():
    a = np.array([np.inf, 1.0], "f4")
    assert metrics(a, a.copy()).nonfinite_mismatch == 0
    assert metrics(a, np.array([-np.inf, 1.0], "f4")).nonfinite_mismatch == 1


def test_an_output_without_a_finite_element_counts_as_not_compared():
    a = np.full((2, 3), np.nan, "f4")
    m = metrics(a, a.copy())
    assert (m.cosine, m.rel_l2) == (None, None)
    assert "can't be judged" in m.problems[0]


def test_a_missing_output_is_named():
    result = fold([compare_outputs([normal(3), normal(3)], [normal(3)], ["a", "b"])])
    assert [(m.name, m.state) for m in result.outputs] == [("a", "compared"), ("b", "missing")]
    assert "is missing" in result.outputs[1].problems[0]


def test_an_extra_output_is_named_by_the_candidate():
    a = normal(3)
    result = fold([compare_outputs([a], [a, a], ["a"], candidate_names=["p", "q"])])
    assert (result.outputs[1].name, result.outputs[1].state) == ("q", "mismatch")


def test_outputs_of_one_name_are_compared_by_position():
    a, b = normal(3), normal(3)
    result = fold([compare_outputs([a, b], [a, b], ["same", "same"])])
    assert [m.rel_l2 for m in result.outputs] == [0.0, 0.0]


def test_argmax_agreement_is_the_share_of_rows_with_the_same_highest_element():
    a = np.array([[1, 5, 2], [7, 1, 1]], "f4")
    b = np.array([[1, 2, 5], [7, 1, 1]], "f4")
    assert metrics(a, b).argmax_agreement == 0.5


def test_metrics_of_the_user_are_called_with_both_arrays_and_their_lowest_value_counts():
    def worst_difference(reference, candidate):
        return -float(np.abs(reference - candidate).max())

    a = np.zeros(3, "f4")
    samples = [compare_outputs([a], [a + shift], ["y"], user={"mine": worst_difference}) for shift in (1, 3, 2)]
    output = fold(samples).outputs[0]
    assert (output.user, output.worst["mine"]) == ({"mine": -3.0}, 1)


# ------------------------------------------------------------------------------------------------- several samples


def test_fold_keeps_the_worst_of_each_metric_and_the_sample_where_it_was():
    a = normal(2, 50)
    candidates = [a, a * np.float32(0.9), a + normal(2, 50) * 0.01]
    m = fold(compare_outputs([a], [c], ["y"]) for c in candidates).outputs[0]
    assert (m.worst_sample, m.worst["norm_ratio"], m.worst["cosine"], m.samples) == (1, 1, 2, 3)
    assert m.norm_ratio == pytest.approx(0.9)


def test_exact_match_counts_over_all_samples():
    a = np.arange(4)
    m = fold(compare_outputs([a], [c], ["y"]) for c in (a, a[::-1].copy())).outputs[0]
    assert (m.matching, m.elements, m.exact_match, m.worst_sample) == (4, 8, 0.5, 1)


def test_a_problem_of_one_sample_names_the_sample():
    a, b = normal(3), np.array([1, np.nan, 2], "f4")
    m = fold([compare_outputs([a], [a], ["y"]), compare_outputs([a], [b], ["y"])]).outputs[0]
    assert m.problems == ("has NaN at 1 of 3 positions, the reference at 0 (sample 1)",)


def test_an_output_that_is_empty_in_one_sample_only_is_compared():
    empty, full = np.zeros((0, 4), "f4"), normal(2, 4)
    m = fold([compare_outputs([empty], [empty], ["y"]), compare_outputs([full], [full], ["y"])]).outputs[0]
    assert (m.state, m.cosine) == ("compared", 1.0)


@pytest.mark.parametrize(("differ", "constant"), [(True, True), (False, False)])
def test_an_output_that_stays_the_same_over_differing_inputs_is_flagged(differ, constant):
    a = normal(1, 4)
    result = fold([compare_outputs([a], [a], ["y"]) for _ in range(3)], inputs_differ=differ)
    assert result.outputs[0].constant is constant
    assert any("does not depend on the input" in note.text for note in result.notes) is constant


def test_an_index_that_stays_the_same_is_only_remarked():
    result = fold([compare_outputs([np.array([3])], [np.array([3])], ["y"]) for _ in range(2)], inputs_differ=True)
    assert [(note.level, "was the same in all 2 samples" in note.text) for note in result.notes] == [("info", True)]


def test_an_output_that_changes_is_not_constant():
    result = fold([compare_outputs([x], [x], ["y"]) for x in (normal(4), normal(4))], inputs_differ=True)
    assert not result.outputs[0].constant and not result.notes


def test_no_sample_gives_no_output():
    assert fold([]).outputs == () and fold([]).samples == 0


# --------------------------------------------------------------------------------------------------------- pictures


def test_pictures_count_every_finite_element_once():
    a = normal(30, 40)
    b = a + normal(30, 40) * np.float32(1e-3)
    b[0, :5] = a[0, :5]
    picture = compared(a, b).pictures[0]
    assert sum(picture.counts) + picture.equal == 1200
    assert picture.equal >= 5 and len(picture.counts) == measure.BINS


def test_pictures_are_bounded_and_hold_the_element_that_is_furthest_off():
    a = normal(200, 50)
    b = a.copy()
    b[123, 45] += 50
    picture = compared(a, b).pictures[0]
    assert len(picture.points) <= measure.POINTS
    assert (pytest.approx(float(a[123, 45]), rel=1e-5), pytest.approx(float(b[123, 45]), rel=1e-5)) in picture.points


def test_pictures_show_the_worst_sample():
    a = normal(10)
    samples = [compare_outputs([a], [a + s], ["y"]) for s in (np.float32(0), np.float32(1), np.float32(0.5))]
    picture = fold(samples).pictures[0]
    assert (picture.sample, sum(picture.counts) + picture.equal) == (1, 30)


def test_pictures_survive_json():
    picture = compared(normal(100), normal(100)).pictures[0]
    assert msgspec.json.decode(msgspec.json.encode(picture), type=OutputPicture) == picture


# --------------------------------------------------------------------------------------------------- chunks and bounds


@pytest.mark.parametrize("chunk", [1, 3, 7, 64, 1000])
def test_the_size_of_a_chunk_changes_nothing(chunk, monkeypatch):
    a = normal(6, 5, 4)
    b = a + normal(6, 5, 4) * np.float32(0.1)
    b[3, 2, 1] = np.nan
    whole = compared(a, b)
    monkeypatch.setattr(measure, "CHUNK", chunk)
    pieces = compared(a, b)
    for name in ("cosine", "worst_row_cosine", "rel_l2", "norm_ratio", "max_abs", "max_rel", "argmax_agreement"):
        assert getattr(pieces.outputs[0], name) == pytest.approx(getattr(whole.outputs[0], name)), name
    assert pieces.outputs[0].worst_row == whole.outputs[0].worst_row
    assert pieces.pictures[0].counts == whole.pictures[0].counts
    assert pieces.outputs[0].nonfinite_mismatch == 1


def test_arrays_that_are_not_contiguous_are_compared_in_their_own_order():
    a, b = normal(8, 6).T, normal(8, 6).T
    assert metrics(a, b).rel_l2 == pytest.approx(metrics(a.copy(), b.copy()).rel_l2)
    assert metrics(a, b).worst_row == metrics(a.copy(), b.copy()).worst_row


@pytest.mark.parametrize("transposed", [False, True])
def test_extra_memory_does_not_grow_with_the_output(transposed):
    a = np.zeros((32, 1 << 17), "f4")
    b = np.full((32, 1 << 17), np.float32(1e-3))
    a, b = (a.T, b.T) if transposed else (a, b)
    tracemalloc.start()
    try:
        compared(a, b)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 90 << 20


FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=40))
def test_no_values_raise_warn_or_leave_the_range_of_json(pairs):
    a, b = (np.array(side, "f4").reshape(-1, 1 if len(side) % 2 else 2) for side in zip(*pairs, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m = metrics(a, b)
    numbers = [m.cosine, m.worst_row_cosine, m.rel_l2, m.norm_ratio, m.max_abs, m.max_rel]
    assert all(math.isfinite(value) for value in numbers if value is not None)
    assert m.cosine is None or -1 <= m.cosine <= 1


@given(st.lists(FLOATS.filter(math.isfinite), min_size=2, max_size=40))
def test_any_array_equals_itself(values):
    m = metrics(np.array(values, "f4"), np.array(values, "f4"))
    assert (m.rel_l2, m.max_abs, m.nonfinite_mismatch, m.problems) == (0.0, 0.0, 0, ())
    assert m.cosine in (None, 1.0)
