"""The small model that is cut out around a failing node, and where in the PyTorch model the node came from."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from artifacts.digest import file_entries
from convert.backends.base import Diagnosis
from convert.bigmodel import externalize
from convert.diagnosis.cut import cut_around, inputs_of
from convert.diagnosis.places import place_of
from convert.graphs import facts
from convert.values import OnnxGraph

TEXT = """<ir_version: 8, opset_import: ["" : 17, "my.ops" : 1]>
net (float[N, 4] x, bool c) => (float[N, 4] y)
<float[4, 4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}, float[N, 4] z> {
    [first] h = MatMul (x, w)
    two = Constant <value_float: float = 2.0> ()
    [second] k = Mul (h, two)
    [branch] z = If (c) <then_branch = g1 () => (float[N, 4] a) { [inner] a = Relu (k) },
                         else_branch = g2 () => (float[N, 4] b) { b = Neg (k) }>
    [third] u = my.ops.Strange (z)
    [last] y = Relu (u)
}"""


@pytest.fixture
def graph(tmp_path: Path):
    def make(*, external: bool = False) -> OnnxGraph:
        model = onnx.parser.parse_model(TEXT)
        folder = tmp_path / "graph"
        folder.mkdir()
        names = ["model.onnx"]
        if external:
            weight = numpy_helper.from_array(np.arange(16, dtype=np.float32).reshape(4, 4), "w")
            unused = numpy_helper.from_array(np.zeros(4096, np.float32), "unused")
            del model.graph.initializer[:]
            model.graph.initializer.extend([weight, unused])
            externalize(model, folder / "model.onnx.data", threshold=16)
            names.append("model.onnx.data")
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        return OnnxGraph(
            parent="sha256:" + "0" * 64,
            stage="adapt",
            files=file_entries(folder, names),
            folder=str(folder),
            **facts(model),
        )

    return make


def test_a_node_is_cut_out_with_its_weights_and_typed_inputs(graph, tmp_path):
    path = cut_around(graph(), ["first"], tmp_path / "work")
    assert path == tmp_path / "work/failing/model.onnx"
    cut = onnx.load(path)
    assert [node.op_type for node in cut.graph.node] == ["MatMul"]
    assert [tensor.name for tensor in cut.graph.initializer] == ["w"]
    assert [(spec.name, spec.dtype, spec.shape) for spec in inputs_of(path)] == [("x", "float32", ("N", 4))]
    assert [value.name for value in cut.graph.output] == ["h"]
    assert cut.opset_import[0].version == 17


def test_constants_are_taken_along_and_chosen_neighbours_stay_joined(graph, tmp_path):
    path = cut_around(graph(), ["first", "second"], tmp_path / "work")
    cut = onnx.load(path)
    assert sorted(node.op_type for node in cut.graph.node) == ["Constant", "MatMul", "Mul"]
    assert [value.name for value in cut.graph.input] == ["x"]
    run = ReferenceEvaluator(cut)
    np.testing.assert_array_equal(run.run(["k"], {"x": np.ones((2, 4), np.float32)})[0], 2 * np.ones((2, 4)))


def test_only_the_weights_that_are_needed_are_copied(graph, tmp_path):
    path = cut_around(graph(external=True), ["first"], tmp_path / "work")
    assert path.with_name("model.onnx.data").stat().st_size < 4096
    weight = onnx.load(path).graph.initializer[0]
    np.testing.assert_array_equal(numpy_helper.to_array(weight), np.arange(16).reshape(4, 4))


def test_a_node_inside_a_branch_brings_the_node_around_it_and_what_it_reads_from_outside(graph, tmp_path):
    path = cut_around(graph(), ["inner"], tmp_path / "work")
    assert [node.name for node in onnx.load(path).graph.node] == ["branch"]
    assert {spec.name for spec in inputs_of(path)} == {"c", "k"}


@pytest.mark.parametrize("nodes", [["nowhere"], [], ["third"]])
def test_there_is_no_cut_of_unknown_nodes_or_of_types_that_nobody_knows(graph, tmp_path, nodes):
    assert cut_around(graph(), nodes, tmp_path / "work") is None
    assert not (tmp_path / "work").exists()


def test_a_graph_that_cannot_be_read_gives_no_cut(graph, tmp_path):
    made = graph()
    made.model_path.write_bytes(b"\xff" * 64)
    assert cut_around(made, ["first"], tmp_path / "work") is None


def test_an_operator_without_a_named_node_is_found_by_its_type(graph, tmp_path):
    place = place_of(Diagnosis(cause="", hint="", ops=("ai.onnx::17::MatMul",)), graph(), tmp_path / "work")
    assert place.nodes == ("first",)
    assert place.cut_inputs == "x:float32[N,4]"


def test_a_node_is_told_with_its_pytorch_module(graph, tmp_path):
    made = graph()
    model = onnx.load(made.model_path)
    for node in model.graph.node:
        node.name = {"first": "/encoder/layers.0/MatMul"}.get(node.name, node.name)
    onnx.save(model, made.model_path)
    place = place_of(Diagnosis(cause="", hint="", nodes=("_encoder_layers_0_MatMul",)), made, tmp_path / "work")
    assert place.words() == " (nodes: /encoder/layers.0/MatMul in module encoder.layers.0)"


def test_names_that_are_no_nodes_stay_as_the_log_has_them(graph, tmp_path):
    place = place_of(Diagnosis(cause="", hint="", nodes=("n1",)), graph(), tmp_path / "work")
    assert (place.words(), place.cut) == (" (nodes: n1)", "")


def test_a_cut_passes_the_checker_with_a_function_in_the_model(tmp_path):
    body = helper.make_function(
        "my.ops", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    node = helper.make_node("Twice", ["x"], ["y"], name="t", domain="my.ops")
    model = helper.make_model(
        helper.make_graph([node], "g", [x], [y]),
        functions=[body],
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)],
    )
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    made = OnnxGraph(parent="sha256:" + "0" * 64, stage="adapt", folder=str(tmp_path), **facts(model))
    assert cut_around(made, ["t"], tmp_path / "work") is not None
