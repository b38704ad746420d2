"""Conversions that begin at the same moment, into one cache, one registry and one output folder."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from main_job_kit import Cli
from onnx import TensorProto, helper


def write_model(path: Path, width: int) -> None:
    """``x:float32[1,width] → y``, two layers."""
    weights = [helper.make_tensor(name, TensorProto.FLOAT, [width, width], [0.1] * width**2) for name in ("w", "v")]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Tanh", ["h"], ["t"], name="tanh"),
        helper.make_node("MatMul", ["t", "v"], ["y"], name="second"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, width]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [4, pytest.param(20, marks=pytest.mark.long)])
def test_conversions_at_once_all_publish_and_disturb_each_other_in_nothing(cli: Cli, count: int) -> None:
    for number in range(count):
        write_model(cli.folder / f"net{number}.onnx", 4 + number)
    # Two of each: the second finds the first at work on the same stages, and publishes the same bytes.
    models = [f"net{number // 2}" for number in range(count)]
    started = [cli.start("convert", f"{model}.onnx", "--target", "cpu", "--json", "-q") for model in models]
    ended = [(*process.communicate(timeout=1500), process.returncode) for process in started]
    assert [code for _, _, code in ended] == [0] * count, [err for _, err, _ in ended]
    listed = cli.artifacts("list", "--json").json
    assert sorted(model["name"] for model in listed["models"]) == sorted(set(models))
    assert all(len(model["versions"]) == 1 for model in listed["models"])
    assert cli.artifacts("fsck").code == 0
    assert not list((cli.folder / "cache" / "tmp").glob("*"))
