"""adapt: which rewrite is taken where the support data find fault, and that the fault is gone after it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnx.parser
import pytest

from convert.arrays import load_npz
from convert.graphs import read_model
from convert.ort import run_samples
from convert.stages.adapt import adapt_graph
from convert.stages.export import export_graph
from convert.stages.load import load_model
from convert.values import AdaptOptions, ExportOptions, LoadOptions, OnnxGraph
from op_registry.judge import judge_model
from op_registry.targets import find_target


class Found(NamedTuple):
    """A graph that a target finds fault with: with which operator, in which state, and what helps."""

    target: str
    text: str
    fault: tuple[str, str]
    rule: str
    after: str


WEIGHTS = "float[1,12,4] w, float[1,12,4] r, float[1,24] b"
LSTM = "float[1,16,4] w, float[1,16,4] r"
CASES = {
    "a-gate-that-is-not-read": Found(
        "Ascend910B3",
        f"(float[5,2,4] x, {WEIGHTS}) => (float[5,1,2,4] y) "
        "{ y = GRU<hidden_size = 4, linear_before_reset = 1>(x, w, r, b) }",
        ("GRU", "risk"),
        "rnn-to-primitives",
        "MatMul",
    ),
    "defaults-before-writing-out": Found(
        "Ascend910B3",
        f"(float[5,2,4] x, {LSTM}) => (float[5,1,2,4] y) "
        '{ y = LSTM<hidden_size = 4, activations = ["Sigmoid", "Tanh", "Tanh"]>(x, w, r) }',
        ("LSTM", "risk"),
        "rnn-defaults",
        "LSTM",
    ),
    "a-window-that-runs-on-the-slow-engine": Found(
        "Ascend310P3",
        "(float[1,2,24,24] x) => (float[1,2,3,3] y) { y = MaxPool<kernel_shape = [20, 20], strides = [2, 2]>(x) }",
        ("MaxPool", "slow"),
        "split-maxpool",
        "MaxPool",
    ),
    "a-window-over-all": Found(
        "Ascend310P3",
        "(float[1,2,24,24] x) => (float[1,2,1,1] y) { y = MaxPool<kernel_shape = [24, 24]>(x) }",
        ("MaxPool", "slow"),
        "split-maxpool",
        "GlobalMaxPool",
    ),
    "nearest-neighbours-of-pytorch": Found(
        "Ascend910B3",
        "(float[1,2,3,3] x) => (float[1,2,6,6] y) <float[4] s = {1, 1, 2, 2}> { y = Resize<mode = \"nearest\", "
        'coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(x, , s) }',
        ("Resize", "risk"),
        "resize-half-pixel",
        "Resize",
    ),
    "a-shape-that-could-be-empty": Found(
        "MI210",
        "(float[2,6] x) => (float[3,4] y) <int64[2] s = {3, -1}> { y = Reshape<allowzero = 1>(x, s) }",
        ("Reshape", "risk"),
        "reshape-allowzero",
        "Reshape",
    ),
    "rounding-up": Found(
        "MI210",
        "(float[1,2,6,7] x) => (float[1,2,3,3] y) "
        "{ y = MaxPool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(x) }",
        ("MaxPool", "risk"),
        "explicit-pads",
        "MaxPool",
    ),
    "three-inputs": Found(
        "BM1684X",
        "(float[2,3] x, float[2,3] z, float[1,3] u) => (float[2,3] y) { y = Max(x, z, u) }",
        ("Max", "refused"),
        "pairwise",
        "Max",
    ),
    "pooling-along-a-line": Found(
        "A100",
        "(float[1,2,9] x) => (float[1,2,4] y) { y = MaxPool<kernel_shape = [3], strides = [2]>(x) }",
        ("MaxPool", "refused"),
        "lift-1d",
        "MaxPool",
    ),
    "to-the-end": Found(
        "MLU370",
        "(float[5,3] x) => (float[4,3] y) <int64[1] s = {1}, int64[1] e = {9223372036854775807}> "
        "{ y = Slice(x, s, e) }",
        ("(graph)", "risk"),
        "slice-bounds",
        "Slice",
    ),
    "an-order-left-out": Found(
        "Ascend910B3",
        "(float[2,3] x) => (float[3,2] y) { h = Relu(x) y = Transpose(h) }",
        ("Transpose", "refused"),
        "write-defaults",
        "Transpose",
    ),
}  # fmt: skip


def adopted(text: str, folder: Path, opset: int) -> OnnxGraph:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> agraph {text}')
    for name in ("load", "export", "adapt"):
        (folder / name).mkdir()
    onnx.save(model, folder / "m.onnx")
    source = LoadOptions(path=str(folder / "m.onnx"))
    return export_graph(load_model(source, folder / "load"), source, ExportOptions(), folder / "export")


def states_of(graph: OnnxGraph, target: str) -> list[tuple[str, str]]:
    judged = judge_model(read_model(graph.model_path), find_target(target)).judged
    return [(one.op, one.state) for one in judged if one.state in ("refused", "risk", "slow")]


@pytest.mark.parametrize("name", CASES)
def test_a_fault_of_the_support_data_is_written_away_and_the_numbers_stay(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    graph = adopted(case.text, tmp_path, 11 if case.target == "MLU370" else 16)
    assert case.fault in states_of(graph, case.target)
    adapted = adapt_graph(graph, AdaptOptions(target=case.target), tmp_path / "adapt")
    assert [entry["rewrite"] for entry in adapted.adapted if "rewrite" in entry] == [case.rule], adapted.notes
    assert states_of(adapted, case.target) == []
    assert adapted.ops[case.after] >= 1
    feeds = [load_npz(graph.path("samples/000.npz"))]
    wanted = load_npz(graph.path("reference/000.npz"))["0"]
    np.testing.assert_allclose(run_samples(adapted.model_path, feeds)[0][0], wanted, rtol=1e-5, atol=1e-6)


def test_of_two_rewrites_that_serve_the_one_with_fewer_nodes_wins(tmp_path: Path) -> None:
    """An LSTM whose activations are the usual ones could be written out in some fifty nodes, too."""
    case = CASES["defaults-before-writing-out"]
    adapted = adapt_graph(adopted(case.text, tmp_path, 16), AdaptOptions(target=case.target), tmp_path / "adapt")
    assert adapted.nodes == 1
