"""What a stranger's file calls things is shown on a terminal, and changes nothing there."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from main_job_kit import Cli
from onnx import TensorProto, helper, save

from artifacts.render import echo, print_table

NAME = "\x1b[2J\x1b[31mgate\rok\nforged line\x9b31m\u202e"
STYLE = re.compile(rb"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[AK]|\x1b\[2K")
"""What our own tables and progress write: colours, the cursor hidden and shown, lines written anew."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", NAME)]
    node = helper.make_node("Relu", ["x"], [NAME], name=NAME)
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def on_terminal(cli: Cli, *args: object) -> tuple[int, bytes]:
    """Run a command on a terminal of its own: its exit code, and all that the terminal was sent."""
    ours, theirs = pty.openpty()
    environment = {**cli.environment, "COLUMNS": "200", "TERM": "xterm"}
    command = [sys.executable, "-m", "convert", *map(str, args)]
    process = subprocess.Popen(
        command, cwd=cli.folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    )
    os.close(theirs)
    sent = bytearray()
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        sent += piece
    os.close(ours)
    return process.wait(), bytes(sent)


@pytest.mark.parametrize(
    "command",
    [
        ("{}", "--target", "cpu", "--no-publish"),
        ("check", "{}", "--target", "Ascend910B3"),
        ("graph", "lint", "{}"),
        ("forecast", "{}", "--precision", "fp16"),
        ("diff", "{}", "{}", "--per-node"),
    ],
    ids=lambda command: command[0] if command[0] != "{}" else "convert",
)
def test_a_terminal_sees_no_command_of_a_name(command: tuple[str, ...], model: Path, tmp_path: Path) -> None:
    code, sent = on_terminal(Cli(tmp_path), *(part.format(model) for part in command))
    assert code in (0, 4, 5, 8), sent
    plain = STYLE.sub(b"", sent)
    assert b"\x1b" not in plain and b"\x9b" not in plain.decode().encode("latin-1", "ignore"), plain
    assert "\u202e" not in sent.decode()
    assert not any(line.startswith("forged") for line in plain.decode().splitlines())


def test_what_is_printed_for_people_keeps_its_lines_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    echo("one\ntwo \x1b[31m three")
    echo("told", err=True)
    print_table(("name", "state"), [(NAME, "fine")])
    shown = capsys.readouterr()
    assert shown.err == "told\n"
    assert shown.out.splitlines()[:2] == ["one", "two ?[31m three"]
    assert shown.out.splitlines()[3].startswith("?[2J?[31mgate ok forged line?31m? ")
    assert len(shown.out.splitlines()) == 4
