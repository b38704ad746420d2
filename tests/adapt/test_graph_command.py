"""``convert graph``: the graph tools by themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from artifacts.errors import ModelConvertError
from convert.commands.graph import command


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """``y = LayerNorm(x) + Einsum(x, w)`` at opset 18, the weight in a file of its own."""
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale"], ["n"], name="norm"),
        helper.make_node("Einsum", ["x", "w"], ["e"], name="product", equation="bi,ij->bj"),
        helper.make_node("Add", ["n", "e"], ["y"], name="sum"),
    ]
    weights = {"scale": np.ones(8, np.float32), "w": np.eye(8, dtype=np.float32)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 8])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    path = tmp_path / "m.onnx"
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=100)
    return path


def run(*args: object) -> Result:
    return CliRunner().invoke(command, [str(arg) for arg in args])


def answer(path: Path) -> Any:
    x = np.linspace(-1, 2, 16, dtype=np.float32).reshape(2, 8)
    return onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]


@pytest.mark.parametrize("opset", [11, 13, 16, 20])
def test_lower_writes_an_equal_model_at_the_opset(model: Path, tmp_path: Path, opset: int) -> None:
    out = tmp_path / "out.onnx"
    ended = run("lower", model, "--opset", opset, "--out", out, "--json")
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.output)["opset"] == opset
    assert onnx.load(out).opset_import[0].version == opset
    assert np.allclose(answer(out), answer(model), atol=1e-6)
    assert (tmp_path / "weights.bin").stat().st_nlink == 1


def test_rewrite_applies_a_rule_and_proves_it(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    ended = run("rewrite", model, "--rule", "einsum-to-matmul", "--out", out, "--json")
    (applied,) = json.loads(ended.output)["applied"]
    assert applied["nodes"] == ["product"]
    assert "Einsum" not in {node.op_type for node in onnx.load(out).graph.node}
    assert np.allclose(answer(out), answer(model), atol=1e-6)


def test_lint_tells_an_unsorted_graph_and_double_names(model: Path, tmp_path: Path) -> None:
    proto = onnx.load(model)
    nodes = list(proto.graph.node)
    nodes[0].name = nodes[1].name
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))
    onnx.save(proto, tmp_path / "bad.onnx")
    ended = run("lint", tmp_path / "bad.onnx", "--json")
    assert ended.return_value is None or ended.exit_code in (0, 4)
    rules = {finding["rule"] for finding in json.loads(ended.output)["findings"]}
    assert "unsorted" in rules
    assert len(rules) >= 2


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("lower", "MODEL", "--opset", 99, "--out", "OUT"), "CNV-4102"),
        (("lower", "MODEL", "--opset", 13, "--out", "MODEL"), "CNV-2010"),
        (("rewrite", "MODEL", "--rule", "no-such-rule", "--out", "OUT"), "CNV-4111"),
        (("rewrite", "MODEL"), "CNV-2010"),
        (("lint", "MISSING"), "CNV-3001"),
        (("lint", "TEXT"), "CNV-3015"),
    ],
)
def test_what_can_not_be_done_has_a_code(model: Path, tmp_path: Path, args: tuple[object, ...], code: str) -> None:
    (tmp_path / "text.onnx").write_text("not a model at all, only words")
    places = {"MODEL": model, "OUT": tmp_path / "o.onnx", "MISSING": tmp_path / "x", "TEXT": tmp_path / "text.onnx"}
    ended = run(*(places.get(str(arg), arg) for arg in args))
    assert isinstance(ended.exception, ModelConvertError)
    assert ended.exception.code == code
    assert ended.exception.hint


DETECTOR = """<ir_version: 8, opset_import: ["": 17]>
agraph (float[1, 6, 4] raw, float[1, 2, 6] s) => (int64[K, 3] picked) <int64 most = {3}, float over = {0.5}> {
    p = Sigmoid(s)
    b = Relu(raw)
    picked = NonMaxSuppression(b, p, most, over)
}"""


def test_a_detector_is_cut_in_two_files_that_make_the_whole(tmp_path: Path) -> None:
    whole = tmp_path / "detector.onnx"
    onnx.save(onnx.parser.parse_model(DETECTOR), whole)
    out = tmp_path / "card.onnx"
    ended = run("rewrite", whole, "--rule", "nms-split", "--out", out, "--json")
    assert ended.exit_code == 0, ended.output
    change = json.loads(ended.output)
    assert (change["host"], change["cut"]) == (str(tmp_path / "card.host.onnx"), ["b", "p"])
    assert [one["name"] for one in change["applied"]] == ["nms-split"]
    assert change["applied"][0]["evidence"]["inputs"] >= 1
    feeds = {name: np.random.default_rng(3).random(shape, np.float32) for name, shape in
             (("raw", (1, 6, 4)), ("s", (1, 2, 6)))}  # fmt: skip
    first = onnxruntime.InferenceSession(str(out))
    cut = dict(zip([info.name for info in first.get_outputs()], first.run(None, feeds), strict=True))
    second = onnxruntime.InferenceSession(change["host"]).run(None, {name: cut[name] for name in change["cut"]})
    assert np.array_equal(second[0], onnxruntime.InferenceSession(str(whole)).run(None, feeds)[0])
    told = run("rewrite", whole, "--rule", "nms-split", "--out", out).output
    assert f"host     {tmp_path / 'card.host.onnx'}: run it on b, p" in told


def test_a_model_without_suppression_is_not_cut(model: Path, tmp_path: Path) -> None:
    ended = run("rewrite", model, "--rule", "nms-split", "--out", tmp_path / "o.onnx")
    assert isinstance(ended.exception, ModelConvertError)
    assert ended.exception.code == "CNV-4113"


def test_the_rewrites_are_listed(model: Path) -> None:
    assert "einsum-to-matmul" in run("rewrite", model, "--list").output
