import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from convert.ort import open_session, run_session
from convert.precision import cast_model
from convert.precision.sorting import in_order

X = np.random.default_rng(3).standard_normal((2, 4)).astype(np.float32)


def _model(text: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}, "com.acme" : 1]>\n{text}')


def _cast(text: str, opset: int = 17, precision: str = "fp16", keep: frozenset[str] = frozenset()) -> onnx.ModelProto:
    model = _model(text, opset)
    cast_model(model, precision, keep=keep)
    onnx.checker.check_model(model)
    return model


def _ops(graph: onnx.GraphProto) -> list[str]:
    return [node.op_type for node in graph.node]


def _run(model: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    return run_session(open_session(model.SerializeToString()), feeds)


def _types(model: onnx.ModelProto) -> dict[str, int]:
    return {tensor.name: tensor.data_type for tensor in model.graph.initializer}


def test_ends_keep_float32_and_the_inside_is_float16():
    model = _cast("g (float[2,4] x) => (float[2,4] y) <float[4] w = {1, 2, 3, 4}> { h = Mul(x, w) y = Relu(h) }")
    assert _ops(model.graph) == ["Cast", "Mul", "Relu", "Cast"]
    assert [value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)] == [1, 1]
    assert _types(model) == {"w": TensorProto.FLOAT16}


def test_an_input_used_twice_is_cast_once():
    model = _cast("g (float[2,4] x) => (float[2,4] y) { a = Neg(x) b = Relu(x) y = Add(a, b) }")
    assert _ops(model.graph).count("Cast") == 2


def test_an_inner_value_that_is_also_an_output_exists_in_both_types():
    model = _cast("g (float[2,4] x) => (float[2,4] h, float[2,4] y) { h = Neg(x) y = Relu(h) }")
    h, y = _run(model, x=X)
    assert (h.dtype, y.dtype) == (np.float32, np.float32)
    assert np.allclose(y, np.maximum(-X, 0), atol=2e-3)


def test_an_input_that_the_schema_wants_in_float32_keeps_it():
    text = """g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] scales = {1, 1, 2, 2}>
        { y = Resize<mode = "nearest"> (x, , scales) }"""
    model = _cast(text)
    assert _types(model) == {"scales": TensorProto.FLOAT}
    assert _run(model, x=np.ones((1, 1, 2, 2), np.float32))[0].shape == (1, 1, 4, 4)


def test_an_operator_without_float16_gets_casts_around_it():
    text = """g (float[1,3,4] boxes, float[1,1,3] scores) => (int64[N,3] picked)
        <int64 most = {3}> { b = Neg(boxes) c = Neg(b) picked = NonMaxSuppression(c, scores, most) }"""
    model = _cast(text)
    assert _ops(model.graph) == ["Cast", "Neg", "Neg", "Cast", "NonMaxSuppression"]
    boxes = np.float32([[[0, 0, 1, 1], [0, 0, 1, 1], [5, 5, 6, 6]]])
    assert _run(model, boxes=boxes, scores=np.float32([[[0.9, 0.8, 0.7]]]))[0].shape == (2, 3)


def test_a_weight_used_in_both_types_is_kept_in_both():
    text = """g (float[2,4] x, float[1,1,2,2] z) => (float[2,4] y, float[1,1,4,4] r) <float[4] s = {1, 1, 2, 2}>
        { y = Mul(x, s) r = Resize<mode = "nearest"> (z, , s) }"""
    assert sorted(_types(_cast(text)).values()) == [TensorProto.FLOAT, TensorProto.FLOAT16]


def test_a_weight_that_is_an_output_keeps_its_name_and_type():
    text = "g (float[2,4] x) => (float[2,4] y, float[4] w) <float[4] w = {1, 2, 3, 4}> { y = Mul(x, w) }"
    model = _cast(text)
    assert _types(model)["w"] == TensorProto.FLOAT
    assert _run(model, x=X)[1].tolist() == [1, 2, 3, 4]


def test_attributes_that_say_a_type_say_the_new_one():
    text = """g (int64[2] x) => (float[2] y) {
        f = Cast<to = 1>(x) s = Identity(x) c = ConstantOfShape<value = float[1] {2.5}>(k)
        k = Constant<value = int64[1] {2}>() t = Constant<value_float = 0.5>() u = Mul(f, c) y = Mul(u, t) }"""
    model = _cast(text)
    cast = next(node for node in model.graph.node if node.op_type == "Cast" and node.input[0] == "x")
    filled = next(node for node in model.graph.node if node.op_type == "ConstantOfShape")
    assert cast.attribute[0].i == TensorProto.FLOAT16
    assert numpy_helper.to_array(filled.attribute[0].t).dtype == np.float16
    assert _run(model, x=np.int64([1, 2]))[0].tolist() == [1.25, 2.5]


def test_random_numbers_are_drawn_in_float32_and_cast_after():
    model = _cast("g (float[2,4] x) => (float[2,4] y) { r = RandomNormalLike(x) y = Mul(r, x) }")
    drawn = next(node for node in model.graph.node if node.op_type == "RandomNormalLike")
    assert drawn.input[0] == "x"
    assert _run(model, x=X)[0].shape == (2, 4)


def test_quantized_parts_are_left_alone():
    text = """g (float[2,4] x) => (float[2,4] y) <float s = {0.1}, uint8 z = {128}>
        { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Relu(d) }"""
    model = _cast(text)
    assert _types(model) == {"s": TensorProto.FLOAT, "z": TensorProto.UINT8}
    assert _ops(model.graph) == ["QuantizeLinear", "DequantizeLinear", "Cast", "Relu", "Cast"]


def test_sizes_are_not_rounded_to_float16():
    text = """g (float[N,4] x) => (float[M] y) <float half = {0.5}, float one = {1}> {
        s = Shape(x) i = Constant<value = int64 {0}>() n = Gather(s, i) f = Cast<to = 1>(n) h = Mul(f, half)
        k = Cast<to = 7>(h) flat = Reshape(x, minus) minus = Constant<value = int64[1] {-1}>()
        z = Constant<value = int64[1] {0}>() e = Unsqueeze(k, z) y = Slice(flat, z, e) }"""
    answer = _run(_cast(text), x=np.zeros((4098, 4), np.float32))[0]
    assert answer.shape == (2049,)


@pytest.mark.parametrize("condition", [True, False])
def test_both_branches_of_an_if_are_cast_and_see_values_from_outside(condition):
    text = """g (bool c, float[2,4] x) => (float[2,4] y) {
        h = Neg(x)
        y = If (c) <then_branch = t () => (float[2,4] a) <float[4] w = {1, 2, 3, 4}> { a = Mul(h, w) },
                    else_branch = e () => (float[2,4] b) { r = Relu(h) b = Add(r, x) }> }"""
    model = _cast(text)
    branch = next(a.g for node in model.graph.node if node.op_type == "If" for a in node.attribute if a.name[0] == "t")
    assert branch.initializer[0].data_type == TensorProto.FLOAT16
    wanted = -X * np.float32([1, 2, 3, 4]) if condition else np.maximum(-X, 0) + X
    assert np.allclose(_run(model, c=np.bool_(condition), x=X)[0], wanted, atol=1e-2)


def test_a_loop_casts_outer_values_once_outside():
    text = """g (int64 n, float[4] x, float[4] w) => (float[4] y) {
        go = Constant<value = bool {1}>()
        y = Loop (n, go, x) <body = b (int64 i, bool on, float[4] v) => (bool on2, float[4] v2)
            { on2 = Identity(on) v2 = Add(v, w) }> }"""
    model = _cast(text)
    body = next(a.g for node in model.graph.node if node.op_type == "Loop" for a in node.attribute)
    assert "w" not in {name for node in body.node for name in node.input}
    answer = _run(model, n=np.int64(3), x=np.zeros(4, np.float32), w=np.ones(4, np.float32))
    assert answer[0].tolist() == [3, 3, 3, 3]


def test_local_functions_are_cast_too():
    text = """<ir_version: 9, opset_import: ["" : 17, "local" : 1]>
        g (float[2,4] x) => (float[2,4] y) { y = local.twice(x) }
        <domain: "local", opset_import: ["" : 17]> twice (a) => (b) { b = Add(a, a) }"""
    model = onnx.parser.parse_model(text)
    cast_model(model, "fp16")
    assert _ops(model.graph) == ["Cast", "Add", "Cast"]


def test_an_operator_that_onnx_does_not_define_keeps_its_types():
    model = _model("g (float[2,4] x) => (float[2,4] y) { a = Neg(x) m = com.acme.Magic(a) y = Relu(m) }")
    cast_model(model, "fp16")
    assert _ops(model.graph) == ["Cast", "Neg", "Cast", "Magic", "Relu"]


def test_nodes_that_are_kept_compute_in_float32():
    text = "g (float[2,4] x) => (float[2,4] y) { [first] a = Neg(x) [second] y = Relu(a) }"
    model = _cast(text, keep=frozenset({"first"}))
    assert _ops(model.graph) == ["Neg", "Cast", "Relu", "Cast"]


def test_too_large_weights_become_infinite_without_a_warning():
    text = "g (float[2] x) => (float[2] y) <float[2] w = {1e9, -3.4e38}> { y = Mul(x, w) }"
    assert numpy_helper.to_array(_cast(text).graph.initializer[0]).tolist() == [np.inf, -np.inf]


def test_a_graph_without_float32_is_left_as_it_is():
    model = _cast("g (int64[2] x) => (int64[2] y) { y = Neg(x) }")
    assert _ops(model.graph) == ["Neg"]


def test_casting_twice_gives_the_same_bytes():
    text = "g (float[2,4] x) => (float[2,4] y) <float[4] w = {1, 2, 3, 4}> { h = Mul(x, w) y = Softmax(h) }"
    assert _cast(text).SerializeToString(deterministic=True) == _cast(text).SerializeToString(deterministic=True)


def test_names_of_ours_give_way_to_names_of_the_model():
    text = "g (float[2,4] x, float[2,4] x_fp16) => (float[2,4] y) { y = Add(x, x_fp16) }"
    answer = _run(_cast(text), x=X, x_fp16=X)
    assert np.allclose(answer[0], 2 * X, atol=1e-2)


def test_unsorted_nodes_come_in_order_and_sorted_ones_keep_theirs():
    graph = _model("g (float[1] x) => (float[1] y) { y = Relu(b) b = Neg(a) a = Abs(x) }").graph
    assert [node.op_type for node in in_order(graph)] == ["Abs", "Neg", "Relu"]
    graph = _model("g (float[1] x) => (float[1] y) { a = Abs(x) b = Neg(x) y = Add(b, a) }").graph
    assert [node.op_type for node in in_order(graph)] == ["Abs", "Neg", "Add"]
