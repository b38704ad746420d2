"""What lowering keeps, changes and refuses, on small graphs."""

from __future__ import annotations

import subprocess
import sys

import node_cases
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper, parser

from convert.errors import ExportError
from convert.lowering import LoweringRefused, lower


def model_from(text: str) -> onnx.ModelProto:
    return parser.parse_model(text)


def ops_of(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def assert_same(before: onnx.ModelProto, after: onnx.ModelProto, *inputs: np.ndarray) -> None:
    assert node_cases.check(after) == ""
    expected, found = (node_cases.run_ort(model, inputs) for model in (before, after))
    assert [node_cases.difference(a, b, 1e-4, 1e-6) for a, b in zip(found, expected, strict=True)] == [""] * len(found)


REDUCE = """<ir_version: 8, opset_import: ["": 18]>
agraph (float[2, 3, 4] x) => (float[2, 3] y) <int64[1] axes = {2}> { y = ReduceMean<keepdims = 0>(x, axes) }"""


def test_an_axes_weight_becomes_an_attribute_and_goes() -> None:
    before = model_from(REDUCE)
    after = lower(before, 13)
    assert_same(before, after, np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32))
    assert list(after.graph.node[0].attribute[1].ints or after.graph.node[0].attribute[0].ints) == [2]
    assert len(after.graph.initializer) == 0


def test_the_given_model_is_left_as_it_is() -> None:
    before = model_from(REDUCE)
    content = before.SerializeToString()
    lower(before, 11)
    assert before.SerializeToString() == content


def test_opset_and_ir_version_go_down_together() -> None:
    after = lower(model_from(REDUCE), 13)
    assert [entry.version for entry in after.opset_import] == [13]
    assert after.ir_version == 7


def test_external_data_is_neither_read_nor_changed() -> None:
    model = model_from(REDUCE)
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 20, 1 << 10])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="nowhere.bin")
    weight.external_data.add(key="length", value=str(1 << 32))
    model.graph.initializer.append(weight)
    model.graph.node.append(onnx.helper.make_node("Gather", ["w", "axes"], ["rows"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("rows", TensorProto.FLOAT, [1, 1 << 10]))
    after = lower(model, 13)
    assert next(tensor for tensor in after.graph.initializer if tensor.name == "w") == weight


def test_big_weights_come_through_bit_for_bit() -> None:
    weight = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    before = model_from(
        """<ir_version: 8, opset_import: ["": 18]>
        agraph (float[2, 64] x) => (float[2, 1] y) <int64[1] axes = {1}> { m = MatMul(x, w) y = ReduceMax(m, axes) }"""
    )
    before.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    after = lower(before, 11)
    assert [t for t in after.graph.initializer if t.name == "w"] == [before.graph.initializer[1]]
    assert_same(before, after, np.ones((2, 64), np.float32))


def test_both_branches_of_an_if_are_lowered() -> None:
    before = model_from(
        """<ir_version: 8, opset_import: ["": 18]>
        agraph (float[2, 4] x, bool c) => (float[2, 4] y) {
            y = If(c) <
                then_branch = t () => (a) { axes = Constant<value_ints = [1]>() m = ReduceMax(x, axes) a = Sub(x, m) },
                else_branch = e () => (b) { h, k = Split<num_outputs = 2, axis = 1>(x) b = Concat<axis = 1>(k, h) } >
        }"""
    )
    after = lower(before, 11)
    for condition in (True, False):
        assert_same(before, after, np.arange(8, dtype=np.float32).reshape(2, 4), np.array(condition))


FUNCTION = """<ir_version: 10, opset_import: ["": 20, "own": 1]>
agraph (float[2, 4] x) => (float[2, 4] y) { y = own.block(x) }
<domain: "own", opset_import: ["": 20]> block (x) => (y) { BODY }"""


def test_a_local_function_is_lowered_in_place_where_no_type_is_needed() -> None:
    before = model_from(FUNCTION.replace("BODY", "s = Sigmoid(x) y = Identity(s)"))
    after = lower(before, 19)
    assert len(after.functions) == 1
    assert_same(before, after, np.ones((2, 4), np.float32))


def test_a_local_function_is_inlined_where_types_are_needed() -> None:
    before = model_from(FUNCTION.replace("BODY", "y = Gelu(x)"))
    after = lower(before, 11)
    assert len(after.functions) == 0
    assert_same(before, after, np.linspace(-3, 3, 8, dtype=np.float32).reshape(2, 4))


MIXED = """<ir_version: 10, opset_import: ["": 20, "own": 1]>
agraph (float[2, 4] x, float[4] w) => (float[2, 4] y) { h = own.outer<eps = 0.1>(x, w) y = Gelu(h) }
<domain: "own", opset_import: ["": 17, "own": 1]> outer <eps> (x, w) => (y)
{ n = LayerNormalization<epsilon: float = @eps>(x, w) y = own.inner(n) }
<domain: "own", opset_import: ["": 20]> inner (x) => (y) { s = Sigmoid(x) y = Mul(x, s) }"""


@pytest.mark.parametrize("opset", [11, 13, 16, 17, 18, 22, 28])
def test_functions_of_another_opset_that_call_each_other_come_along(opset: int) -> None:
    before = model_from(MIXED)
    inputs = [np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i, shape in enumerate([(2, 4), 4])]
    after = lower(before, opset)
    imports = [entry for function in after.functions for entry in function.opset_import if not entry.domain]
    assert {entry.version for entry in imports} <= {opset}
    assert_same(before, after, *inputs)


def test_all_refusals_are_told_at_once() -> None:
    model = model_from(
        """<ir_version: 10, opset_import: ["": 20]>
        agraph (string[2] s, string[2] t) => (string[2] u, bool[2] m) {
            [first] u = StringConcat(s, t)
            [second] m = RegexFullMatch<pattern = "a*">(s)
        }"""
    )
    with pytest.raises(LoweringRefused) as refused:
        lower(model, 17)
    assert [(r.node, r.op, r.from_opset) for r in refused.value.refusals] == [
        ("first", "StringConcat", 20),
        ("second", "RegexFullMatch", 20),
    ]
    assert refused.value.exit_code == 4
    assert refused.value.as_json()["code"] == "CNV-4101"
    assert "first" in str(refused.value) and "second" in str(refused.value) and "opset 17" in str(refused.value)


def test_a_refused_node_does_not_hide_what_follows_it() -> None:
    model = model_from(
        """<ir_version: 10, opset_import: ["": 20]>
        agraph (string[2] s, float[2, 4] x) => (string[2] u, float[2, 4] y) { u = StringConcat(s, s) y = Gelu(x) }"""
    )
    with pytest.raises(LoweringRefused) as refused:
        lower(model, 11)
    assert [r.op for r in refused.value.refusals] == ["StringConcat"]


@pytest.mark.parametrize("opset", [10, 0, -1, 99])
def test_an_opset_out_of_reach_is_refused(opset: int) -> None:
    with pytest.raises(ExportError, match="opset") as error:
        lower(model_from(REDUCE), opset)
    assert error.value.code == "CNV-4102"


def test_raising_gives_the_same_numbers() -> None:
    before = model_from(
        """<ir_version: 6, opset_import: ["": 11]>
        agraph (float[2, 3, 4] x) => (float[2, 3, 4] y, float[3, 4] a, float[3, 4] b) {
            y = Softmax<axis = 1>(x)
            u, v = Split<axis = 0>(x)
            a = Squeeze<axes = [0]>(u)
            b = ReduceSum<axes = [0], keepdims = 0>(x)
        }"""
    )
    assert_same(before, lower(before, 20), np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32))


def test_softmax_over_an_inner_axis_is_turned() -> None:
    before = model_from(
        """<ir_version: 8, opset_import: ["": 17]>
        agraph (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax<axis = 1>(x) }"""
    )
    after = lower(before, 11)
    assert ops_of(after) == ["Transpose", "Softmax", "Transpose"]
    assert_same(before, after, np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32))


def test_layer_normalization_keeps_the_origin_of_its_nodes() -> None:
    before = model_from(
        """<ir_version: 8, opset_import: ["": 17]>
        agraph (float[2, 8] x, float[8] w) => (float[2, 8] y) { [norm] y = LayerNormalization(x, w) }"""
    )
    before.graph.node[0].metadata_props.add(key="pkg.torch.onnx.name_scopes", value="layer1.norm")
    after = lower(before, 16)
    assert all(node.name.startswith("norm/") for node in after.graph.node)
    assert {node.metadata_props[0].value for node in after.graph.node} == {"layer1.norm"}
    assert_same(before, after, *(np.random.default_rng(1).standard_normal(s).astype(np.float32) for s in ((2, 8), 8)))


def test_new_names_do_not_meet_old_ones() -> None:
    before = model_from(
        """<ir_version: 8, opset_import: ["": 18]>
        agraph (float[2, 8] x) => (float[2, 8] y) { "m/Tanh_value_1" = Relu(x) [m] y = Mish("m/Tanh_value_1") }"""
    )
    after = lower(before, 17)
    made = [name for node in after.graph.node for name in node.output]
    assert len(made) == len(set(made))
    assert_same(before, after, np.ones((2, 8), np.float32))


def test_axes_that_the_model_computes_still_reduce_the_right_way() -> None:
    before = model_from(
        """<ir_version: 8, opset_import: ["": 18]>
        agraph (float[2, 3, 4] x, int64[K] axes) => (float[A, B] y) { y = ReduceL2<keepdims = 0>(x, axes) }"""
    )
    after = lower(before, 13)
    for axes in ([0], [-1], [1]):
        x = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
        assert_same(before, after, x, np.array(axes))


def test_importing_the_package_imports_no_onnx() -> None:
    code = "import convert.lowering, convert.rewrites, sys; print({'onnx', 'torch', 'numpy'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
