"""The quick starts, line by line, on a machine without any toolkit and on one that has toolkit and card."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cards import machine_of
from onnx import TensorProto, helper, numpy_helper, save
from pages import ROOT, Block, Reader, Step, blocks, compare, steps

FOLDER = ROOT / "docs" / "quick-start"
VENDORS = sorted(path.stem for path in FOLDER.glob("*.md") if "." not in path.stem)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quick-start-cache")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with the model of the pages: its two inputs, under the pages' name."""
    weights = np.random.default_rng(5).standard_normal((128, 576)).astype("f4") / 24
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["heard"], transB=1, name="mix"),
        helper.make_node("Add", ["state", "heard"], ["stateN"], name="keep"),
        helper.make_node("ReduceSum", ["heard"], ["output"], keepdims=1, name="score"),
    ]
    shapes = {"x": [1, 576], "state": [2, 1, 128], "output": [1, 1], "stateN": [2, 1, 128]}
    infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    ends = [infos["x"], infos["state"]], [infos["output"], infos["stateN"]]
    graph = helper.make_graph(nodes, "vad", *ends, [numpy_helper.from_array(weights, "w")])
    (tmp_path / "home" / "demo-out").mkdir(parents=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with (tmp_path / "home" / "demo-out" / "silero_vad.pt").open("wb") as stream:
        save(model, stream)
    return tmp_path / "home"


def commands(vendor: str, language: str = "") -> list[tuple[str, Step]]:
    """What a page shows, in its order: the block's language, and a command of it."""
    found = blocks(FOLDER / f"{vendor}{language}.md")
    return [(block.language, step) for block in found if shown(block) for step in steps(block.text)]


def shown(block: Block) -> bool:
    return block.language in ("console", "text")


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_quick_start_leads_from_the_model_to_the_card(vendor: str, home: Path, cache: Path, tmp_path: Path) -> None:
    here = Reader(home, cache)
    there = {**here.environment, **machine_of(vendor, tmp_path / vendor), "CONVERT_REGISTRY": str(tmp_path / "there")}
    for language, step in commands(vendor):
        if language == "console":
            here.follow(step)
        else:
            compare(step, typed(step.command, home, there))


def typed(command: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What a shell of the machine with the toolkit does with a line."""
    mine = f"PYTHONPATH={ROOT}{os.pathsep}$PYTHONPATH {sys.executable} -m convert "
    return subprocess.run(
        ["bash", "-c", re.sub(r"^convert ", mine, command)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_chinese_page_shows_the_same_commands_and_links(vendor: str) -> None:
    assert commands(vendor) == commands(vendor, ".zh-CN")
    english, chinese = ((FOLDER / f"{vendor}{end}.md").read_text(encoding="utf-8") for end in ("", ".zh-CN"))
    for pattern in (r"^#+ ", r"^\| ", r"\]\((?!\w+\.)"):
        counts = [len(re.findall(pattern, page, re.MULTILINE)) for page in (english, chinese)]
        assert counts[0] == counts[1], pattern


def test_every_vendor_of_the_quick_starts_has_both_languages() -> None:
    assert VENDORS == ["ascend", "cambricon", "hygon", "metax"]
    assert sorted(path.name for path in FOLDER.glob("*.zh-CN.md")) == [f"{vendor}.zh-CN.md" for vendor in VENDORS]
