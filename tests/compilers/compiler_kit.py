"""Running the commands against real compilers, and the two small models that they are tried with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper

ROOT = Path(__file__).resolve().parents[2]
TARGETS = {"openvino-cpu": "openvino", "BM1684X": "sophgo"}
RAN_ON = {"openvino-cpu": "device", "BM1684X": "simulator"}
LEAST = {"fp16": 0.999, "int8": 0.99}
"""The cosine that each precision must reach."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended: its one JSON document, and what it said on stderr."""

    code: int
    document: dict[str, Any]
    said: str

    @property
    def target(self) -> dict[str, Any]:
        """The one target of a conversion."""
        (target,) = self.document["targets"]
        return target


def command(folder: Path, module: str, *words: str, limit: float = 900, **environment: str) -> Answer:
    """Run ``python -m MODULE WORDS… --json`` in a folder, with cache and registry of the test's own."""
    ended = subprocess.run(
        [sys.executable, "-m", module, *words, "--json"],
        cwd=folder,
        env=variables(folder) | environment,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return Answer(code=ended.returncode, document=json.loads(ended.stdout), said=ended.stderr)


def variables(folder: Path) -> dict[str, str]:
    """The environment of a command."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    own = {name: str(folder / name.lower()) for name in ("CACHE_DIR", "REGISTRY", "OUT")}
    return {**os.environ, "PYTHONPATH": path, **{f"CONVERT_{name}": place for name, place in own.items()}}


def processes(marker: str) -> list[str]:
    """Command lines of running processes that hold a text."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                here = str((entry / "cwd").readlink())
            except OSError:
                continue
            if marker in line or marker in here:
                found.append(line)
    return found


def write_models(folder: Path) -> None:
    """``cnn.onnx`` and ``transformer.onnx`` with four samples of each, from fixed random weights."""
    import warnings

    import torch
    from torch import nn

    torch.manual_seed(3)
    cnn = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )

    class Block(nn.Module):
        """One transformer block with attention written out, so that no exporter hides it."""

        def __init__(self) -> None:
            super().__init__()
            self.norm, self.norm2 = nn.LayerNorm(64), nn.LayerNorm(64)
            self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
            self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (part.reshape(1, 16, 4, 16).transpose(1, 2) for part in self.qkv(self.norm(x)).split(64, -1))
            mixed = (q @ k.transpose(-1, -2) / 4.0).softmax(-1) @ v
            x = x + self.out(mixed.transpose(1, 2).reshape(1, 16, 64))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    for name, model, shape in (("cnn", cnn, (1, 3, 32, 32)), ("transformer", Block(), (1, 16, 64))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.onnx.export(
                model.eval(), (torch.randn(shape),), str(folder / f"{name}.onnx"), dynamo=False, opset_version=17,
                input_names=["x"], output_names=["y"],
            )  # fmt: skip
        (folder / name).mkdir()
        for number in range(4):
            np.savez(folder / name / f"{number}.npz", x=torch.randn(shape).numpy())


def worst_cosine(target: dict[str, Any]) -> float:
    return min(output["cosine"] for output in target["validation"]["outputs"] if output["cosine"] is not None)


def write_det(path: Path) -> None:
    """A graph with Det, which neither compiler has."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Det", ["a"], ["y"], name="the_det"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph(nodes, "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def write_einsum(path: Path) -> None:
    """A graph with an Einsum of an equation that is not on tpu-mlir's list."""
    node = helper.make_node("Einsum", ["x", "w"], ["y"], name="the_product", equation="ijk,lkj->il")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5])
    weight = onnx.numpy_helper.from_array(np.random.default_rng(4).normal(size=(5, 4, 3)).astype(np.float32), "w")
    graph = helper.make_graph([node], "g", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def write_wide(path: Path) -> None:
    """A small graph whose input is so wide that the simulator's cost is told."""
    node = helper.make_node("AveragePool", ["x"], ["y"], name="pool", kernel_shape=[4, 4], strides=[4, 4])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 72, 72])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 18, 18])
    graph = helper.make_graph([node], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
