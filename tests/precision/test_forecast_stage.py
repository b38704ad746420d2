"""The forecast of whole graphs: bodies, inputs, integer outputs, memory, interruption, big graphs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from failing_models import FAILING, ROWS
from onnx import TensorProto, helper, numpy_helper

from artifacts.digest import sha256_file
from convert.bigmodel import externalize
from convert.errors import GateFailed, UsageError
from convert.forecasting import read_table
from convert.precision.plan import Planner
from convert.precision.progress import Progress
from convert.precision.study import Study
from convert.stages.forecast import forecast_graph
from convert.values import ForecastOptions

FP16 = ForecastOptions(precision="fp16", plan=True)
LOOP = """g (float[4,16] x) => (float[4,16] y) <int64 n = {6}, bool go = {1}, float k = {12}, float s = {0.0001}> {
    [loop] z = Loop(n, go, x) <body = b (int64 i, bool c, float[4,16] v) => (bool d, float[4,16] w) {
        [grow] w = Mul(v, k) [same] d = Identity(c) }>
    [shrink] y = Mul(z, s) }"""
BRANCH = """g (float[4,16] x, bool c) => (float[4,16] y) <float s = {1000}> {
    [up] a = Mul(x, s)
    [if] y = If(c) <then_branch = t () => (float[4,16] o) { [blow] p = Mul(a, s) [down] q = Div(p, s)
        [down2] o = Div(q, s) }, else_branch = e () => (float[4,16] o) { [else] o = Identity(x) }> }"""


def test_a_loop_is_looked_into_and_its_guilty_node_kept(make_graph, tmp_path: Path):
    forecast = forecast_graph(make_graph(LOOP, {"x": ROWS}), FP16, tmp_path / "f")
    assert not forecast.holds
    assert forecast.guilty[0].node == "grow"
    assert forecast.plan_holds
    assert set(forecast.keep) == {"grow", "shrink"}


def test_a_branch_is_looked_into_where_it_is_taken(make_graph, tmp_path: Path):
    taken = make_graph(BRANCH, {"x": ROWS, "c": np.array(True)})
    forecast = forecast_graph(taken, FP16, tmp_path / "taken")
    assert forecast.guilty[0].node == "blow"
    assert set(forecast.keep) == {"blow", "down"}
    other = make_graph(BRANCH, {"x": ROWS, "c": np.array(False)})
    assert forecast_graph(other, FP16, tmp_path / "other").holds


def test_a_local_function_is_looked_into(make_graph, tmp_path: Path):
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17, "own" : 1]>'
        " g (float[4,16] x) => (float[4,16] y) { [call] y = own.blow(x) }"
        ' <domain: "own", opset_import: ["" : 17]> blow (x) => (y)'
        " { k = Constant<value = float {100000.0}>() b = Mul(x, k) c = Div(b, k) y = Identity(c) }"
    )
    forecast = forecast_graph(make_graph(model, {"x": ROWS}), FP16, tmp_path / "f")
    assert not forecast.holds
    assert forecast.guilty[0].op == "Mul"


def test_every_sample_counts(make_graph, tmp_path: Path):
    text = "g (float[4,16] x) => (float[4,16] y) <float k = {100}> { [up] a = Mul(x, k) [down] y = Div(a, k) }"
    assert forecast_graph(make_graph(text, {"x": ROWS}), FP16, tmp_path / "one").holds
    forecast = forecast_graph(make_graph(text, {"x": ROWS}, {"x": 1000 * ROWS}), FP16, tmp_path / "two")
    assert not forecast.holds
    assert forecast.samples == 2
    assert forecast.guilty[0].node == "up"


def test_an_input_beyond_the_range_is_its_readers_fault(make_graph, tmp_path: Path):
    text = "g (float[4,16] x) => (float[4,16] y) <float k = {0.00001}> { [down] a = Mul(x, k) [relu] y = Relu(a) }"
    forecast = forecast_graph(make_graph(text, {"x": 1e6 * ROWS}), FP16, tmp_path / "f")
    assert forecast.guilty[0].node == "down"
    assert forecast.guilty[0].reasons[0].startswith("input 'x' reaches")
    assert forecast.keep == ("down",)


def test_a_class_index_that_flips_is_followed_to_what_it_was_searched_in(make_graph, tmp_path: Path):
    text = """g (float[4,16] x) => (int64[4] y) <float k = {100000}> {
        [up] a = Mul(x, k) [down] b = Div(a, k) [best] y = ArgMax<axis = 1, keepdims = 0>(b) }"""
    forecast = forecast_graph(make_graph(text, {"x": ROWS}), FP16, tmp_path / "f")
    assert not forecast.holds
    assert forecast.guilty[0].node == "up"


def test_the_nodes_of_the_file_come_in_order_with_ranges_and_errors(make_graph, tmp_path: Path):
    forecast = forecast_graph(make_graph(LOOP, {"x": ROWS}), FP16, tmp_path / "f")
    nodes = read_table(forecast)
    assert [node.node for node in nodes] == ["grow", "same", "shrink"]
    grow = nodes[0]
    assert grow.high == pytest.approx(float(ROWS.max()) * 12**6, rel=1e-5)
    assert 0.0 < grow.overflow < 1.0
    assert grow.effect == {"y": 1e9}
    assert forecast.files[0].sha256 == sha256_file(forecast.path("forecast.json"))


def test_rounding_noise_is_planned_in_few_passes(make_graph, tmp_path: Path):
    body = "".join(f"[mul{i}] m{i} = MatMul(t{i}, w{i}) [act{i}] t{i + 1} = Tanh(m{i}) " for i in range(12))
    rng = np.random.default_rng(1)
    model = _with_weights(body, [rng.standard_normal((16, 16)).astype(np.float32) / 4 for _ in range(12)])
    graph = make_graph(model, {"t0": ROWS})
    first = forecast_graph(graph, ForecastOptions(precision="fp16"), tmp_path / "first")
    limit = float(first.outputs[0].rel_l2 or 0) * 0.7
    options = ForecastOptions(precision="fp16", plan=True, gate={"rel_l2": limit})
    forecast = forecast_graph(graph, options, tmp_path / "f")
    assert forecast.plan_holds
    assert 0 < len(forecast.keep) < 24
    assert float(forecast.planned[0].rel_l2 or 1) <= limit
    assert forecast.evaluations <= 10


def _with_weights(body: str, weights: list[np.ndarray]) -> onnx.ModelProto:
    text = '<ir_version: 9, opset_import: ["" : 17]> g (float[4,16] t0) => (float[4,16] t12) {' + body + "}"
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(weights))
    return model


def test_where_all_in_fp32_breaks_the_gate_the_search_is_not_begun(make_graph, tmp_path: Path):
    graph = make_graph(FAILING["a mask of -1e9"].text, FAILING["a mask of -1e9"].feed)
    np.savez(graph.path("reference/000.npz"), **{"0": np.ones((4, 16), np.float32)})
    forecast = forecast_graph(graph, FP16, tmp_path / "f")
    assert (forecast.holds, forecast.plan_holds, forecast.keep) == (False, False, ())
    assert forecast.evaluations == 2
    assert any(note.text.startswith("plan: even all in fp32 breaks it") for note in forecast.notes)


def test_a_search_that_was_interrupted_goes_on(make_graph, tmp_path: Path):
    case = FAILING["a scale that collapses"]
    graph = make_graph(case.text, case.feed)
    study = Study(graph, FP16, tmp_path / "s")
    progress = Progress(tmp_path / "searches", "key")
    done = Planner(study, study.evaluate(), known=progress.checks, tell=progress.add).plan()
    again = Study(graph, FP16, tmp_path / "s2")
    kept = Progress(tmp_path / "searches", "key")
    assert [check.keep for check in kept.checks] == [check.keep for check in progress.checks]
    assert Planner(again, again.evaluate(), known=kept.checks, tell=kept.add).plan().keep == done.keep
    assert again.passes == 2
    kept.done()
    assert list((tmp_path / "searches").iterdir()) == []


def test_external_weights_are_read_where_they_lie_and_scratch_is_removed(make_graph, tmp_path: Path):
    weight = np.random.default_rng(2).standard_normal((16, 512)).astype(np.float32)
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> g (float[4,16] x) => (float[4,512] y) { [mul] y = MatMul(x, w) }'
    )
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    graph = make_graph(model, {"x": ROWS})
    inside = forecast_graph(graph, FP16, tmp_path / "inside")
    externalize(model, graph.path("model.onnx.data"))
    graph.model_path.write_bytes(model.SerializeToString())
    outside = forecast_graph(graph, FP16, tmp_path / "outside")
    assert outside.outputs == inside.outputs
    assert sorted(path.name for path in (tmp_path / "outside").iterdir()) == ["forecast.json"]


def test_less_memory_means_fewer_elements_and_the_same_verdict(make_graph, tmp_path: Path):
    case = FAILING["a large reduction"]
    graph = make_graph(case.text, case.feed)
    small = ForecastOptions(precision="fp16", plan=True, memory=1 << 12)
    study = Study(graph, small, tmp_path / "s")
    assert study.prober.elements < Study(graph, FP16, tmp_path / "s2").prober.elements
    forecast = forecast_graph(graph, small, tmp_path / "f")
    assert (forecast.guilty[0].node, forecast.keep) == ("reduce", ("reduce",))


def test_a_graph_of_thousands_of_nodes_is_walked_a_fixed_number_of_times(tmp_path: Path, make_graph):
    nodes = [
        helper.make_node(("Relu", "Tanh", "Neg")[i % 3], [f"t{i}"], [f"t{i + 1}"], name=f"n{i}") for i in range(3000)
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("t0", TensorProto.FLOAT, [2, 8])], [value("t3000", TensorProto.FLOAT, [2, 8])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    study = Study(make_graph(model, {"t0": ROWS[:2, :8]}), FP16, tmp_path / "s")
    assert len(study.tensors) == 3001
    evaluation = study.evaluate()
    assert len(evaluation.table.tensors) == 3001
    assert [blame.output for blame in study.blames(evaluation)] == ["t3000"]
    assert study.passes == 2


def test_a_graph_that_onnxruntime_can_not_run_is_told(make_graph, tmp_path: Path):
    graph = make_graph(LOOP, {"x": ROWS})
    lacking = msgspec.structs.replace(
        graph, files=tuple(entry for entry in graph.files if not entry.name.startswith("reference/"))
    )
    with pytest.raises(GateFailed) as failure:
        forecast_graph(lacking, FP16, tmp_path / "f")
    assert failure.value.code == "CNV-8102"


def test_bf16_below_opset_13_is_refused(make_graph, tmp_path: Path):
    graph = make_graph("g (float[4,16] x) => (float[4,16] y) { y = Relu(x) }", {"x": ROWS}, opset=11)
    with pytest.raises(UsageError) as refusal:
        forecast_graph(graph, ForecastOptions(precision="bf16"), tmp_path / "f")
    assert refusal.value.code == "CNV-2321"


def test_fp32_is_the_reference_itself(make_graph, tmp_path: Path):
    forecast = forecast_graph(make_graph(LOOP, {"x": ROWS}), ForecastOptions(precision="fp32"), tmp_path / "f")
    assert forecast.holds
    assert forecast.outputs[0].rel_l2 == pytest.approx(0.0, abs=1e-6)


def test_a_tensor_of_another_size_than_onnx_infers_ends_in_a_forecast(make_graph, tmp_path: Path):
    """Of STFT with a window alone onnx's shape inference says 16 bins, and there are 9."""
    text = """g (float[1,64,1] x) => (float[1,7,9,2] y)
        <int64 step = {8}, float[16] window = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}> { [s] y = STFT(x, step, window) }"""
    sound = np.random.default_rng(2).normal(size=(1, 64, 1)).astype(np.float32)
    forecast = forecast_graph(make_graph(text, {"x": sound}), FP16, tmp_path / "f")
    assert forecast.holds
    assert forecast.outputs[0].rel_l2 is not None
    assert 0 < forecast.outputs[0].rel_l2 < 0.005
