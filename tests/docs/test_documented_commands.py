"""What the pages show works: every command is run, ends as the page says and prints what the page says."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from pathlib import Path

import pytest
from pages import NOT_RUN, PAGES, READMES, ROOT, Reader, blocks, commands, name_of, shape_of, steps

QUICK_STARTS = ROOT / "docs" / "quick-start"  # followed by test_quick_start.py, on machines of their own
RUN = [page for page in PAGES if commands(page) and page.parent != QUICK_STARTS]


@pytest.fixture(scope="session")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with the inputs, outputs and kinds of operators of the one that the pages convert."""
    import torch
    from torch import nn

    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(1, 4, 16, stride=16)
            self.mix = nn.Linear(144, 128)
            self.score = nn.Linear(128, 1)

        def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            heard = self.mix(torch.relu(self.conv(x.unsqueeze(1))).flatten(1))
            first = torch.sigmoid(state[0:1] + heard)
            second = state[1:2] * first + heard
            return torch.sigmoid(self.score(second[0])), torch.cat([first, second])

    torch.manual_seed(5)
    path = tmp_path_factory.mktemp("documented") / "silero_vad.pt"
    example = (torch.rand(1, 576), torch.rand(2, 1, 128))
    torch.jit.save(torch.jit.trace(Detector().eval(), example), str(path))
    return path


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("documented-cache")


@pytest.fixture
def reader(tmp_path: Path, detector: Path, shared_cache: Path) -> Reader:
    (tmp_path / "demo-out").mkdir()
    (tmp_path / "demo-out" / "silero_vad.pt").hardlink_to(detector)
    return Reader(tmp_path, shared_cache)


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_every_command_of_a_page_works_as_the_page_says(page: Path, reader: Reader) -> None:
    for block in blocks(page):
        if block.language in ("console", "sh"):
            for step in steps(block.text):
                reader.follow(step)
        elif block.language == "python" and page in READMES:
            ended = reader.run("-c", block.text)
            assert (ended.returncode, ended.stdout) == (0, "published True\n")


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_pages_show_only_commands_that_are_run_or_known(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for words in (shlex.split(step.command) for step in commands(page)):
        assert words[0] in ("convert", "artifacts", "python", "export", *NOT_RUN)
        assert words[0] != "make" or set(words[1:]) <= set(targets)


def test_the_example_of_the_flow_calls_it_with_arguments_that_it_has() -> None:
    from flows.convert_model import convert_model

    (text,) = (block.text for block in blocks(ROOT / "docs/concepts/flows.md") if block.language == "python")
    (call,) = (node.value for node in ast.parse(text).body if isinstance(node, ast.Assign))
    assert isinstance(call, ast.Call)
    given = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
    assert inspect.signature(convert_model.fn).bind(**given).arguments == given


@pytest.mark.parametrize(
    ("documented", "printed", "same"),
    [
        ("load  2.8 s  2 random samples", "load cached 2 random samples", True),
        ("model.onnx  1.2 MB  sha256:84a86c00…", "model.onnx 36.1 kB sha256:00ff", True),
        ("rel_l2=1e-06, floor=1e-06", "rel_l2=0.01, floor=1e-06", True),
        ("ascend  8.1  100%", "ascend 9.1 97%", True),
        ("report  …/report.html", "report elsewhere/report.html", True),
        ("gate passed on device", "gate passed on host", False),
        ("output_0  scalar", "output_0 compared", False),
    ],
)
def test_a_printed_line_may_differ_in_numbers_and_in_nothing_else(documented: str, printed: str, same: bool) -> None:
    assert bool(shape_of(documented).fullmatch(printed)) is same
