"""Judging metrics with thresholds."""

import itertools
from pathlib import Path

import msgspec
import numpy as np
import pytest

from convert.compare import compare_outputs, fold
from convert.errors import UsageError
from convert.gate import METRICS, THRESHOLDS, gate_failed, judge, parse_gate
from convert.metrics import OutputMetrics
from convert.values import ValidationReport

RNG = np.random.default_rng(1)


def report_of(*pairs, **changes) -> ValidationReport:
    """The report of one sample with these (reference, candidate) outputs y0, y1, …"""
    names = [f"y{place}" for place in range(len(pairs))]
    references, candidates = zip(*pairs, strict=True)
    comparison = fold([compare_outputs(references, candidates, names, **changes)])
    return ValidationReport(parent="", ran_on="host", outputs=comparison.outputs, samples=comparison.samples)


def normal(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


# ----------------------------------------------------------------------------------------------------------- judging


@pytest.mark.parametrize("precision", THRESHOLDS)
def test_equal_outputs_pass_every_precision(precision):
    a = normal(4, 8)
    verdict = judge(report_of((a, a)), precision)
    assert (verdict.passed, verdict.failures, verdict.remarks) == (True, (), ())


@pytest.mark.parametrize("precision", THRESHOLDS)
def test_a_doubled_output_fails_every_precision_though_its_cosine_is_one(precision):
    a = normal(1, 1000)
    verdict = judge(report_of((a, a * 2)), precision)
    assert verdict.failures[0].startswith("output 'y0': relative L2 1 is above ")
    assert any("norm ratio 2 is off 1" in text and "scale" in text for text in verdict.failures)


@pytest.mark.parametrize("precision", THRESHOLDS)
def test_one_inverted_row_of_64_fails_every_precision_and_is_named(precision):
    a = normal(64, 128)
    b = a.copy()
    b[17] = -b[17]
    failures = judge(report_of((a, b)), precision).failures
    assert any("worst-row cosine" in text and "row [17] of sample 0" in text for text in failures)


@pytest.mark.parametrize("precision", THRESHOLDS)
def test_a_masked_row_that_is_not_zero_fails_every_precision(precision):
    a = normal(2, 4, 8, 16)
    b = a.copy()
    a[0, 0, 0], b[0, 0, 0] = 0, a[0, 0].mean(0)
    assert "row [0, 0, 0]" in " ".join(judge(report_of((a, b)), precision).failures)


@pytest.mark.parametrize(("precision", "eps"), [("fp32", 2**-23), ("fp16", 2**-11), ("bf16", 2**-8), ("int8", 2**-7)])
def test_noise_of_the_size_of_a_precision_passes_it(precision, eps):
    a = normal(16, 256)
    verdict = judge(report_of((a, a * (1 + eps * normal(16, 256)))), precision)
    assert verdict.failures == ()


@pytest.mark.parametrize(("precision", "noise"), [("fp32", "fp16"), ("fp16", "bf16")])
def test_noise_of_a_lower_precision_fails_a_higher_one(precision, noise):
    size = {"fp16": 2e-3, "bf16": 1.5e-2}[noise]
    a = normal(16, 256)
    assert not judge(report_of((a, a * (1 + np.float32(size) * normal(16, 256)))), precision).passed


def test_a_scale_of_one_percent_fails_fp16_by_its_norm_ratio():
    a = normal(16, 256)
    failures = judge(report_of((a, a * np.float32(1.004))), "fp16").failures
    assert [text for text in failures if "norm ratio 1.004" in text]


def test_nan_of_the_candidate_fails_whatever_is_overridden():
    a = normal(1, 500)
    b = a.copy()
    b[0, :3] = np.nan
    loose = {"cosine": -1.0, "rel_l2": 1e9, "norm_ratio": 1e9, "worst_row_cosine": -1.0}
    failures = judge(report_of((a, b)), "int8", loose).failures
    assert failures == ("output 'y0': has NaN at 3 of 500 positions, the reference at 0 (sample 0)",)


def test_nan_on_both_sides_passes():
    a = normal(1, 20)
    a[0, 3] = np.nan
    assert judge(report_of((a, a.copy())), "fp32").passed


def test_an_output_of_nothing_but_nan_fails():
    a = np.full(4, np.nan, "f4")
    assert "can't be judged" in judge(report_of((a, a)), "fp32").failures[0]


def test_a_missing_output_fails_and_is_named():
    a = normal(3)
    comparison = fold([compare_outputs([a, a], [a], ["a", "b"])])
    report = ValidationReport(parent="", ran_on="host", outputs=comparison.outputs, samples=1)
    assert judge(report, "fp32").failures == (
        "output 'b': is missing: the candidate has no output in its place (sample 0)",
    )


def test_integers_that_differ_report_k_of_n():
    verdict = judge(report_of((np.arange(6), np.array([0, 1, 2, 3, 5, 4]))), "fp32")
    assert "integer output: exact match 4/6" in verdict.failures[0]


def test_booleans_that_differ_report_k_of_n():
    a = np.array([True] * 9)
    b = a.copy()
    b[0] = False
    assert "boolean output: exact match 8/9" in judge(report_of((a, b)), "fp32").failures[0]


def test_another_width_of_dtype_fails_fp32_alone():
    report = report_of((np.ones(4, "f4"), np.ones(4, "f2")))
    assert judge(report, "fp32").failures == ("output 'y0': has dtype float16, and the reference has float32",)
    assert judge(report, "fp16").passed


@pytest.mark.parametrize("value", [0.0, 5.0])
def test_zero_constant_empty_and_scalar_outputs_pass_when_equal(value):
    arrays = [np.full(shape, value, "f4") for shape in [(2, 3), (), (1,), (0, 4)]]
    assert judge(report_of(*((a, a) for a in arrays)), "fp32").passed


def test_a_scalar_is_judged_by_its_relative_difference():
    assert not judge(report_of((np.float32(2.0), np.float32(-2.0))), "fp32").passed
    assert judge(report_of((np.float32(2.0), np.float32(2.00001))), "fp32").passed


def test_nothing_compared_is_no_pass():
    empty = ValidationReport(parent="", ran_on="host")
    assert judge(empty, "fp32").failures == ("nothing was compared: the report holds no sample or no output",)


# ------------------------------------------------------------------------------------------------- the absolute floor


def test_differences_of_2e_7_in_nearly_zero_outputs_pass_and_are_remarked():
    a = (np.abs(normal(1, 64, 64)) * 1e-5).astype("f4")
    verdict = judge(report_of((a, a + (normal(1, 64, 64) * 7e-8).astype("f4"))), "fp32")
    assert verdict.passed
    assert "below the absolute floor" in verdict.remarks[0]


def test_a_doubled_output_fails_however_small_it_is():
    a = normal(1, 100) * np.float32(1e-8)
    assert not judge(report_of((a, a * 2)), "fp32").passed


def test_almost_nothing_where_the_reference_is_zero_passes_up_to_the_floor():
    zero = np.zeros((2, 3), "f4")
    assert judge(report_of((zero, zero + np.float32(1e-7))), "fp32").passed
    assert not judge(report_of((zero, zero + np.float32(1e-3))), "fp32").passed


def test_the_floor_can_be_turned_off():
    zero = np.zeros((2, 3), "f4")
    assert not judge(report_of((zero, zero + np.float32(1e-7))), "fp32", {"floor": 0.0}).passed


# ---------------------------------------------------------------------------------------------------------- overrides


def test_an_override_replaces_one_threshold_and_is_in_the_verdict():
    a = normal(16, 256)
    report = report_of((a, a * (1 + np.float32(2e-3) * normal(16, 256))))
    verdict = judge(report, "fp32", {"rel_l2": 0.01, "cosine": 0.999, "norm_ratio": 0.01})
    assert verdict.passed
    assert (verdict.thresholds["rel_l2"], verdict.thresholds["worst_row_cosine"]) == (0.01, 0.9999)


def test_max_abs_is_judged_where_asked():
    a = normal(4)
    report = report_of((a, a + np.float32(1e-6)))
    assert judge(report, "fp32").passed
    assert "max_abs" in judge(report, "fp32", {"max_abs": 1e-7}).failures[0]


def test_argmax_agreement_is_judged_where_asked():
    a = np.array([[1.0, 1.0 + 1e-6], [3.0, 1.0]], "f4")
    b = np.array([[1.0 + 1e-6, 1.0], [3.0, 1.0]], "f4")
    assert judge(report_of((a, b)), "fp32").passed
    assert "argmax agreement 0.5 is below 1" in judge(report_of((a, b)), "fp32", {"argmax_agreement": 1.0}).failures[0]


def test_a_metric_of_the_user_is_at_least_its_threshold():
    a = normal(4)
    report = report_of((a, a), user={"iou": lambda r, c: 0.8})
    assert judge(report, "fp32").passed
    assert judge(report, "fp32", {"iou": 0.8}).passed
    assert judge(report, "fp32", {"iou": 0.9}).failures[0].startswith("output 'y0': iou 0.8 is below 0.9")


@pytest.mark.parametrize("name", ["iou", "argmax_agreement"])
def test_a_gate_on_what_was_not_measured_is_refused(name):
    with pytest.raises(UsageError, match=name) as refusal:
        judge(report_of((np.float32(1), np.float32(1))), "fp32", {name: 0.5})
    assert refusal.value.code == "CNV-2053"


@pytest.mark.parametrize("state", ["compared", "scalar", "exact"])
def test_a_report_without_the_metrics_of_its_state_fails(state):
    output = OutputMetrics(name="y", dtype="float32", shape=(3,), state=state, samples=1)
    report = ValidationReport(parent="", ran_on="device", outputs=(output,), samples=1)
    assert "is not in the report" in judge(report, "fp32").failures[0]


def test_names_with_control_characters_are_escaped_in_sentences():
    a = normal(3)
    comparison = fold([compare_outputs([a], [-a], ["\x1b[31m\n"])])
    report = ValidationReport(parent="", ran_on="host", outputs=comparison.outputs, samples=1)
    assert all(text.startswith(r"output '\x1b[31m\n': ") for text in judge(report, "fp32").failures)


def test_the_error_is_one_line_with_the_first_failures():
    report = report_of(*((normal(3, 4), normal(3, 4)) for _ in range(3)))
    error = gate_failed(judge(report, "fp16"), "resnet18 for cpu")
    assert (error.code, error.exit_code, "\n" in str(error)) == ("CNV-8001", 8, False)
    assert str(error).startswith("resnet18 for cpu differs from the reference beyond the gate: output 'y0'")
    assert "more" in str(error)


# ------------------------------------------------------------------------------------------------------------- parsing


def test_gate_texts_become_thresholds():
    assert parse_gate(["cosine=0.999", " rel_l2 = 1e-2 "]) == {"cosine": 0.999, "rel_l2": 0.01}


def test_unknown_metrics_are_listed_at_once_with_the_nearest_names():
    with pytest.raises(UsageError, match=r"'cosin' \(did you mean cosine.*'rel_2' \(did you mean rel_l2") as refusal:
        parse_gate(["cosin=1", "rel_2=1", "max_abs=1"])
    assert (refusal.value.code, refusal.value.exit_code) == ("CNV-2051", 2)


def test_a_name_of_the_users_metric_is_known():
    assert parse_gate(["iou=0.9"], known=["iou"]) == {"iou": 0.9}


@pytest.mark.parametrize(
    "text",
    ["cosine", "cosine=", "cosine=high", "cosine=nan", "cosine=2", "rel_l2=-1", "rel_l2=inf", "=1", "cosine<0.9"],
)
def test_texts_that_are_no_gate_are_refused(text):
    with pytest.raises(UsageError) as refusal:
        parse_gate([text])
    assert refusal.value.code in ("CNV-2051", "CNV-2052")
    assert refusal.value.hint


@pytest.mark.parametrize("precision", THRESHOLDS)
def test_the_documented_thresholds_are_those_of_the_table(precision):
    page = (Path(__file__).parents[2] / "docs/concepts/gate.md").read_text()
    table = page.partition("## The thresholds")[2].partition("`benchmarks/")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    line = next(line for line in rows if precision in line.split("|")[1].replace(",", "").split())
    told = [float(cell.replace("1 ±", "")) for cell in line.split("|")[2:-1]]
    limits = THRESHOLDS[precision]
    assert told == [
        limits.cosine,
        limits.worst_row_cosine,
        limits.rel_l2,
        limits.norm_ratio,
        limits.exact_match,
        limits.floor,
    ]


def test_every_default_threshold_is_a_metric_and_stricter_at_higher_precision():
    for fields in map(msgspec.structs.asdict, THRESHOLDS.values()):
        assert fields.keys() <= METRICS.keys()
    order = [THRESHOLDS[precision] for precision in ("fp32", "fp16", "bf16", "int8")]
    for tight, loose in itertools.pairwise(order):
        assert tight.cosine >= loose.cosine and tight.rel_l2 <= loose.rel_l2 and tight.norm_ratio <= loose.norm_ratio
