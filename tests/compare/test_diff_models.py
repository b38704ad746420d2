"""``convert diff`` of two model files on the same inputs."""

import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import parser

from convert.errors import UsageError
from convert.gate import judge
from convert.stages.diff import run_both
from convert.stages.diff_options import DiffOptions
from convert.values import LoadOptions

LINEAR = """<ir_version: 8, opset_import: ["": 17]>
agraph (float[2,3] {name}) => (float[2,3] {output}) {{
    f = Constant<value_float={factor}>()
    {output} = Mul({name}, f)
}}"""


class Scale(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


def onnx_file(path, factor=2.0, name="x", output="y"):
    onnx.save(parser.parse_model(LINEAR.format(name=name, output=output, factor=factor)), path)
    return path


def script_file(path, factor=2.0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(Scale(factor).eval()).save(path)
    return path


def verdict_of(left, right, folder, **loading):
    folder.mkdir(exist_ok=True)
    options = DiffOptions(left=LoadOptions(path=str(left), **loading), right=LoadOptions(path=str(right), **loading))
    result = run_both(options, folder)
    return result, judge(result.report, "fp32")


def test_two_equal_onnx_files_agree_though_their_names_differ(tmp_path):
    a = onnx_file(tmp_path / "a.onnx")
    b = onnx_file(tmp_path / "b.onnx", name="images", output="scores")
    result, verdict = verdict_of(a, b, tmp_path / "work")
    assert verdict.passed
    assert (result.left.outputs, result.right.outputs) == (("y",), ("scores",))
    assert result.report.samples == 1
    assert "paired by position: 'y' with 'scores'" in result.report.notes[-1].text


def test_an_onnx_file_with_another_factor_differs_in_its_norm_ratio(tmp_path):
    a, b = onnx_file(tmp_path / "a.onnx"), onnx_file(tmp_path / "b.onnx", factor=4.0)
    _, verdict = verdict_of(a, b, tmp_path / "work")
    assert any("norm ratio 2" in text for text in verdict.failures)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_torchscript_file_and_an_onnx_file_run_on_the_same_inputs(tmp_path, swapped):
    files = [script_file(tmp_path / "a.pt"), onnx_file(tmp_path / "b.onnx", name="images")]
    left, right = files[::-1] if swapped else files
    result, verdict = verdict_of(left, right, tmp_path / "work", inputs=() if swapped else ("x:float32[2,3]",))
    assert verdict.failures == ()
    assert {result.left.format, result.right.format} == {"torchscript", "onnx"}


def test_two_torchscript_files_run_on_given_samples(tmp_path):
    np.savez(tmp_path / "samples.npz", x=np.ones((1, 4), "float32"))
    a, b = script_file(tmp_path / "a.pt"), script_file(tmp_path / "b.pt", factor=-2.0)
    result, verdict = verdict_of(a, b, tmp_path / "work", samples=str(tmp_path / "samples.npz"))
    assert (result.report.samples, result.report.outputs[0].shape) == (1, (1, 4))
    assert result.report.outputs[0].cosine == pytest.approx(-1.0)
    assert not verdict.passed


def test_inputs_that_cannot_be_matched_are_refused_with_both_lists(tmp_path):
    text = """<ir_version: 8, opset_import: ["": 17]>
    agraph (float[2,3] p, float[2,3] q) => (float[2,3] y) { y = Add(p, q) }"""
    onnx.save(parser.parse_model(text), tmp_path / "b.onnx")
    with pytest.raises(UsageError, match=r"A has x; b\.onnx has p, q") as refusal:
        verdict_of(onnx_file(tmp_path / "a.onnx"), tmp_path / "b.onnx", tmp_path / "work")
    assert refusal.value.code == "CNV-2059"


def test_a_model_that_cannot_run_is_named_with_the_reason(tmp_path):
    text = """<ir_version: 8, opset_import: ["": 17, "com.acme": 1]>
    agraph (float[2,3] x) => (float[2,3] y) { y = com.acme.Magic(x) }"""
    onnx.save(parser.parse_model(text), tmp_path / "b.onnx")
    with pytest.raises(UsageError, match=r"b\.onnx can't be run on the samples: .*Magic") as refusal:
        verdict_of(onnx_file(tmp_path / "a.onnx"), tmp_path / "b.onnx", tmp_path / "work")
    assert refusal.value.code == "CNV-2060"
