"""Faults in branches, loops, functions and formulas: the guilty node comes first, and few nodes mend it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hidden_models import FUNCTION, HIDDEN, ROWS, SOME
from precision_graphs import parsed

from convert.ladder import narrow_of
from convert.precision.flow import flow_of, prepared
from convert.stages.forecast import forecast_graph
from convert.values import ForecastOptions

PLAN = ForecastOptions(precision="fp16", plan=True)


@pytest.mark.parametrize("name", HIDDEN)
def test_a_hidden_fault_is_named_first_and_mended_by_few_nodes(name, make_graph, tmp_path: Path):
    case = HIDDEN[name]
    model = parsed(case.text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "ax"))
    forecast = forecast_graph(make_graph(model, case.feed), PLAN, tmp_path / "f")
    assert not forecast.holds
    assert forecast.guilty[0].node == case.guilty
    assert forecast.plan_holds
    assert 1 <= len(forecast.keep) <= 2 * case.least
    assert forecast.evaluations <= 6


def test_a_mask_in_a_local_function_is_named(make_graph, tmp_path: Path):
    graph = make_graph(onnx.parser.parse_model(FUNCTION), {"x": ROWS, "keep": SOME})
    forecast = forecast_graph(graph, PLAN, tmp_path / "f")
    assert forecast.guilty[0].node.startswith("mask__")
    assert forecast.plan_holds
    assert len(forecast.keep) == 1


def test_the_sum_of_exponentials_does_not_change_a_logarithm_that_fits(make_graph, tmp_path: Path):
    text = "g (float[2,64] x) => (float[2,1] y) { y = ReduceLogSumExp<axes=[1]>(x) }"
    graph = make_graph(text, {"x": np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)})
    forecast = forecast_graph(graph, ForecastOptions(precision="fp16"), tmp_path / "f")
    assert forecast.holds
    assert forecast.guilty == ()


def test_states_of_loops_are_known_to_come_back():
    for name, back in (
        ("a scale that collapses turn by turn", {"t": "s"}),
        ("a state of a Scan that overflows", {"o": "s"}),
    ):
        assert flow_of(prepared(parsed(HIDDEN[name].text))).carried == back


def test_an_operator_that_only_onnx_runtime_has_does_not_end_the_way_of_an_error(make_graph, tmp_path: Path):
    text = """g (float[4,16] x) => (float[4,16] y) <float big = {300000}, float small = {0.00001}> {
        [up] a = Mul(x, big) [curve] b = com.microsoft.QuickGelu<alpha = 1.0>(a) [down] y = Mul(b, small) }"""
    model = parsed(text)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    flow = flow_of(prepared(model))
    assert flow.types["b"] == "tensor(float)"
    forecast = forecast_graph(make_graph(model, {"x": ROWS}), PLAN, tmp_path / "f")
    assert forecast.guilty[0].node == "up"
    assert forecast.plan_holds


def test_a_mixed_plan_rounds_to_the_type_that_the_others_become(make_graph, tmp_path: Path):
    case = HIDDEN["a weight of -1e9 behind a Where"]
    graph = make_graph(case.text, case.feed)
    found = {}
    for narrow in ("fp16", "bf16"):
        options = ForecastOptions(precision="mixed", plan=True, narrow=narrow)
        found[narrow] = forecast_graph(graph, options, tmp_path / narrow)
    assert found["fp16"].outputs[0].nan_candidate > 0
    assert found["bf16"].outputs[0].nan_candidate == 0
    assert found["bf16"].outputs[0].rel_l2 > 1e-3
    assert narrow_of({"mixed-type": "bf16"}) == "bf16"
    assert narrow_of({}) == "fp16"
