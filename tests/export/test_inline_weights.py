"""Weights inside a model file: referred to where they lie, streamed into a new file, left out of the exporter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper

from convert import inline
from convert.bigmodel import external_tensors, is_external
from convert.inline import operands_only, skeleton, write_inline
from convert.loading.wire import WireError
from convert.ort import SessionSettings, open_session, run_session
from convert.torch_weights import FILE, export_apart

SIDE = 160
"""A matrix of this side is just large enough to be referred to."""


def model_of(*, metadata: bool = True) -> ModelProto:
    """A matrix product with a small bias, and fields of the proto behind the graph."""
    weight = np.arange(SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE) / SIDE**2
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", SIDE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", SIDE])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.ones(SIDE, np.float32), "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if metadata:
        helper.set_model_props(model, {"made": "here"})
    return model


def saved(model: ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def test_a_skeleton_refers_to_big_weights_where_they_lie_in_the_file(tmp_path: Path) -> None:
    path = saved(model_of(), tmp_path / "model.onnx")
    proto = ModelProto.FromString(skeleton(path))
    assert [(tensor.name, is_external(tensor)) for tensor in proto.graph.initializer] == [("w", True), ("b", False)]
    assert proto.ByteSize() < 2000
    onnx.load_external_data_for_model(proto, str(tmp_path))
    assert numpy_helper.to_array(proto.graph.initializer[0]).tobytes() == model_of().graph.initializer[0].raw_data


def test_writing_a_skeleton_inline_gives_the_same_bytes_again(tmp_path: Path) -> None:
    path = saved(model_of(), tmp_path / "model.onnx")
    (tmp_path / "again").mkdir()
    proto = ModelProto.FromString(skeleton(path))
    write_inline(proto, tmp_path, tmp_path / "again" / "model.onnx")
    assert (tmp_path / "again" / "model.onnx").read_bytes() == path.read_bytes()


def test_references_follow_the_weights_into_the_new_file(tmp_path: Path) -> None:
    path = saved(model_of(), tmp_path / "model.onnx")
    proto = ModelProto.FromString(skeleton(path))
    proto.graph.name = "a longer name moves everything behind it"
    (tmp_path / "new").mkdir()
    write_inline(proto, tmp_path, tmp_path / "new" / "net.onnx")
    path.unlink()
    onnx.load_external_data_for_model(proto, str(tmp_path / "new"))
    assert numpy_helper.to_array(proto.graph.initializer[0])[1, 0] == np.float32(1 / SIDE)


def test_external_weights_of_a_subgraph_are_loaded_into_it(tmp_path: Path) -> None:
    inner = helper.make_graph(
        [helper.make_node("Identity", ["inside"], ["z"])],
        "then",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [4])],
        [TensorProto(name="inside", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)],
    )
    for key, value in (("location", "data"), ("offset", "0"), ("length", "16")):
        inner.initializer[0].external_data.add(key=key, value=value)
    (tmp_path / "data").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    model = model_of()
    model.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner))
    write_inline(model, tmp_path, tmp_path / "model.onnx")
    written = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    branch = written.graph.node[2].attribute[0].g
    assert numpy_helper.to_array(branch.initializer[0]).tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("data", [b"\x3a\xff", b"\x00\x00"], ids=["ends early", "no field"])
def test_a_damaged_file_has_no_skeleton(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(data)
    with pytest.raises(WireError):
        skeleton(tmp_path / "model.onnx")


def test_onnx_runtime_maps_the_weights_and_gives_the_same_numbers(tmp_path: Path) -> None:
    path = saved(model_of(), tmp_path / "model.onnx")
    feed = {"x": np.random.default_rng(0).random((3, SIDE), np.float32)}
    plain = run_session(open_session(path, SessionSettings(level="off")), feed)
    mapped = run_session(open_session(path, SessionSettings(level="off", mapped=True)), feed)
    np.testing.assert_allclose(mapped[0], plain[0], rtol=1e-5)


def test_only_operands_of_nodes_that_stay_are_left_out_of_the_simplifiers_sight(tmp_path: Path) -> None:
    model = model_of()
    big = numpy_helper.from_array(np.ones((SIDE, SIDE), np.float32), "scaled")
    table = numpy_helper.from_array(np.ones((SIDE, SIDE), np.float32), "table")
    row = numpy_helper.from_array(np.array([1]), "row")
    model.graph.initializer.extend([big, table, row])
    model.graph.node.extend(
        [helper.make_node("Mul", ["y", "scaled"], ["s"]), helper.make_node("Gather", ["table", "row"], ["folded"])]
    )
    proto = ModelProto.FromString(skeleton(saved(model, tmp_path / "model.onnx")))
    assert {tensor.name for tensor in external_tensors(proto)} == {"w", "scaled", "table"}
    assert operands_only(proto) == {"w"}


@pytest.mark.filterwarnings("ignore")
def test_the_exporter_gives_the_same_graph_and_weights_apart(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(SIDE, SIDE), torch.nn.ReLU(), torch.nn.Linear(SIDE, 4)).eval()
    sample = torch.rand(2, 3, SIDE)

    def export(file: object, export_params: bool = True) -> None:
        torch.onnx.export(module, (sample,), file, dynamo=False, opset_version=17, export_params=export_params)  # type: ignore[arg-type]

    export(str(tmp_path / "whole.onnx"))
    whole = onnx.load(tmp_path / "whole.onnx")
    apart = export_apart(export, tmp_path)
    assert [tensor.name for tensor in external_tensors(apart)] and (tmp_path / FILE).stat().st_size == SIDE * SIDE * 4
    onnx.load_external_data_for_model(apart, str(tmp_path))
    assert list(apart.graph.node) == list(whole.graph.node)
    assert list(apart.graph.input) == list(whole.graph.input)
    told = [(t.name, list(t.dims), numpy_helper.to_array(t).tobytes()) for t in whole.graph.initializer]
    assert [(t.name, list(t.dims), numpy_helper.to_array(t).tobytes()) for t in apart.graph.initializer] == told


def test_weights_that_are_not_handed_over_are_an_error_that_callers_expect(tmp_path: Path) -> None:
    def export(file: object, export_params: bool = True) -> None:
        file.write(model_of().SerializeToString())  # type: ignore[attr-defined]

    with pytest.raises(LookupError, match="none at all"):
        export_apart(export, tmp_path)


def test_the_simplifier_keeps_mapped_weights_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from convert.stages import simplify

    monkeypatch.setattr(simplify, "MAPPED_FROM", 1)
    monkeypatch.setattr(simplify, "HIDE_FROM", inline.REFERRED_FROM)
    from convert.graphs import facts, model_entries, write_samples
    from convert.values import OnnxGraph, SimplifyOptions

    folder, out = tmp_path / "graph", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    model = model_of(metadata=False)
    model.graph.node.append(helper.make_node("Identity", ["y"], ["same"], name="idle"))
    model.graph.output[0].name = "same"
    saved(model, folder / "model.onnx")
    feed = {"x": np.ones((2, SIDE), np.float32)}
    outputs = [run_session(open_session(folder / "model.onnx"), feed)]
    names = write_samples(folder, [feed], outputs)
    graph = OnnxGraph(
        parent="sha256:" + "0" * 64,
        stage="export",
        sample_count=1,
        files=model_entries(folder, ["model.onnx", *names]),
        folder=str(folder),
        **facts(model),
    )
    found = simplify.simplify_graph(graph, SimplifyOptions(), out)
    written = onnx.load(out / "model.onnx")
    assert found.made_by == "onnxsim" and found.nodes == 2
    assert written.graph.initializer[-1].name in ("w", "b") and not external_tensors(written)
    weight = next(tensor for tensor in written.graph.initializer if tensor.name == "w")
    assert weight.raw_data == model.graph.initializer[0].raw_data
