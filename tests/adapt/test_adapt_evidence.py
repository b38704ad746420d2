"""What adapt did is kept with its proof; quantized graphs keep their pairs where the target takes them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convert.stages.adapt import adapt_graph
from convert.stages.check import check_graph
from convert.stages.export import export_graph
from convert.stages.load import load_model
from convert.values import AdaptOptions, CheckOptions, ExportOptions, LoadOptions, OnnxGraph, to_json


@pytest.fixture
def quantized(tmp_path: Path) -> OnnxGraph:
    """MatMul of a rounded input and stored int8 weights."""
    weights = {
        "s": np.float32(0.03), "z": np.int8(2), "t": np.array([0.01, 0.02], np.float32), "o": np.zeros(2, np.int8),
        "w": np.arange(-8, 8, dtype=np.int8).reshape(8, 2),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantize"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="dequantize"),
        helper.make_node("DequantizeLinear", ["w", "t", "o"], ["v"], name="weights", axis=1),
        helper.make_node("MatMul", ["d", "v"], ["y"], name="product"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    for name in ("load", "export", "adapt", "check"):
        (tmp_path / name).mkdir()
    source = LoadOptions(path=str(tmp_path / "m.onnx"))
    return export_graph(load_model(source, tmp_path / "load"), source, ExportOptions(), tmp_path / "export")


def test_pairs_become_rounding_in_float_where_they_are_refused(quantized: OnnxGraph, tmp_path: Path) -> None:
    adapted = adapt_graph(quantized, AdaptOptions(target="Ascend910B"), tmp_path / "adapt")
    assert not {"QuantizeLinear", "DequantizeLinear"} & set(adapted.ops)
    checked = check_graph(adapted, CheckOptions(target="Ascend910B"), tmp_path / "check")
    assert checked.support.supported
    proof = next(entry for entry in adapted.adapted if entry.get("rewrite") == "qdq-to-primitives")
    assert (proof["count"], proof["nodes"]) == (2, ["dequantize", "weights"])
    assert adapted.opset == 13, "what can be written away needs no other opset"
    assert proof["evidence"]["inputs"] >= 3 and proof["evidence"]["max_abs_below"] <= 1e-5
    assert json.loads(to_json(adapted))["adapted"] == list(adapted.adapted)


def test_pairs_stay_where_the_target_takes_them(quantized: OnnxGraph, tmp_path: Path) -> None:
    adapted = adapt_graph(quantized, AdaptOptions(target="MI210"), tmp_path / "adapt")
    assert adapted.ops["QuantizeLinear"] == 1 and adapted.ops["DequantizeLinear"] == 2
    assert adapted.adapted == ()
