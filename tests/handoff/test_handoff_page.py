"""What the page on handing over shows for the machines with a toolkit and a card works there, in its order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from handoff_kit import ROOT, device_outputs, run_om
from onnx import TensorProto, helper, numpy_helper, save

PAGE = ROOT / "docs" / "how-to" / "handoff.md"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with the model of the page: two inputs, under the page's name."""
    weights = np.random.default_rng(5).standard_normal((128, 576)).astype("f4") / 24
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["heard"], transB=1, name="mix"),
        helper.make_node("Add", ["state", "heard"], ["stateN"], name="keep"),
        helper.make_node("ReduceSum", ["heard"], ["output"], keepdims=1, name="score"),
    ]
    inputs = [("x", [1, 576]), ("state", [2, 1, 128])]
    outputs = [("output", [1, 1]), ("stateN", [2, 1, 128])]
    graph = helper.make_graph(
        nodes,
        "vad",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        [numpy_helper.from_array(weights, "w")],
    )
    (tmp_path / "demo-out").mkdir()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, tmp_path / "demo-out" / "silero_vad.onnx")
    (tmp_path / "demo-out" / "silero_vad.onnx").rename(tmp_path / "demo-out" / "silero_vad.pt")
    return tmp_path


def test_the_steps_of_the_page_end_in_a_published_artifact(home: Path, cann: dict[str, str]) -> None:
    blocks = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    elsewhere = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    first = re.search(r"^\$ (convert demo-out/.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert first is not None
    assert follow(first[1], home, {}).returncode == 6
    *before, last = elsewhere
    for command in before:
        ended = follow(command, home, cann)
        assert ended.returncode == 0, f"{command}\n{ended.stdout}"
    device_outputs(home / "silero_vad-Ascend910B.handoff", run_om)
    ended = follow(last, home, {})
    assert ended.returncode == 0, ended.stdout
    assert "silero_vad:1.0.0-ascend910b3  gate passed on device" in ended.stdout


def follow(command: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Type a command as the page shows it."""
    python = f"{sys.executable} -m convert "
    line = re.sub(r"^convert ", python, re.sub(r"^python3 ", f"{sys.executable} ", command))
    own = {"PYTHONPATH": str(ROOT), "CONVERT_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env={**os.environ, **environment, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
