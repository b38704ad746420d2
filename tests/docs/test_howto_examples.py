"""The examples of the how-tos on rows and rewrites do what the pages say."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import parser
from pages import ROOT, blocks

from convert.__main__ import cli
from convert.rewrites import RULES, rewrite

HOW_TO = ROOT / "docs" / "how-to"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> str:
    """The rewrite of the page, as a module of its own and a line of the table."""
    (code,) = (block.text for block in blocks(HOW_TO / "add-a-rewrite.md") if block.language == "python")
    module = ModuleType("softsign_of_the_page")
    exec(compile(code, "add-a-rewrite.md", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(RULES, "softsign-to-abs", f"{module.__name__}:RULE")  # type: ignore[attr-defined]
    return "softsign-to-abs"


def test_the_rewrite_of_the_page_is_proven_and_kept(example: str) -> None:
    head = '<ir_version: 8, opset_import: ["": 17]>'
    model = parser.parse_model(f"{head} g (float[2,3] x) => (float[2,3] y) {{ y = Softsign(x) }}")
    result = rewrite(model, [example], samples=[{"x": np.linspace(-3, 3, 6, dtype="f4").reshape(2, 3)}])
    assert ([one.name for one in result.applied], result.undone) == ([example], ())
    assert [node.op_type for node in result.model.graph.node] == ["Constant", "Abs", "Add", "Div"]
    onnx.checker.check_model(result.model, full_check=True)
    assert rewrite(result.model, [example]).applied == ()


def test_the_row_of_the_page_is_an_answer_of_this_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = (block.text for block in blocks(HOW_TO / "add-an-operator-row.md") if block.language == "csv")
    (tmp_path / "ops.csv").write_text(text)
    head = '<ir_version: 8, opset_import: ["": 11]>'
    model = parser.parse_model(f"{head} g (float[2,3] x) => (float[2,3] y) {{ y = Softsign(x) }}")
    onnx.save(model, tmp_path / "m.onnx")
    asked = ["ops", "coverage", str(tmp_path / "m.onnx"), "--vendor", "cambricon", "--quiet"]
    monkeypatch.setenv("CONVERT_OPS_OVERLAY", str(tmp_path / "none.csv"))
    assert "refused  Softsign" not in CliRunner().invoke(cli, asked).output
    monkeypatch.setenv("CONVERT_OPS_OVERLAY", str(tmp_path / "ops.csv"))
    assert "1 refused  Softsign" in CliRunner().invoke(cli, asked).output


@pytest.mark.parametrize("name", ["add-a-vendor", "add-an-operator-row", "add-a-rewrite", "add-a-backend"])
def test_files_that_a_page_points_at_exist(name: str) -> None:
    text = (HOW_TO / f"{name}.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:convert|artifacts|op_registry|tests|docs)/[\w/.-]+)`", text))
    made_up = {"convert/backends/acme.py", "convert/rewrites/softsign.py"}
    ours = {path for path in named - made_up if "acme" not in path}
    assert {path for path in ours if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("name", ["air-gapped"])
def test_a_chinese_how_to_shows_the_same_commands(name: str) -> None:
    english, chinese = (HOW_TO / f"{name}.md", HOW_TO / f"{name}.zh-CN.md")
    shown = [[block for block in blocks(page) if block.language] for page in (english, chinese)]
    assert shown[0] == shown[1]
    counts = [len(re.findall(r"^#+ ", page.read_text(encoding="utf-8"), re.MULTILINE)) for page in (english, chinese)]
    assert counts[0] == counts[1]
