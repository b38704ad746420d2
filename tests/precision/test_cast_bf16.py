import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from convert.ort import open_session, run_session
from convert.precision import cast_model, make_runnable
from convert.precision.kernels import has_kernel, schema_of

X = np.random.default_rng(5).standard_normal((2, 4)).astype(np.float32)
HEADER = '<ir_version: 9, opset_import: ["" : 17]>\n'


def _model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


def _ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def _run(model: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    return run_session(open_session(model.SerializeToString()), feeds)


def _rounded(values: np.ndarray) -> np.ndarray:
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


def test_kernels_are_those_of_the_installed_runtime():
    matmul, reshape = schema_of("MatMul", "", 17), schema_of("Reshape", "", 17)
    assert has_kernel(matmul, {"T": "tensor(float)"})
    assert not has_kernel(matmul, {"T": "tensor(bfloat16)"})
    assert has_kernel(reshape, {"T": "tensor(bfloat16)"})


def test_weights_are_stored_in_bfloat16_and_every_result_is_rounded():
    model = _model("g (float[2,4] x) => (float[2,4] y) <float[4] w = {0.1, 0.2, 0.3, 0.4}> { y = Mul(x, w) }")
    cast_model(model, "bf16")
    onnx.checker.check_model(model)
    weight = numpy_helper.to_array(model.graph.initializer[0])
    assert model.graph.initializer[0].data_type == TensorProto.BFLOAT16
    wanted = _rounded(_rounded(X) * weight.astype(np.float32))
    assert np.array_equal(_run(model, x=X)[0], wanted)


def test_what_has_a_bfloat16_kernel_needs_no_casts():
    model = _model("g (float[2,4] x) => (float[4,2] y) { y = Transpose(x) }")
    cast_model(model, "bf16")
    assert _ops(model) == ["Cast", "Transpose", "Cast"]


def test_an_operator_whose_schema_lacks_bfloat16_computes_in_float32_between_casts():
    model = _model("g (float[1,1,4,4] x) => (float[1,1,4,4] y) <float[1,1,1,1] w = {0.3}> { y = Conv(x, w) }")
    notes = cast_model(model, "bf16")
    assert model.graph.initializer[0].data_type == TensorProto.BFLOAT16
    assert notes[1].text == (
        "1 nodes compute in float32 between casts, as ONNX Runtime lacks their CPU kernels in bfloat16 (1 Conv)"
    )


def test_a_runnable_graph_is_left_alone():
    model = _model("g (float[2,4] x) => (float[2,4] y) { y = Relu(x) }")
    assert make_runnable(model) == ()
    assert _ops(model) == ["Relu"]


def test_bfloat16_and_float64_nodes_without_kernels_are_widened_and_ends_keep_their_types():
    model = _model(
        """g (bfloat16[2,2] a, double[1,1,2,2] b) => (bfloat16[2,2] y, double[1,1,2,2] z)
        <double[1,1,1,1] w = {2}> { y = MatMul(a, a) c = Conv(b, w) z = Add(c, c) }"""
    )
    notes = make_runnable(model)
    assert _ops(model) == ["Cast", "MatMul", "Cast", "Cast", "Cast", "Conv", "Cast", "Add"]
    assert "(1 Conv, 1 MatMul)" in notes[0].text
    y, z = _run(model, a=np.ones((2, 2), ml_dtypes.bfloat16), b=np.ones((1, 1, 2, 2)))
    assert (y.dtype, z.dtype) == (ml_dtypes.bfloat16, np.float64)
    assert (y == 2).all()
    assert (z == 4).all()
