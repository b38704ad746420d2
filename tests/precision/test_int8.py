"""int8: ranges, pairs around products, and an image model trained here that keeps its answers."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession
from precision_graphs import graph_in
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from convert.arrays import load_npz
from convert.errors import UsageError
from convert.ort import run_samples
from convert.precision.calibrate import calibrated
from convert.precision.flow import prepared
from convert.precision.qdq import quantized_model
from convert.precision.rounding import quantized
from convert.stages.forecast import forecast_graph
from convert.stages.quantize import quantize_graph
from convert.values import ForecastOptions, OnnxGraph, QuantizeOptions

TRAINED, BATCH = 1200, 100


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> OnnxGraph:
    """A network for handwritten digits, trained on the first 1200; calibrated on 300 of those, judged on others."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order], labels[order]
    net = MLPClassifier((64, 32), max_iter=12, batch_size=50, learning_rate_init=0.01, random_state=0, tol=0.0,
                        n_iter_no_change=99)  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.fit(images[:TRAINED], labels[:TRAINED])
    parts = [images[start : start + BATCH] for start in range(0, 1700, BATCH)]
    feeds = [{"x": part} for part in parts[TRAINED // BATCH :]]
    return graph_in(tmp_path_factory.mktemp("digits") / "g", _network(net), feeds, [{"x": part} for part in parts[:3]])


def _network(net: MLPClassifier) -> onnx.ModelProto:
    nodes, weights, value = [], [], "x"
    for number, (weight, bias) in enumerate(zip(net.coefs_, net.intercepts_, strict=True)):
        weights += [numpy_helper.from_array(weight.astype(np.float32), f"w{number}")]
        weights += [numpy_helper.from_array(bias.astype(np.float32), f"b{number}")]
        last = number == len(net.coefs_) - 1
        out = "y" if last else f"h{number}"
        nodes.append(helper.make_node("Gemm", [value, f"w{number}", f"b{number}"], [out], name=f"layer{number}"))
        if not last:
            nodes.append(helper.make_node("Relu", [out], [f"r{number}"], name=f"relu{number}"))
            value = f"r{number}"
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [BATCH, 64]), ("y", [BATCH, 10]))
    ]
    graph = helper.make_graph(nodes, "digits", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _agreement(graph: OnnxGraph, other: OnnxGraph) -> float:
    feeds = [load_npz(graph.path(f"samples/{number:03d}.npz")) for number in range(graph.sample_count)]
    left, right = (run_samples(one.model_path, feeds) for one in (graph, other))
    return float(np.mean([(a[0].argmax(1) == b[0].argmax(1)).mean() for a, b in zip(left, right, strict=True)]))


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_quantized_digits_keep_their_answers_on_held_back_images(digits: OnnxGraph, tmp_path: Path, method):
    made = quantize_graph(digits, QuantizeOptions(calibration=method), tmp_path / "q")
    assert made.ops["QuantizeLinear"] >= 3
    assert made.notes[0].text == f"int8: ranges ({method}) from 3 calibration inputs"
    assert made.notes[1].text == "3 of 3 products are int8"
    assert _agreement(digits, made) >= 0.98
    kept = {entry.name for entry in made.files}
    assert {"reference/000.npz", "samples/000.npz", "calibration/000.npz"} <= kept


def test_the_forecast_of_int8_is_what_the_quantized_graph_gives(digits: OnnxGraph, tmp_path: Path):
    forecast = forecast_graph(digits, ForecastOptions(precision="int8"), tmp_path / "f")
    made = quantize_graph(digits, QuantizeOptions(), tmp_path / "q")
    assert forecast.holds
    feed = load_npz(digits.path("samples/000.npz"))
    wanted = load_npz(digits.path("reference/000.npz"))["0"]
    gave = run_samples(made.model_path, [feed])[0][0]
    error = float(np.linalg.norm(gave - wanted) / np.linalg.norm(wanted))
    assert error <= float(forecast.outputs[0].rel_l2 or 0) * 1.5


def test_a_gate_that_int8_breaks_names_the_layers_and_leaves_some_in_float(digits: OnnxGraph, tmp_path: Path):
    whole = forecast_graph(digits, ForecastOptions(precision="int8"), tmp_path / "whole")
    limit = float(whole.outputs[0].rel_l2 or 0) * 0.6
    options = ForecastOptions(precision="int8", plan=True, gate={"rel_l2": limit})
    forecast = forecast_graph(digits, options, tmp_path / "f")
    assert not forecast.holds
    assert {node.node for node in forecast.guilty} <= {"layer0", "layer1", "layer2"}
    assert forecast.plan_holds
    assert 0 < len(forecast.keep) < 3
    made = quantize_graph(digits, QuantizeOptions(keep=forecast.keep), tmp_path / "q")
    assert f"{3 - len(forecast.keep)} of 3 products are int8; in float: " in made.notes[1].text


def test_ranges_merge_over_runs_and_percentiles_leave_outliers_out(digits: OnnxGraph, tmp_path: Path):
    model = prepared(onnx.load(digits.model_path))
    feeds = [load_npz(digits.path("samples/000.npz")), load_npz(digits.path("samples/001.npz"))]
    feeds.append({"x": np.where(np.arange(6400).reshape(BATCH, 64) == 7, np.float32(50), feeds[0]["x"])})
    found = {
        method: calibrated(model, ["x", "h0"], feeds, method, weights=tmp_path, scratch=tmp_path / "s")
        for method in ("minmax", "percentile")
    }
    assert found["minmax"]["x"] == (0.0, 50.0)
    assert found["percentile"]["x"][1] < 2.0
    assert found["minmax"]["h0"][0] < 0.0 < found["minmax"]["h0"][1]


def test_int8_needs_opset_13_and_own_pairs_are_taken(make_graph, tmp_path: Path):
    ones = {"x": np.ones((4, 16), np.float32)}
    old = make_graph("g (float[4,16] x) => (float[4,16] y) { y = Relu(x) }", ones, opset=11)
    with pytest.raises(UsageError) as refusal:
        quantize_graph(old, QuantizeOptions(), tmp_path / "old")
    assert refusal.value.code == "CNV-2321"
    pairs = """g (float[4,16] x) => (float[4,16] y) <float s = {0.1}, int8 z = {0}> {
        q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"""
    own = make_graph(pairs, ones)
    made = quantize_graph(own, QuantizeOptions(), tmp_path / "own")
    assert made.stage == "quantize"
    assert made.notes[0].text.startswith("not quantized: its own pairs")
    assert quantized(np.float32([1.04]), np.float32(0.1))[0] == pytest.approx(1.0)


def test_calibration_inputs_of_a_torch_model_reach_the_graph_by_its_input_names(tmp_path: Path):
    import torch

    from convert.stages.export import export_graph
    from convert.stages.load import load_model
    from convert.stages.simplify import simplify_graph
    from convert.values import ExportOptions, LoadOptions, SimplifyOptions

    torch.jit.save(torch.jit.script(torch.nn.Linear(4, 3)), str(tmp_path / "m.pt"))
    (tmp_path / "cal").mkdir()
    wanted = [np.full((2, 4), number, np.float32) for number in range(3)]
    for number, values in enumerate(wanted):
        torch.save(((torch.from_numpy(values),), {}), tmp_path / "cal" / f"{number}.pt")
    options = LoadOptions(
        path=str(tmp_path / "m.pt"), inputs=("input:float32[2,4]",), calibration=str(tmp_path / "cal")
    )
    loaded = load_model(options, tmp_path / "loaded")
    assert (loaded.sample_count, loaded.calibration_count) == (1, 3)
    (tmp_path / "export").mkdir()
    graph = export_graph(loaded, options, ExportOptions(exporter="torchscript"), tmp_path / "export")
    (tmp_path / "simple").mkdir()
    simplified = simplify_graph(graph, SimplifyOptions(mode="off", reason="asked for"), tmp_path / "simple")
    assert simplified.calibration_count == 3
    name = simplified.inputs[0].name
    held = [load_npz(simplified.path(f"calibration/{number:03d}.npz"))[name] for number in range(3)]
    assert all(np.array_equal(one, other) for one, other in zip(held, wanted, strict=True))


def test_int8_is_forecast_below_opset_13_for_toolchains_that_calibrate_themselves(make_graph, tmp_path: Path):
    text = """g (float[4,16] x) => (float[4,16] y) <float[16,16] w = {WEIGHTS}> { y = MatMul(x, w) }"""
    weights = ", ".join(str(round(float(value), 3)) for value in np.random.default_rng(2).normal(size=256))
    samples = {"x": np.random.default_rng(1).normal(size=(4, 16)).astype(np.float32)}
    old = make_graph(text.replace("WEIGHTS", weights), samples, opset=11)
    forecast = forecast_graph(old, ForecastOptions(precision="int8", gate={"rel_l2": 0.2}), tmp_path / "f")
    assert forecast.parent == old.digest
    assert 0 < forecast.outputs[0].rel_l2 < 0.05


def test_a_bias_that_several_products_share_takes_no_name_that_is_another_values(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((2, 2, 1, 1), np.float32), "w")
    bias = numpy_helper.from_array(np.ones(2, np.float32), "b")
    # The quantizer's copies of `b` are b0, b1, …: values of a real graph were called so.
    names = ["x", "b0", "b1", "b2"]
    nodes = [helper.make_node("Conv", [given, "w", "b"], [made], name=made) for given, made in pairwise(names)]
    shape = [1, 2, 3, 3]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "b2")]
    model = helper.make_model(
        helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight, bias]), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 8
    made = quantized_model(model, dict.fromkeys(names, (-20.0, 20.0)), (), weights=tmp_path)
    feed = {"x": np.ones(shape, np.float32)}
    exact, rounded = (InferenceSession(one.SerializeToString()).run(None, feed)[0] for one in (model, made))
    assert np.abs(exact - rounded).max() < 1.0
