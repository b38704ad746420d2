"""``convert forecast``, and the precisions that need a forecast, from the command line to the artifact."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from failing_models import FAILING
from precision_graphs import parsed

from artifacts.cli import run_boundary
from convert.__main__ import cli

MASKED = FAILING["a mask of -1e9"]


@pytest.fixture
def masked(tmp_path: Path) -> tuple[str, str]:
    onnx.save(parsed(MASKED.text), tmp_path / "masked.onnx")
    np.savez(tmp_path / "masked.npz", **MASKED.feed)
    return str(tmp_path / "masked.onnx"), str(tmp_path / "masked.npz")


def _convert(*words: str) -> int:
    return run_boundary(cli, list(words), prog="convert", usage_code="CNV-2000")


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict]:
    code = _convert(*words, "--json", "--quiet")
    return code, json.loads(capsys.readouterr().out)


def test_the_document_names_outputs_guilty_nodes_passes_and_the_plan(masked, capsys, tmp_path: Path):
    model, samples = masked
    page = tmp_path / "page.html"
    words = ("forecast", model, "--precision", "fp16", "--samples", samples, "--html", str(page))
    code, document = _json(capsys, *words)
    assert code == 8
    assert document["error"]["code"] == "CNV-8101"
    assert document["holds"] is False
    assert document["outputs"][0]["name"] == "y"
    assert {"cosine", "rel_l2"} <= document["outputs"][0].keys()
    first = document["guilty"][0]
    assert (first["node"], first["op"], first["module"]) == ("mask", "Mul", "")
    assert first["reason"].startswith("a mask of -1e+09")
    assert document["keep"] == ["mask"]
    assert document["evaluations"] == 3
    assert [node["node"] for node in document["nodes"]] == ["invert", "mask", "masked", "softmax"]
    text = page.read_text(encoding="utf-8")
    assert "<svg" in text
    assert "a mask of -1e+09" in text
    assert not {"http://", "https://"} & set(text.split('"'))
    assert "src=" not in text


def test_people_read_the_verdict_the_worst_nodes_and_the_plan(masked, capsys):
    model, samples = masked
    assert _convert("forecast", model, "-p", "fp16", "--samples", samples, "--quiet") == 8
    shown = capsys.readouterr()
    assert "masked  fp16  DOES NOT HOLD  4 nodes, 1 sample (given)" in shown.out
    assert "plan      keep 1 in fp32: mask" in shown.out
    assert "hint: with one node kept in fp32 it holds: --precision mixed does that" in shown.err


def test_a_forecast_that_holds_exits_0(masked, capsys):
    model, samples = masked
    code, document = _json(capsys, "forecast", model, "-p", "bf16", "--samples", samples)
    assert (code, document["holds"], document["error"], document["keep"]) == (0, True, None, [])


def test_names_of_a_stranger_are_escaped_in_the_page(tmp_path: Path, capsys):
    model = parsed("g (float[4,16] x) => (float[4,16] y) <float k = {100000}> { [n] a = Mul(x, k) [d] y = Div(a, k) }")
    model.graph.node[0].name = "<script>alert(1)</script>"
    onnx.save(model, tmp_path / "m.onnx")
    page = tmp_path / "p.html"
    _json(capsys, "forecast", str(tmp_path / "m.onnx"), "-p", "fp16", "--html", str(page))
    assert "<script>" not in page.read_text(encoding="utf-8")


def test_mixed_keeps_the_plan_in_the_artifact_and_passes_the_gate(masked, capsys, tmp_path: Path):
    model, samples = masked
    words = ("run", model, "--target", "cpu", "-p", "mixed", "--samples", samples, "--no-publish")
    code, document = _json(capsys, *words, "--out", str(tmp_path / "out"))
    target = document["targets"][0]
    assert code == 0
    assert target["forecast"]["keep"] == ["mask"]
    assert "--keep-fp32=mask" in target["plan"]["argv"]
    assert target["validation"]["passed"]
    artifact = onnx.load(target["artifact"]["path"])
    types = {tensor.name: tensor.data_type for tensor in artifact.graph.initializer}
    assert types["low"] == onnx.TensorProto.FLOAT
    assert onnx.TensorProto.FLOAT16 in types.values()
    compiled = next(stage for stage in target["stages"] if stage["stage"] == "compile")
    assert "1 of 1 nodes of the plan stay in float32" in [note["text"] for note in compiled["notes"]]


def test_auto_climbs_the_ladder_to_the_first_that_holds(masked, capsys, tmp_path: Path):
    model, samples = masked
    words = ("run", model, "--target", "cpu", "-p", "auto", "--samples", samples, "--no-publish")
    code, document = _json(capsys, *words, "--out", str(tmp_path / "out"))
    target = document["targets"][0]
    assert code == 0
    assert [(rung["precision"], rung["state"]) for rung in target["ladder"]] == [
        ("int8", "skipped"),
        ("fp16", "fails"),
        ("bf16", "chosen"),
        ("mixed", "not tried"),
        ("fp32", "not tried"),
    ]
    assert target["precision"] == "bf16"
    assert target["ladder"][1]["reason"].startswith("Mul mask: a mask of -1e+09")
    report = Path(target["folder"], "report.html").read_text(encoding="utf-8")
    assert "fp16 fails" in report


def test_int8_is_quantized_from_the_calibration_inputs(capsys, tmp_path: Path):
    rng = np.random.default_rng(3)
    model = parsed("g (float[4,16] x) => (float[4,8] y) { [product] y = MatMul(x, w) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal((16, 8)).astype(np.float32), "w"))
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "cal").mkdir()
    for number in range(3):
        np.savez(tmp_path / "cal" / f"{number}.npz", x=rng.standard_normal((4, 16)).astype(np.float32))
    words = ("run", str(tmp_path / "m.onnx"), "--target", "cpu", "-p", "int8", "--no-publish")
    code, document = _json(capsys, *words, "--calibration", str(tmp_path / "cal"), "--out", str(tmp_path / "out"))
    target = document["targets"][0]
    assert code == 0
    assert [stage["stage"] for stage in target["stages"]][2:] == [
        *("simplify", "check", "forecast", "quantize", "check", "compile", "validate")
    ]
    quantize = next(stage for stage in target["stages"] if stage["stage"] == "quantize")
    assert quantize["notes"][0]["text"] == "int8: ranges (minmax) from 3 calibration inputs"
    ops = {node.op_type for node in onnx.load(target["artifact"]["path"]).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= ops


def test_ranges_without_finite_ends_are_null_and_told_in_words(tmp_path: Path, capsys):
    onnx.save(parsed("g (float[2,3] x) => (float[2,3] y) { a = Abs(x) b = Neg(a) y = Sqrt(b) }"), tmp_path / "n.onnx")
    words = ("forecast", str(tmp_path / "n.onnx"), "--precision", "fp16", "--no-plan")
    code, document = _json(capsys, *words)
    assert (code, document["error"]["code"]) == (8, "CNV-8101")
    assert (document["nodes"][-1]["low"], document["nodes"][-1]["high"]) == (None, None)
    np.savez(tmp_path / "s.npz", x=np.full((2, 3), np.inf, np.float32))
    page = tmp_path / "page.html"
    assert _convert(*words, "--samples", str(tmp_path / "s.npz"), "--html", str(page), "--quiet") == 8
    assert page.exists()


def test_tensors_without_elements_are_forecast(tmp_path: Path, capsys):
    onnx.save(parsed("g (float[0,3] x) => (float[0,3] y) { a = Exp(x) y = Tanh(a) }"), tmp_path / "n.onnx")
    code, document = _json(capsys, "forecast", str(tmp_path / "n.onnx"), "--precision", "fp16")
    assert (code, document["error"]) == (0, None)


def test_int8_where_nothing_can_be_quantized_says_why(tmp_path: Path, capsys):
    text = "g (float16[2,3] x, float16[3,3] w) => (float16[2,3] y) { y = MatMul(x, w) }"
    onnx.save(parsed(text), tmp_path / "half.onnx")
    words = ("run", str(tmp_path / "half.onnx"), "--target", "cpu", "--precision", "int8", "--no-publish")
    code, document = _json(capsys, *words, "--out", str(tmp_path / "out"))
    error = document["error"] or document["targets"][0]["error"]
    assert (code, error["code"]) == (2, "CNV-2268")
    assert "other types than float32" in error["message"]
