"""export: odd models end right, or with a message that names what is odd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from artifacts.errors import ModelConvertError
from convert.arrays import load_npz
from convert.stages.export import export_graph
from convert.stages.load import load_model
from convert.values import ExportOptions, LoadOptions, OnnxGraph


def export(path: Path, folder: Path, exporter: Any = "auto", opset: int = 0, **load: Any) -> OnnxGraph:
    for name in ("load", "export"):
        (folder / name).mkdir(exist_ok=True)
    source = LoadOptions(path=str(path), **load)
    loaded = load_model(source, folder / "load")
    return export_graph(loaded, source, ExportOptions(exporter=exporter, opset=opset), folder / "export")


def refused(path: Path, folder: Path, **more: Any) -> ModelConvertError:
    with pytest.raises(ModelConvertError) as raised:
        export(path, folder, **more)
    assert raised.value.hint
    return raised.value


def script(module: torch.nn.Module, path: Path) -> Path:
    torch.jit.save(torch.jit.script(module.eval()), str(path))
    return path


def save(graph: onnx.GraphProto, path: Path, *, opset: int = 17, ir_version: int = 8) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    path.write_bytes(model.SerializeToString())
    return path


def floats(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


class InPlace(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2.0)
        return x + 1


class Counts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1.0)
        return x + self.calls


class Flag(torch.nn.Module):
    def forward(self, x: torch.Tensor, double: bool = True) -> torch.Tensor:
        return x * 2 if double else x


class Infinite(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.abs() * float("inf") + 1


def test_a_model_that_changes_its_input_in_place_is_compared_with_its_own_numbers(tmp_path: Path) -> None:
    graph = export(script(InPlace(), tmp_path / "m.pt"), tmp_path, inputs=("x:float32[2,3]",))
    given = load_npz(graph.path("samples/000.npz"))["x"]
    assert np.allclose(load_npz(graph.path("reference/000.npz"))["0"], given * 2 + 1)


def test_a_script_is_exported_with_the_defaults_that_the_call_leaves(tmp_path: Path) -> None:
    graph = export(script(Flag(), tmp_path / "m.pt"), tmp_path, inputs=("x:float32[2]",))
    assert [spec.name for spec in graph.inputs] == ["x"]


@pytest.mark.parametrize(("module", "code"), [(Counts(), "CNV-3040"), (Infinite(), "CNV-4010")])
def test_a_model_that_can_not_be_proven_is_told_why(module: torch.nn.Module, code: str, tmp_path: Path) -> None:
    assert refused(script(module, tmp_path / "m.pt"), tmp_path, inputs=("x:float32[2]",)).code == code


def test_an_old_opset_with_weights_that_are_no_inputs_is_raised(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [floats("x", 2, 4)],
        [floats("y", 2, 3)],
        [numpy_helper.from_array(np.ones((4, 3), np.float32), "w")],
    )
    made = export(save(graph, tmp_path / "m.onnx", opset=6), tmp_path)
    assert made.opset == 13
    assert [spec.name for spec in made.inputs] == ["x"]


def test_a_sparse_weight_is_written_out(tmp_path: Path) -> None:
    values = numpy_helper.from_array(np.array([2.0, 3.0], np.float32), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 5], np.int64), "i"), [4, 3])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [floats("x", 1, 4)], [floats("y", 1, 3)]
    )
    graph.sparse_initializer.append(sparse)
    made = export(save(graph, tmp_path / "m.onnx"), tmp_path)
    x = load_npz(made.path("samples/000.npz"))["x"]
    weight = np.zeros(12, np.float32)
    weight[[1, 5]] = [2, 3]
    assert np.allclose(load_npz(made.path("reference/000.npz"))["0"], x @ weight.reshape(4, 3))


def test_a_random_graph_is_refused_by_its_node(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["r"], name="noise"),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [floats("x", 2)], [floats("y", 2)])
    refusal = refused(save(graph, tmp_path / "m.onnx"), tmp_path)
    assert refusal.code == "CNV-4008"
    assert "RandomNormalLike 'noise'" in refusal.message


def test_a_sequence_output_is_refused_by_name(tmp_path: Path) -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    graph = helper.make_graph(
        [helper.make_node("SequenceConstruct", ["x"], ["s"])],
        "g",
        [floats("x", 2)],
        [helper.make_value_info("s", kind)],
    )
    refusal = refused(save(graph, tmp_path / "m.onnx"), tmp_path)
    assert refusal.code == "CNV-4011"
    assert "s (sequence_type)" in refusal.message


@pytest.mark.parametrize("opset", [7, 9, 11, 19])
def test_an_opset_is_reached_or_refused_in_words(opset: int, tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    path = script(module, tmp_path / "m.pt")
    try:
        assert export(path, tmp_path, opset=opset, inputs=("x:float32[2,4]",)).opset == opset
    except ModelConvertError as error:
        assert error.exit_code == 4
        assert error.hint


def test_exporters_are_judged_on_probes_that_the_samples_do_not_show(tmp_path: Path) -> None:
    (tmp_path / "zoo_of_probes.py").write_text(
        "import torch\n"
        "class Attend(torch.nn.Module):\n"
        "    def forward(self, q: torch.Tensor, mask: torch.Tensor):\n"
        "        return torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)\n"
        "def make():\n    return Attend()\n"
    )
    torch.save({"none": torch.zeros(1)}, tmp_path / "w.pt")
    sample = (torch.randn(1, 2, 4, 8), torch.ones(1, 1, 4, 4, dtype=torch.bool))
    torch.save((sample, {}), tmp_path / "in.pt")
    (tmp_path / "module.pt").write_bytes(b"")
    import importlib.util
    import sys

    spec = importlib.util.spec_from_file_location("zoo_of_probes", tmp_path / "zoo_of_probes.py")
    assert spec is not None and spec.loader is not None
    zoo = importlib.util.module_from_spec(spec)
    sys.modules["zoo_of_probes"] = zoo
    spec.loader.exec_module(zoo)
    torch.save(zoo.make(), tmp_path / "module.pt")
    graph = export(tmp_path / "module.pt", tmp_path, samples=str(tmp_path / "in.pt"), allow_pickle=True)
    assert graph.made_by == "torchscript"
    assert any("a row of a mask that is all False" in note.text for note in graph.notes)


def test_a_damaged_weight_in_a_torch_file_is_told_by_its_checksum(tmp_path: Path) -> None:
    path = script(torch.nn.Sequential(torch.nn.Linear(64, 64)), tmp_path / "m.pt")
    weight = torch.jit.load(str(path)).state_dict()["0.weight"].numpy().tobytes()
    data = bytearray(path.read_bytes())
    data[data.index(weight) + 100] ^= 4
    path.write_bytes(bytes(data))
    refusal = refused(path, tmp_path, inputs=("x:float32[2,64]",))
    assert refusal.code == "CNV-3007"
    assert "checksum of m/data/" in refusal.message


def test_an_opset_below_9_still_has_the_models_own_inputs(tmp_path: Path) -> None:
    path = script(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()), tmp_path / "m.pt")
    graph = export(path, tmp_path, opset=7, inputs=("x:float32[2,4]",))
    assert graph.opset == 7
    assert len(graph.inputs) == 1
