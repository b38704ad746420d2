"""On models built to fail, the forecast names the guilty node first, and the plan mends them with few nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from failing_models import FAILING

from convert.arrays import load_npz
from convert.forecasting import read_table
from convert.ort import open_session, run_session
from convert.precision import cast_model
from convert.precision.study import Study
from convert.stages.forecast import forecast_graph
from convert.values import ForecastOptions


@pytest.mark.parametrize("name", FAILING)
def test_the_guilty_node_is_named_first_and_few_nodes_mend_it(name, make_graph, tmp_path: Path):
    case = FAILING[name]
    graph = make_graph(case.text, case.feed)
    forecast = forecast_graph(graph, ForecastOptions(precision="fp16", plan=True), tmp_path / "f")
    assert not forecast.holds
    assert forecast.guilty[0].node == case.guilty
    assert forecast.plan_holds
    assert 1 <= len(forecast.keep) <= 2 * case.least
    assert forecast.evaluations <= 6


@pytest.mark.parametrize("name", FAILING)
def test_the_plan_holds_in_the_graph_that_the_caster_makes(name, make_graph, tmp_path: Path):
    case = FAILING[name]
    graph = make_graph(case.text, case.feed)
    forecast = forecast_graph(graph, ForecastOptions(precision="mixed", plan=True), tmp_path / "f")
    model = onnx.load(graph.model_path)
    notes = cast_model(model, "mixed", keep=frozenset(forecast.keep))
    assert f"{len(forecast.keep)} of {len(forecast.keep)} nodes of the plan stay in float32" in {n.text for n in notes}
    outputs = run_session(open_session(model.SerializeToString()), load_npz(graph.path("samples/000.npz")))
    reference = load_npz(graph.path("reference/000.npz"))["0"]
    assert abs(outputs[0] - reference).max() <= 0.01 * abs(reference).max()


def test_reasons_speak_of_the_mask_the_sum_and_the_epsilon(make_graph, tmp_path: Path):
    told = {}
    for number, (name, case) in enumerate(FAILING.items()):
        graph = make_graph(case.text, case.feed)
        forecast = forecast_graph(graph, ForecastOptions(precision="fp16"), tmp_path / f"f{number}")
        told[name] = forecast.guilty[0].reasons[0]
    assert "beyond float16's 65504" in told["overflow in a residual stream"]
    assert told["a mask of -1e9"].startswith("a mask of -1e+09 ('low')")
    assert told["a large reduction"].startswith("the sum that it forms on the way reaches")
    assert "below float16's smallest normal" in told["a scale that collapses"]
    assert told["a tiny epsilon in a norm"].startswith("the small number 1e-12 ('tiny') becomes 0")


def test_a_target_that_sums_in_fp32_keeps_a_large_mean_but_is_warned(make_graph, tmp_path: Path):
    case = FAILING["a large reduction"]
    graph = make_graph(case.text, case.feed)
    forecast = forecast_graph(graph, ForecastOptions(precision="fp16", accumulate="fp32"), tmp_path / "f")
    assert forecast.holds
    nodes = {node.node: node for node in read_table(forecast)}
    assert any("sums 4096 magnitudes" in reason for reason in nodes["reduce"].reasons)


def test_what_overflows_on_every_target_comes_before_a_sum_that_overflows_where_it_is_stored(
    make_graph, tmp_path: Path
):
    text = """g (float[4,64] x) => (float[4,64] y) <float big = {3000}, float tiny = {0.00001}> {
        [up] a = Mul(x, big) [mean] m = ReduceMean<axes=[1]>(a) [centre] d = Sub(a, m) [square] q = Mul(d, d)
        [variance] v = ReduceMean<axes=[1]>(q) [safe] e = Add(v, tiny) [root] r = Sqrt(e) [norm] y = Div(d, r) }"""
    rows = np.abs(np.random.default_rng(1).standard_normal((4, 64))).astype(np.float32)
    forecast = forecast_graph(
        make_graph(text, {"x": rows}), ForecastOptions(precision="fp16", plan=True), tmp_path / "f"
    )
    assert [node.node for node in forecast.guilty[:1]] == ["square"]
    assert "mean" in [node.node for node in forecast.guilty]
    assert forecast.plan_holds


def test_no_node_of_a_plan_can_be_left_out(make_graph, tmp_path: Path):
    for number, case in enumerate(FAILING.values()):
        graph = make_graph(case.text, case.feed)
        options = ForecastOptions(precision="fp16", plan=True)
        keep = forecast_graph(graph, options, tmp_path / f"f{number}").keep
        study = Study(graph, options, tmp_path / f"s{number}")
        assert [name for name in keep if study.evaluate(frozenset(keep) - {name}).verdict.passed] == []


def test_bf16_has_the_range_and_holds_where_fp16_overflows(make_graph, tmp_path: Path):
    case = FAILING["a mask of -1e9"]
    graph = make_graph(case.text, case.feed)
    assert forecast_graph(graph, ForecastOptions(precision="bf16"), tmp_path / "f").holds
