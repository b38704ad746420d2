"""The simplifier's result is not taken where it fails or grows the graph, and the graph is kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import parser

from artifacts.errors import first_line
from convert.stages import simplify
from convert.stages.export import export_graph
from convert.stages.load import load_model
from convert.values import ExportOptions, LoadOptions, OnnxGraph, SimplifyOptions

TEXT = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { h = Identity(x) y = Relu(h) }'


@pytest.fixture
def graph(tmp_path: Path) -> OnnxGraph:
    path = tmp_path / "net.onnx"
    onnx.save(parser.parse_model(TEXT), path)
    for stage in ("load", "export", "simplify"):
        (tmp_path / stage).mkdir()
    load = LoadOptions(path=str(path))
    return export_graph(load_model(load, tmp_path / "load"), load, ExportOptions(), tmp_path / "export")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError(""), ValueError("  \n  "), RuntimeError("no\nmore")])
def test_a_simplifier_that_fails_even_without_a_word_keeps_the_graph(
    graph: OnnxGraph, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(simplify, "_onnxsim", lambda: SimpleNamespace(simplify=fails))
    kept = simplify.simplify_graph(graph, SimplifyOptions(), tmp_path / "simplify")
    assert kept.nodes == graph.nodes
    assert f"onnxsim failed: {first_line(error)}" in kept.notes[0].text


def test_a_graph_that_grows_by_a_folded_constant_is_not_taken(
    graph: OnnxGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def grows(model: onnx.ModelProto, **_: object) -> tuple[onnx.ModelProto, bool]:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(100_000, "f4"), "w"))
        return model, True

    monkeypatch.setattr(simplify, "_onnxsim", lambda: SimpleNamespace(simplify=grows))
    kept = simplify.simplify_graph(graph, SimplifyOptions(), tmp_path / "simplify")
    assert kept.made_by != "onnxsim"
    assert "the file grew from" in kept.notes[0].text
