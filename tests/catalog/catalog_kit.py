"""Catalogues in a folder: tiny models, and the commands run in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from convert.__main__ import cli
from artifacts.cli import run_boundary

HEAD = """
[settings]
registry = "registry"
cache_dir = "cache"
out = "out"

[catalog]
targets = ["cpu"]
owner = "vision"
"""


def make_model(path: Path, seed: int = 0) -> Path:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save

    weight = np.random.default_rng(seed).standard_normal((4, 3)).astype("f4")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"), helper.make_node("Relu", ["h"], ["y"], name="r")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(weight, "w")],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
