import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convert.bigmodel import (
    external_tensors,
    externalize,
    hide_weights,
    nbytes,
    place_weights,
    refer_as,
    reference_of,
    show_weights,
    tensor_array,
    write_weights,
)
from convert.errors import LoadError
from convert.links import link_or_copy

W = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
B = np.ones(64, np.float32)


@pytest.fixture
def model() -> onnx.ModelProto:
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in "xy"]
    weights = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(B, "b")]
    return helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:], weights))


def _external(location: str, *, offset: str = "0", length: str = "") -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 2], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value:
            tensor.external_data.add(key=key, value=value)
    return tensor


def test_external_weights_read_as_they_were(model, tmp_path):
    externalize(model, tmp_path / "model.onnx.data")
    assert [tensor.name for tensor in external_tensors(model)] == ["w"]
    assert np.array_equal(tensor_array(model.graph.initializer[0], tmp_path), W)


def test_onnx_itself_reads_what_externalize_wrote(model, tmp_path):
    externalize(model, tmp_path / "model.onnx.data", threshold=1)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    loaded = onnx.load(tmp_path / "model.onnx")
    assert [numpy_helper.to_array(tensor).sum() for tensor in loaded.graph.initializer] == [W.sum(), B.sum()]


@pytest.mark.parametrize("location", ["../w.bin", "/etc/hostname", "a/../../w.bin", ""])
def test_weights_never_leave_the_models_folder(tmp_path, location):
    with pytest.raises(LoadError) as refusal:
        reference_of(_external(location), tmp_path)
    assert refusal.value.code == "CNV-3081"


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "secret").write_bytes(b"x" * 16)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(LoadError) as refusal:
        reference_of(_external("w.bin"), folder)
    assert refusal.value.code == "CNV-3081"


@pytest.mark.parametrize(
    ("size", "offset", "length"),
    [(-1, "0", ""), (15, "0", ""), (16, "4", ""), (16, "0", "8"), (16, "-1", ""), (16, "1" * 30, "")],
)
def test_missing_short_and_senseless_data_is_refused(tmp_path, size, offset, length):
    if size >= 0:
        (tmp_path / "w.bin").write_bytes(b"\0" * size)
    with pytest.raises(LoadError) as refusal:
        reference_of(_external("w.bin", offset=offset, length=length), tmp_path)
    assert refusal.value.code == "CNV-3082"


@pytest.mark.parametrize("stored_as", ["99999", "7", "-1", "float"])
def test_a_file_can_not_claim_a_senseless_stored_type(tmp_path, stored_as):
    (tmp_path / "w.bin").write_bytes(b"\0" * 16)
    tensor = _external("w.bin")
    tensor.external_data.add(key="stored_as", value=stored_as)
    assert tensor_array(tensor, tmp_path).dtype == np.float32


def test_senseless_types_and_shapes_have_a_size():
    assert nbytes(TensorProto(name="w", data_type=999, dims=[4])) == 4
    assert nbytes(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[-4])) == 0


def test_hidden_weights_are_inputs_and_come_back(model, tmp_path):
    externalize(model, tmp_path / "model.onnx.data")
    hidden = hide_weights(model)
    assert [value.name for value in model.graph.input] == ["x", "w"]
    assert [tensor.name for tensor in model.graph.initializer] == ["b"]
    assert hidden.bytes == W.nbytes
    show_weights(model, hidden)
    assert sorted(t.name for t in model.graph.initializer) == ["b", "w"]
    assert [value.name for value in model.graph.input] == ["x"]


def test_weights_that_a_tool_dropped_do_not_come_back(model):
    hidden = hide_weights(model, threshold=64)
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("Identity", ["x"], ["y"]))
    show_weights(model, hidden)
    assert not model.graph.initializer
    assert [value.name for value in model.graph.input] == ["x"]


def test_weights_of_a_subgraph_are_hidden_where_their_name_is_their_own():
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (bool c, float[4] x) => (float[4] y) {
        y = If (c) <then_branch = t () => (float[4] a) <float[4] w = {1, 2, 3, 4}> { a = Add(x, w) },
                    else_branch = e () => (float[4] b) <float[4] v = {5, 6, 7, 8}> { b = Add(x, v) }> }"""
    model = onnx.parser.parse_model(text)
    hidden = hide_weights(model, threshold=16)
    assert sorted(tensor.name for tensor in hidden.tensors) == ["v", "w"]
    show_weights(model, hidden)
    assert sorted(tensor.name for tensor in model.graph.initializer) == ["v", "w"]


def test_one_data_file_is_linked_and_renamed(model, tmp_path):
    externalize(model, tmp_path / "model.onnx.data")
    made = tmp_path / "made"
    made.mkdir()
    assert place_weights(model, tmp_path, made / "net.onnx.data")
    assert (made / "net.onnx.data").samefile(tmp_path / "model.onnx.data")
    assert np.array_equal(tensor_array(model.graph.initializer[0], made), W)


def test_several_data_files_become_one(tmp_path):
    (tmp_path / "made").mkdir()
    tensors = []
    for name in ("a", "b"):
        tensor = numpy_helper.from_array(np.full((2, 2), ord(name), np.float32), name)
        write_weights([tensor], tmp_path / f"{name}.bin", tmp_path)
        tensors.append(tensor)
    model = helper.make_model(helper.make_graph([], "g", [], [], tensors))
    place_weights(model, tmp_path, tmp_path / "made/model.onnx.data")
    read = [tensor_array(tensor, tmp_path / "made")[0, 0] for tensor in model.graph.initializer]
    assert read == [ord("a"), ord("b")]


def test_a_weight_is_cast_while_it_is_written(model, tmp_path):
    externalize(model, tmp_path / "model.onnx.data")
    weight = model.graph.initializer[0]
    refer_as(weight, TensorProto.FLOAT16)
    (tmp_path / "made").mkdir()
    place_weights(model, tmp_path, tmp_path / "made/model.onnx.data")
    assert (tmp_path / "made/model.onnx.data").stat().st_size == W.nbytes // 2
    assert [entry.key for entry in weight.external_data] == ["location", "offset", "length"]
    assert np.array_equal(tensor_array(weight, tmp_path / "made"), W.astype(np.float16))


def test_linking_falls_back_to_a_copy(tmp_path, monkeypatch):
    def refused(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    (tmp_path / "a").write_bytes(b"weights")
    monkeypatch.setattr(os, "link", refused)
    link_or_copy(tmp_path / "a", tmp_path / "deep/b")
    assert (tmp_path / "deep/b").read_bytes() == b"weights"
    assert (tmp_path / "deep/b").stat().st_nlink == 1
