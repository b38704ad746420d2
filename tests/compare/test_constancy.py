"""An output that ignores the input is found even with a single sample."""

import numpy as np
import onnx
import pytest
from onnx import parser

from convert.constancy import constancy_notes, varied
from convert.ort import exact_settings, run_samples

GRAPH = """<ir_version: 8, opset_import: ["": 17]>
agraph (float[2,3] x) => (float[2,3] used, float[2,3] unused) {
    zero = Constant<value_float=0.0>()
    one = Constant<value_float=1.0>()
    used = Mul(x, x)
    nothing = Mul(x, zero)
    unused = Add(nothing, one)
}"""


@pytest.fixture
def model(tmp_path):
    onnx.save(parser.parse_model(GRAPH), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def notes(model, feeds):
    return constancy_notes(model, feeds, run_samples(model, feeds, exact_settings(model)), ["used", "unused"])


@pytest.mark.parametrize("value", [0.0, 1.5])
def test_the_output_that_ignores_its_input_is_named(model, value):
    found = notes(model, [{"x": np.full((2, 3), value, "float32")}])
    assert [(note.level, note.subject) for note in found] == [("warning", "unused")]
    assert "does not depend on the input" in found[0].text


def test_samples_that_differ_are_left_to_the_comparison(model):
    assert notes(model, [{"x": np.ones((2, 3), "float32")}, {"x": np.zeros((2, 3), "float32")}]) == ()


def test_a_variation_keeps_dtypes_shapes_and_integers():
    feed = {"x": np.arange(6, dtype="float16").reshape(2, 3), "ids": np.arange(4), "empty": np.zeros((0, 2), "f4")}
    changed = varied(feed)
    assert {name: (a.dtype, a.shape) for name, a in changed.items()} == {n: (a.dtype, a.shape) for n, a in feed.items()}
    assert (changed["ids"] == feed["ids"]).all() and not (changed["x"] == feed["x"]).all()


def test_a_sample_of_indices_alone_cannot_be_varied():
    assert varied({"ids": np.arange(4)}) is None
