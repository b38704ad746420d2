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


ATTENTION = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,8,16] x) => (float[1,8,16] y)
    <int64[4] heads = {0,0,4,4}, int64[3] whole = {0,0,16}, float half = {0.5}> {
    q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv)
    q1 = Reshape(q, heads) q2 = Transpose<perm=[0,2,1,3]>(q1) k1 = Reshape(k, heads) k2 = Transpose<perm=[0,2,3,1]>(k1)
    v1 = Reshape(v, heads) v2 = Transpose<perm=[0,2,1,3]>(v1) s = MatMul(q2, k2) t = Mul(s, half) p = Softmax(t)
    o = MatMul(p, v2) u = Transpose<perm=[0,2,1,3]>(o) y = Reshape(u, whole) }"""


def test_attention_stays_in_operators_that_onnx_defines(tmp_path: Path) -> None:
    model = parser.parse_model(ATTENTION)
    rng = np.random.default_rng(0)
    for name in ("wq", "wk", "wv"):
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal((16, 16)).astype("f4"), name))
    onnx.save(model, tmp_path / "net.onnx")
    for stage in ("load", "export", "simplify"):
        (tmp_path / stage).mkdir()
    load = LoadOptions(path=str(tmp_path / "net.onnx"))
    exported = export_graph(load_model(load, tmp_path / "load"), load, ExportOptions(), tmp_path / "export")
    simplified = simplify.simplify_graph(exported, SimplifyOptions(), tmp_path / "simplify")
    assert simplified.made_by == "onnxsim"
    assert [name for name in simplified.ops if "::" in name] == []
    assert simplified.ops["Softmax"] == 1


def test_an_operator_that_onnx_does_not_define_is_not_brought_in(
    graph: OnnxGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fuses(model: onnx.ModelProto, **_: object) -> tuple[onnx.ModelProto, bool]:
        model.graph.node[-1].op_type, model.graph.node[-1].domain = "QuickGelu", "com.microsoft"
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
        return model, True

    monkeypatch.setattr(simplify, "_onnxsim", lambda: SimpleNamespace(simplify=fuses))
    kept = simplify.simplify_graph(graph, SimplifyOptions(), tmp_path / "simplify")
    assert kept.ops == graph.ops
    assert "it brings operators that ONNX does not define: com.microsoft::QuickGelu" in kept.notes[0].text
