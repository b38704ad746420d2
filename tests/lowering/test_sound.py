"""What is no valid ONNX is said part by part, also where onnx's own checker lets it pass or raises something else."""

from __future__ import annotations

import math

import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper, parser

from convert.errors import ExportError
from convert.lowering.sound import require_sound, unsound

TYPES = [number for name, number in TensorProto.DataType.items() if name not in ("UNDEFINED", "STRING")]
RELU = '<ir_version: 9, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'


def model_with(tensor: TensorProto) -> onnx.ModelProto:
    model = parser.parse_model(RELU)
    model.ir_version = onnx.IR_VERSION
    model.graph.initializer.append(tensor)
    return model


@pytest.mark.parametrize("kind", TYPES, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("dims", [[], [0], [3], [2, 3], [5]], ids=str)
def test_weights_of_every_type_are_sound_until_they_hold_more_than_their_shape(kind: int, dims: list[int]) -> None:
    tensor = helper.make_tensor("w", kind, dims, [1] * math.prod(dims))
    assert list(unsound(model_with(tensor))) == []
    raw = numpy_helper.from_array(numpy_helper.to_array(tensor), "w")
    assert list(unsound(model_with(raw))) == []
    raw.raw_data += b"\0"
    assert [line.partition(" of ")[0] for line in unsound(model_with(raw))] == ["the weight 'w'"]


def test_values_beyond_the_shape_are_refused() -> None:
    with pytest.raises(ExportError, match=r"the weight 'w' of \[1\] holds 2 values") as raised:
        require_sound(model_with(TensorProto(name="w", data_type=TensorProto.INT64, dims=[1], int64_data=[1, 2])))
    assert raised.value.code == "CNV-4221"


def test_a_sparse_weight_whose_indices_do_not_fit_is_refused() -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor("", TensorProto.INT64, [2], [0, 3])
    indices.int64_data.append(1)
    model = parser.parse_model(RELU)
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    assert len(list(unsound(model))) == 1


def test_an_attribute_of_a_function_is_none_of_a_graph() -> None:
    text = """<ir_version: 9, opset_import: ["" : 17, "local" : 1]> g (float[2] x) => (float[2] y) { y = local.f(x) }
        <domain: "local", opset_import: ["" : 17]> f <a> (x) => (y) { y = LeakyRelu <alpha: float = @a> (x) }"""
    model = parser.parse_model(text)
    assert list(unsound(model)) == []
    reference = AttributeProto(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="a")
    model.graph.node.append(helper.make_node("LeakyRelu", ["x"], ["z"], name="here"))
    model.graph.node[-1].attribute.append(reference)
    assert list(unsound(model)) == ["the node 'here' (LeakyRelu) refers to an attribute of a function, and is in none"]


@pytest.mark.parametrize("body", ["y = Relu(x) y = Abs(x)", "x = Relu(y) y = Abs(x)"], ids=["by two", "given too"])
def test_a_value_that_is_made_twice_is_refused(body: str) -> None:
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) {{ {body} }}')
    with pytest.raises(ExportError, match="is made more than once") as raised:
        require_sound(model)
    assert raised.value.code == "CNV-4221"
