"""A site with converted artifacts, and its command line run inside of this process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import helper, numpy_helper, save

from artifacts.cli import run_boundary
from convert.__main__ import cli

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "doubles" / "atc"))


class Ended(NamedTuple):
    """How a command ended, its document, and what it said on stderr."""

    code: int
    said: Any
    err: str


def tiny_model(path: Path, batch: int | str = 4) -> Path:
    """A product and a sigmoid."""
    weight = numpy_helper.from_array(np.random.default_rng(3).standard_normal((8, 3)).astype("f4"), "w")
    values = [helper.make_tensor_value_info(name, 1, [batch, last]) for name, last in (("x", 8), ("y", 3))]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Sigmoid", ["h"], ["y"], name="second"),
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weight])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


class Site:
    """A machine: its folder, the environment that its toolkits ask for, and its command line."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = {
            "PYTHONPATH": str(ROOT),
            **environment,
            "CONVERT_CACHE_DIR": str(folder / "cache"),
            "CONVERT_REGISTRY": str(folder / "registry"),
            "CONVERT_OUT": str(folder / "out"),
        }

    def __call__(self, *words: object, capsys: pytest.CaptureFixture[str] | None = None, **more: str) -> Ended:
        """Run ``convert`` with ``--json``; ``more`` are variables."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**self.environment, **more}.items():
                patch.setenv(name, value)
            patch.chdir(self.folder)
            if capsys is None:
                return Ended(run_boundary(cli, [*map(str, words)], prog="convert", usage_code="CNV-2000"), None, "")
            capsys.readouterr()
            code = run_boundary(cli, [*map(str, words), "--json"], prog="convert", usage_code="CNV-2000")
        told = capsys.readouterr()
        return Ended(code, json.loads(told.out), told.err)


def ascend_site(folder: Path, **more: Any) -> Site:
    """A machine with the stand-in for CANN 8.5 and an Ascend910B3."""
    from install import install_cann

    environment = install_cann(folder / "cann", "8.5.0", soc="Ascend910B3", **more)
    path = os.pathsep.join([str(ROOT), environment["PYTHONPATH"]])
    return Site(folder, {**environment, "PYTHONPATH": path})
