"""What lint finds, each in the smallest graph that has it."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper, parser

from convert.lowering import lint

HEAD = '<ir_version: 8, opset_import: ["": 17]> agraph '


def rules_of(model: onnx.ModelProto) -> list[str]:
    return [finding.rule for finding in lint(model)]


def test_a_clean_model_has_no_findings() -> None:
    assert lint(parser.parse_model(HEAD + "(float[2] x) => (float[2] y) { y = Relu(x) }")) == ()


GRAPHS = {
    "double-node-name": "(float[2] x) => (float[2] y) { [n] h = Relu(x) [n] y = Relu(h) }",
    "unsorted": "(float[2] x) => (float[2] y) { y = Relu(h) h = Relu(x) }",
    "missing-value": "(float[2] x) => (float[2] y) { y = Relu(gone) }",
    "double-value": "(float[2] x) => (float[2] y) { y = Relu(x) y = Abs(x) }",
    "illegal-name": '(float[2] "a b") => (float[2] y) { y = Relu("a b") }',
    "empty-output": "(float[2] x) => (float[2] y) { z = Relu(x) }",
    "no-output": "(float[2] x) => () { z = Relu(x) }",
    "double-output": "(float[2] x) => (float[2] y, float[2] y) { y = Relu(x) }",
    "custom-domain": "(float[2] x) => (float[2] y) { y = mmcv.NMS(x) }",
    "missing-import": "(float[2] x) => (float[2] y) { y = mmcv.NMS(x) }",
    "unknown-operator": "(float[2] x) => (float[2] y) { y = Gelu(x) }",
    "random": "(float[2] x) => (float[2] y) { y = RandomNormalLike(x) }",
    "training-mode": "(float[2] x) => (float[2] y) { t = Constant<value = bool {1}>() y = Dropout(x, , t) }",
    "idle-node": "(float[2] x) => (float[2] y) { y = Relu(x) z = Abs(x) }",
}


@pytest.mark.parametrize(("rule", "graph"), GRAPHS.items(), ids=list(GRAPHS))
def test_each_fault_is_found(rule: str, graph: str) -> None:
    assert rule in rules_of(parser.parse_model(HEAD + graph))


def test_imports_that_do_not_fit_are_found() -> None:
    model = parser.parse_model(
        '<ir_version: 3, opset_import: ["": 17, "": 18, "x": 1]> ' + "a (float x) => (float y) { y = Abs(x) }"
    )
    assert rules_of(model) == ["double-import", "unused-import", "old-ir"]


def test_a_weight_that_is_an_input_and_a_dimension_below_zero_are_found() -> None:
    model = parser.parse_model(HEAD + "(float[2] x, float[1] w) => (float[2] y) { y = Mul(x, w) }")
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [1], [2.0]))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert rules_of(model) == ["weight-as-input", "negative-dim"]


@pytest.mark.parametrize("place", ["../w.bin", "/etc/passwd", "a/../../w", "C:\\w.bin"])
def test_data_outside_of_the_folder_is_found(place: str) -> None:
    model = parser.parse_model(HEAD + "(float[2] x) => (float[2] y) { y = Mul(x, w) }")
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=place)
    model.graph.initializer.append(tensor)
    assert rules_of(model) == ["outside-data"]


def test_everything_is_told_in_one_go() -> None:
    text = HEAD + "(float[2] x) => (float[2] y, float[2] z) { [n] y = Relu(h) [n] h = Gelu(x) }"
    assert sorted(set(rules_of(parser.parse_model(text)))) == [
        "double-node-name",
        "empty-output",
        "unknown-operator",
        "unsorted",
    ]
