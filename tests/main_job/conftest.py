"""A small model, and the command line as a user calls it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from main_job_kit import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture(scope="session")
def tiny_onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer perceptron ``x:float32[N,8] → y:float32[N,3]`` as ONNX, 16 kB of weights."""
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(7)
    first, second = rng.standard_normal((8, 256)).astype("f4"), rng.standard_normal((256, 3)).astype("f4")
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(first, "w1"), numpy_helper.from_array(second, "w2")],
    )
    path = tmp_path_factory.mktemp("models") / "mlp.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="session")
def tiny_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small convolutional classifier ``x:float32[1,3,16,16]`` as TorchScript."""
    import torch
    from torch import nn

    torch.manual_seed(3)
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    model = nn.Sequential(*layers).eval()
    path = tmp_path_factory.mktemp("models") / "classifier.pt"
    torch.jit.save(torch.jit.trace(model, torch.rand(1, 3, 16, 16)), str(path))
    return path
