"""Catalogues in a folder: tiny models, and the commands run in this process."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

from artifacts.cli import run_boundary
from convert.__main__ import cli

HEAD = """
[settings]
registry = "registry"
cache_dir = "{cache}"
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
        [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
            helper.make_node("Relu", ["h"], ["y"], name="r"),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(weight, "w")],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


class Site:
    """A folder with a catalogue, and the command run in it."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self.cache = cache

    def write(self, *models: str, head: str = HEAD) -> None:
        text = "\n".join((head.replace("{cache}", str(self.cache)), *models))
        (self.folder / "convert.toml").write_text(text, encoding="utf-8")

    def run(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """A ``convert catalog`` command with ``--json``: its exit code and its document."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.chdir(self.folder):
            code = run_boundary(cli, ["catalog", *arguments, "--json"], prog="convert", usage_code="CNV-2000")
        return code, json.loads(output.getvalue())

    def pairs(self, *arguments: str) -> dict[str, Any]:
        """The pairs of a plan or run, by ``model@target``."""
        found = self.run(*arguments)[1]["pairs"]
        return {f"{pair['model']}@{pair['target']}": pair for pair in found}
