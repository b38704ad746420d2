"""What an ONNX file says of itself, and its external data."""

from __future__ import annotations

import hashlib
from pathlib import Path

import onnx
import pytest
from loading_files import field, onnx_model, point_outside, save_onnx
from onnx import TensorProto, helper

from artifacts.digest import FileEntry
from convert.errors import LoadError
from convert.loading.onnx_files import outline_onnx
from convert.loading.sniff import identify


def test_signature_is_read(tmp_path: Path) -> None:
    model = onnx_model(("N", 4), producer_name="pytorch")
    found = outline_onnx(*with_size(save_onnx(tmp_path / "m.onnx", model)))
    assert (found.opsets, found.producer, found.nodes) == ({"": 17}, "pytorch", 1)
    assert [(value.name, value.dtype, value.shape) for value in found.inputs] == [("x", "float32", ("N", 4))]
    assert [(value.name, value.shape) for value in found.outputs] == [("y", None)]


def with_size(path: Path) -> tuple[Path, int]:
    return path, path.stat().st_size


def test_weights_listed_as_inputs_are_no_inputs(tmp_path: Path) -> None:
    model = onnx_model()
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 2]))
    found = outline_onnx(*with_size(save_onnx(tmp_path / "m.onnx", model)))
    assert [value.name for value in found.inputs] == ["x"]


def test_negative_and_unsaid_dimensions_say_nothing(tmp_path: Path) -> None:
    found = outline_onnx(*with_size(save_onnx(tmp_path / "m.onnx", onnx_model((-1, None)))))
    assert found.inputs[0].shape == (None, None)


def test_inputs_that_are_no_tensors_are_named(tmp_path: Path) -> None:
    model = onnx_model()
    model.graph.input.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None))
    found = outline_onnx(*with_size(save_onnx(tmp_path / "m.onnx", model)))
    assert [(value.name, value.tensor, value.dtype) for value in found.inputs[1:]] == [("s", False, "a sequence")]


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9, 0.99])
def test_cut_file_is_damaged_with_its_size(kept: float, tmp_path: Path) -> None:
    path = save_onnx(tmp_path / "m.onnx")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(LoadError) as raised:
        identify(path)
    assert raised.value.code == "CNV-3016"
    assert f"({path.stat().st_size:,} bytes)" in raised.value.message


def test_model_without_outputs_is_refused(tmp_path: Path) -> None:
    model = onnx_model()
    del model.graph.output[:]
    with pytest.raises(LoadError, match="no outputs") as raised:
        identify(save_onnx(tmp_path / "m.onnx", model))
    assert raised.value.code == "CNV-3019"


def test_endless_nesting_is_refused(tmp_path: Path) -> None:
    graph = b""
    for _ in range(200):
        graph = field(1, field(5, field(6, graph)))
    (tmp_path / "m.onnx").write_bytes(field(1, 8) + field(7, graph) + field(8, field(2, 17)))
    with pytest.raises(LoadError, match="nested more than 64 deep") as raised:
        identify(tmp_path / "m.onnx")
    assert raised.value.code == "CNV-3016"


def test_external_data_are_listed_with_digests(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(bytes(range(32)))
    found = identify(save_onnx(tmp_path / "m.onnx", point_outside(onnx_model(), "data/w.bin")))
    digest = "sha256:" + hashlib.sha256(bytes(range(32))).hexdigest()
    assert found.external == (FileEntry(name="data/w.bin", sha256=digest, bytes=32),)


@pytest.mark.parametrize(
    "location", ["../secret", "/etc/passwd", "a/../../secret", "", "a//b", "./w", "c\\d", "a\x00b"]
)
def test_external_data_outside_the_folder_are_refused_unread(location: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(32))
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(LoadError) as raised:
        identify(save_onnx(inner / "m.onnx", point_outside(onnx_model(), location)))
    assert raised.value.code == "CNV-3017"
    assert "'w'" in raised.value.message


def test_external_data_behind_a_link_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(32))
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "w.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(LoadError) as raised:
        identify(save_onnx(inner / "m.onnx", point_outside(onnx_model(), "w.bin")))
    assert raised.value.code == "CNV-3017"


def test_external_data_are_looked_for_beside_the_real_file(tmp_path: Path) -> None:
    real = tmp_path / "cache"
    real.mkdir()
    (real / "w.bin").write_bytes(bytes(32))
    save_onnx(real / "blob", point_outside(onnx_model(), "w.bin"))
    (tmp_path / "m.onnx").symlink_to("cache/blob")
    assert [entry.name for entry in identify(tmp_path / "m.onnx").external] == ["w.bin"]


def test_missing_external_data_name_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"m\.onnx\.data") as raised:
        identify(save_onnx(tmp_path / "m.onnx", point_outside(onnx_model(), "m.onnx.data")))
    assert raised.value.code == "CNV-3018"
    assert str(tmp_path) in raised.value.message


@pytest.mark.parametrize(("length", "offset"), [(33, 0), (32, 1), (10**19, 0)])
def test_short_external_data_are_refused(length: int, offset: int, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(32))
    with pytest.raises(LoadError, match="too short") as raised:
        identify(save_onnx(tmp_path / "m.onnx", point_outside(onnx_model(), "w.bin", length=length, offset=offset)))
    assert raised.value.code == "CNV-3018"


def test_external_data_in_attributes_and_subgraphs_are_found(tmp_path: Path) -> None:
    hidden = point_outside(onnx_model(), "../a").graph.initializer[0]
    branch = helper.make_graph([helper.make_node("Constant", [], ["c"], value=hidden)], "b", [], [])
    branch.output.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, None))
    model = onnx_model()
    model.graph.node.append(helper.make_node("If", ["x"], ["z"], then_branch=branch, else_branch=branch))
    function = helper.make_function("d", "F", ["a"], ["b"], [helper.make_node("Constant", [], ["b"], value=hidden)], [])
    model.functions.append(function)
    with pytest.raises(LoadError) as raised:
        identify(save_onnx(tmp_path / "m.onnx", model))
    assert raised.value.code == "CNV-3017"
    assert raised.value.message.count("'../a'") == 3


def test_negative_offset_is_damage(tmp_path: Path) -> None:
    model = point_outside(onnx_model(), "w.bin")
    model.graph.initializer[0].external_data[1].value = "-8"
    with pytest.raises(LoadError) as raised:
        identify(save_onnx(tmp_path / "m.onnx", model))
    assert raised.value.code == "CNV-3016"


def test_agrees_with_the_onnx_package(tmp_path: Path) -> None:
    model = onnx_model(("N", 4))
    found = outline_onnx(*with_size(save_onnx(tmp_path / "m.onnx", model)))
    again = onnx.load(str(tmp_path / "m.onnx"))
    assert found.ir_version == again.ir_version
    assert found.opsets == {entry.domain: entry.version for entry in again.opset_import}
