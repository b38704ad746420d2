import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convert.bigmodel import tensor_array
from convert.errors import CompileFailed
from convert.stages.compile import compile_graph
from convert.stages.validate import validate_artifact
from convert.values import ValidateOptions

RNG = np.random.default_rng(7)
X = {"x": RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)}
PRECISIONS = ("fp32", "fp16", "bf16")


def _conv_net() -> onnx.ModelProto:
    weights = [
        numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32), name)
        for name, shape in (("w", (4, 3, 3, 3)), ("scale", (4,)), ("bias", (4,)), ("mean", (4,)))
    ]
    weights.append(numpy_helper.from_array(np.ones(4, np.float32), "var"))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["b"], name="bn"),
        helper.make_node("Relu", ["b"], ["y"], name="relu", doc_string="traced at /home/somebody/net.py"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", c, 8, 8]) for n, c in (("x", 3), ("y", 4))]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, {"names": "cat,dog"})
    return model


@pytest.fixture
def made(graph_of, checked_of, cpu, tmp_path):
    def make(model, *samples, precision="fp32", folder="made", **options):
        graph = graph if (graph := options.pop("graph", None)) else graph_of(model, *samples)
        artifact = compile_graph(graph, checked_of(graph), cpu(precision, **options), tmp_path / folder)
        return graph, artifact, onnx.load(artifact.path("model.onnx"), load_external_data=False)

    return make


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_artifact_is_portable_keeps_its_ends_and_passes(made, precision, tmp_path):
    graph, artifact, model = made(_conv_net(), X, precision=precision)
    onnx.checker.check_model(model, full_check=True)
    assert {entry.domain: entry.version for entry in model.opset_import} == {"": 17}
    assert {node.domain for node in model.graph.node} == {""}
    assert [value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)] == [1, 1]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    report = validate_artifact(graph, artifact, ValidateOptions(), tmp_path / "report")
    assert report.ran_on == "device"
    assert report.outputs[0].rel_l2 < {"fp32": 1e-6, "fp16": 2e-3, "bf16": 2e-2}[precision]


def test_the_offline_optimizer_folds_what_can_be_folded(made):
    _, artifact, model = made(_conv_net(), X)
    assert [node.op_type for node in model.graph.node] == ["Conv", "Relu"]
    assert artifact.plan.argv[1:] == ("--precision=fp32", "--level=basic", "model/model.onnx", "out/model.onnx")


def test_folding_does_not_make_a_large_model_of_a_small_one(made):
    text = """g (float[512,512] x) => (float[512,512] y)
        <float[1,1] one = {1}, int64[2] times = {512, 512}, float zero = {0}>
        { big = Tile(one, times) z = Add(zero, zero) a = Add(x, big) y = Add(a, z) }"""
    _, artifact, model = made(text, {"x": np.zeros((512, 512), np.float32)})
    assert artifact.files[0].bytes < 2000
    assert [node.op_type for node in model.graph.node] == ["Tile", "Add", "Add"]


def test_level_off_leaves_the_graph_as_it_was(made):
    _, _, model = made(_conv_net(), X, level="off")
    assert [node.op_type for node in model.graph.node] == ["Conv", "BatchNormalization", "Relu"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_same_graph_gives_the_same_bytes(made, precision):
    graph, first, _ = made(_conv_net(), X, precision=precision)
    _, second, _ = made(None, graph=graph, precision=precision, folder="again")
    assert first.files == second.files


def test_nothing_of_the_machine_is_in_the_artifact(made):
    _, artifact, model = made(_conv_net(), X)
    data = artifact.path("model.onnx").read_bytes()
    assert b"somebody" not in data
    assert str(artifact.folder).encode() not in data
    assert {entry.key: entry.value for entry in model.metadata_props} == {"names": "cat,dog"}
    assert model.producer_name == "model-convert"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_external_weights_stay_external(graph_of, made, precision, tmp_path):
    graph = graph_of(_conv_net(), X, external=True)
    _, artifact, _ = made(None, graph=graph, precision=precision)
    assert [entry.name for entry in artifact.files] == ["model.onnx", "model.onnx.data"]
    linked = artifact.path("model.onnx.data").samefile(graph.path("model.onnx.data"))
    assert linked == (precision == "fp32")
    report = validate_artifact(graph, artifact, ValidateOptions(), tmp_path / "report")
    assert report.outputs[0].rel_l2 < 2e-2


def test_external_weights_are_cast_as_inline_ones_are(graph_of, made):
    weight = RNG.standard_normal((64, 64)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="mm")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 64]) for n in "xy"]
    proto = helper.make_graph([node], "g", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    graph = graph_of(model, external=True)
    _, artifact, _ = made(None, graph=graph, precision="bf16")
    stored = onnx.load(artifact.path("model.onnx"), load_external_data=False).graph.initializer[0]
    assert (stored.name, stored.data_type) == ("w", TensorProto.BFLOAT16)
    assert np.array_equal(tensor_array(stored, artifact.path("")), weight.astype(ml_dtypes.bfloat16))


def test_weights_that_old_exporters_list_as_inputs_are_weights(made, tmp_path):
    model = _conv_net()
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3, 3, 3]))
    graph, artifact, written = made(model, X, precision="fp16")
    assert [value.name for value in written.graph.input] == ["x"]
    report = validate_artifact(graph, artifact, ValidateOptions(), tmp_path / "report")
    assert report.outputs[0].cosine > 0.9999


def test_nodes_out_of_order_are_sorted(made):
    _, _, model = made("g (float[2] x) => (float[2] y) { y = Relu(h) h = Neg(x) }", {"x": X["x"][0, 0, 0, :2]})
    assert [node.op_type for node in model.graph.node] == ["Neg", "Relu"]


def test_a_bfloat16_graph_computes_in_float32_where_kernels_lack_and_says_so(made, tmp_path):
    text = "g (bfloat16[2,2] x) => (bfloat16[2,2] y) { y = MatMul(x, x) }"
    sample = {"x": np.array([[1, 2], [3, 4]], ml_dtypes.bfloat16)}
    graph, artifact, model = made(text, sample)
    assert [node.op_type for node in model.graph.node] == ["Cast", "MatMul", "Cast"]
    assert "1 MatMul" in artifact.notes[0].text
    report = validate_artifact(graph, artifact, ValidateOptions(), tmp_path / "report")
    assert report.outputs[0].max_abs == 0.0


def test_a_float64_convolution_runs(made, tmp_path):
    text = """g (double[1,1,4,4] x) => (double[1,1,3,3] y) {
        w = Constant<value = double[1,1,2,2] {1.0, 2.0, 3.0, 4.0}>() y = Conv(x, w) }"""
    graph, artifact, _ = made(text, {"x": RNG.standard_normal((1, 1, 4, 4))})
    report = validate_artifact(graph, artifact, ValidateOptions(), tmp_path / "report")
    assert report.outputs[0].candidate_dtype == "float64"
    assert "1 Conv" in artifact.notes[0].text


def test_a_float16_graph_is_not_widened_by_the_optimizer(made):
    text = "g (float16[2,2] x) => (float16[2,2] y) { h = MatMul(x, x) y = Relu(h) }"
    _, artifact, model = made(text, {"x": np.ones((2, 2), np.float16)})
    assert [node.op_type for node in model.graph.node] == ["MatMul", "Relu"]
    assert "float16 parts" in artifact.notes[0].text


def test_bf16_below_opset_13_raises_the_opset_and_says_so(graph_of, made):
    graph = graph_of("g (float[2] x) => (float[2] y) { y = Relu(x) }", {"x": np.ones(2, np.float32)}, opset=11)
    _, artifact, model = made(None, graph=graph, precision="bf16")
    assert model.opset_import[0].version == 13
    assert artifact.notes[0].text == "the opset is 13 instead of 11: there are no bfloat16 casts before"


def test_nodes_named_stay_in_float32_and_unknown_names_are_told(made):
    _, artifact, model = made(_conv_net(), X, precision="fp16", level="off", keep_fp32="conv,nothing")
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    assert kinds["w"] == TensorProto.FLOAT
    assert kinds["scale"] == TensorProto.FLOAT16
    assert any(note.subject == "" and "no node is called nothing" in note.text for note in artifact.notes)


def test_a_graph_that_onnx_runtime_refuses_fails_in_one_line(graph_of, made):
    graph = graph_of("g (float[2] x) => (float[2] y) { y = com.acme.Magic(x) }")
    with pytest.raises(CompileFailed) as failure:
        made(None, graph=graph)
    assert failure.value.code == "CNV-7001"
    assert "Magic" in failure.value.message
    assert "\n" not in failure.value.message


@pytest.mark.parametrize("precision", PRECISIONS)
def test_integers_booleans_scalars_and_empty_outputs_keep_their_kind(made, tmp_path, precision):
    text = """g (float[N,4] x, uint8[2] i) => (bool[N,4] b, float s, float[M,4] e, uint8[2] u) {
        zero = Constant<value = float {0.0}>()
        b = Greater(x, zero) s = ReduceMean<keepdims = 0>(x) big = Constant<value = float {9.0}>()
        far = Greater(x, big) k = ReduceMax<axes = [1], keepdims = 0>(far8) far8 = Cast<to = 6>(far)
        keep = Cast<to = 9>(k) e = Compress<axis = 0>(x, keep) u = Identity(i) }"""
    sample = {"x": RNG.standard_normal((3, 4)).astype(np.float32), "i": np.array([7, 200], np.uint8)}
    graph, artifact, _ = made(text, sample, precision=precision)
    report = validate_artifact(graph, artifact, ValidateOptions(), tmp_path / "report")
    assert [output.state for output in report.outputs] == ["exact", "scalar", "empty", "exact"]
    assert not any(output.problems for output in report.outputs)
