"""adapt: a graph is changed for a target only where that helps, and only where its numbers stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convert.arrays import load_npz
from convert.graphs import read_model
from convert.ort import run_samples
from convert.stages.adapt import adapt_graph
from convert.stages.check import check_graph
from convert.stages.export import export_graph
from convert.stages.load import load_model
from convert.values import AdaptOptions, CheckOptions, ExportOptions, LoadOptions, OnnxGraph


def graph_of(nodes: list[onnx.NodeProto], folder: Path, *, opset: int = 18, **weights: Any) -> OnnxGraph:
    """An adopted graph ``x:float32[2,3,8] → y`` of nodes and weights."""
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 8])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )
    for name in ("load", "export", "adapt", "check"):
        (folder / name).mkdir()
    onnx.save(model, folder / "m.onnx")
    source = LoadOptions(path=str(folder / "m.onnx"))
    return export_graph(load_model(source, folder / "load"), source, ExportOptions(), folder / "export")


def reduce_mean() -> list[onnx.NodeProto]:
    return [helper.make_node("ReduceMean", ["x", "axes"], ["y"], name="mean", keepdims=0)]


def numbers(graph: OnnxGraph) -> tuple[list[Any], list[Any]]:
    feeds = [load_npz(graph.path(f"samples/{n:03d}.npz")) for n in range(graph.sample_count)]
    wanted = [list(load_npz(graph.path(f"reference/{n:03d}.npz")).values()) for n in range(graph.sample_count)]
    outputs = run_samples(graph.model_path, feeds)
    return [output for run in outputs for output in run], [output for run in wanted for output in run]


@pytest.mark.parametrize(
    ("target", "version", "highest"), [("MLU370-X4", "", 12), ("Ascend910B", "8.5", 17), ("Ascend910B", "9.0", 17)]
)
def test_a_graph_is_lowered_to_where_the_target_takes_it(
    target: str, version: str, highest: int, tmp_path: Path
) -> None:
    graph = graph_of(reduce_mean(), tmp_path, axes=np.array([1], np.int64))
    adapted = adapt_graph(graph, AdaptOptions(target=target, toolchain_version=version), tmp_path / "adapt")
    assert adapted.stage == "adapt"
    assert adapted.opset <= highest < graph.opset
    assert adapted.parent == graph.digest
    assert "brought from opset 18" in adapted.notes[0].text
    ours, wanted = numbers(adapted)
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(ours, wanted, strict=True))
    checked = check_graph(adapted, CheckOptions(target=target, toolchain_version=version), tmp_path / "check")
    assert not [one for one in checked.support.judged if one.state in ("refused", "risk")]


def test_a_graph_that_the_target_takes_stays_as_it_is(tmp_path: Path) -> None:
    graph = graph_of([helper.make_node("Relu", ["x"], ["y"], name="relu")], tmp_path, opset=13)
    adapted = adapt_graph(graph, AdaptOptions(target="Ascend310P3"), tmp_path / "adapt")
    assert adapted.notes == ()
    assert [entry.sha256 for entry in adapted.files] == [entry.sha256 for entry in graph.files]


def test_an_opset_that_the_user_asked_for_stays(tmp_path: Path) -> None:
    graph = graph_of(reduce_mean(), tmp_path, axes=np.array([1], np.int64))
    adapted = adapt_graph(graph, AdaptOptions(target="MLU370-X4", opset=18), tmp_path / "adapt")
    assert adapted.opset == 18


def test_a_rewrite_replaces_what_is_refused_at_every_opset(tmp_path: Path) -> None:
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], name="up", mode="linear", antialias=1)]
    graph = graph_of(nodes, tmp_path, scales=np.array([1, 1, 0.5], np.float32))
    adapted = adapt_graph(graph, AdaptOptions(target="Ascend910B", toolchain_version="9.2"), tmp_path / "adapt")
    ours, wanted = numbers(adapted)
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(ours, wanted, strict=True))
    before = check_graph(graph, CheckOptions(target="Ascend910B", toolchain_version="9.2"), tmp_path / "check")
    after = check_graph(adapted, CheckOptions(target="Ascend910B", toolchain_version="9.2"), tmp_path / "check")
    assert faults(after.support.judged) <= faults(before.support.judged)


def faults(judged: Any) -> int:
    return sum(one.state in ("refused", "risk") for one in judged)


def test_graph_files_are_linked_and_the_model_reads_back(tmp_path: Path) -> None:
    graph = graph_of(reduce_mean(), tmp_path, axes=np.array([1], np.int64))
    adapted = adapt_graph(graph, AdaptOptions(target="MLU370-X4"), tmp_path / "adapt")
    assert read_model(adapted.model_path).opset_import[0].version == adapted.opset
    assert {entry.name for entry in adapted.files} >= {"model.onnx", "samples/000.npz", "reference/000.npz"}
