"""Keeping a folder current, and the command that runs after each change."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_kit import make_request

from artifacts.__main__ import cli
from artifacts.channels import Move, promote
from artifacts.cli import run_boundary
from artifacts.publish import publish
from artifacts.pull import pull
from artifacts.watch import watch


@pytest.fixture
def root(tmp_path) -> Path:
    for content in (b"one", b"two"):
        publish(tmp_path / "reg", make_request(tmp_path / "a", content=content))
    promote(tmp_path / "reg", "net:1.0.0", Move(channel="prod", actor="wei"))
    return tmp_path / "reg"


def run_watch(root: Path, out: Path, *, hook: str = "", turns: int = 1, between=lambda _: None) -> list[str]:
    told: list[str] = []
    watch(lambda: pull(root, "net:prod", out), seconds=7, hook=hook, tell=told.append, sleep=between, turns=turns)
    return told


def test_the_folder_follows_the_channel(root, tmp_path):
    pauses = []

    def between(seconds: float) -> None:
        pauses.append(seconds)
        promote(root, "net:1.0.1", Move(channel="prod", actor="wei"))

    told = run_watch(root, tmp_path / "out", turns=3, between=between)
    assert (tmp_path / "out/net.om").read_bytes() == b"two"
    assert (pauses, len(told)) == ([7, 7], 2)


def test_the_hook_runs_once_for_each_change_and_across_restarts(root, tmp_path):
    hook = 'echo "$CONVERT_REF $CONVERT_DIGEST" >> hooked; cat "$CONVERT_PATH/net.om" >> hooked'
    for _ in range(2):
        run_watch(root, tmp_path / "out", hook=hook, turns=2)
    promote(root, "net:1.0.1", Move(channel="prod", actor="wei"))
    run_watch(root, tmp_path / "out", hook=hook)
    lines = (tmp_path / "hooked").read_text()
    assert [lines.count(part) for part in ("net:prod sha256:", "one", "two")] == [2, 1, 1]


def test_a_hook_that_fails_is_run_again_until_it_succeeds(root, tmp_path):
    hook = "echo try >> hooked; test $(wc -l < hooked) -ge 3"
    told = run_watch(root, tmp_path / "out", hook=hook, turns=5)
    assert (tmp_path / "hooked").read_text() == "try\n" * 3
    assert [line for line in told if "exit code 1" in line] == [told[1], told[2]]


def test_a_registry_that_is_away_for_a_while_changes_nothing(root, tmp_path):
    run_watch(root, tmp_path / "out")
    root.rename(tmp_path / "away")
    told = run_watch(root, tmp_path / "out", turns=2, between=lambda _: (tmp_path / "away").rename(root) and None)
    assert [line.split(":")[0] for line in told] == ["error [CNV-9001]"]
    assert (tmp_path / "out/net.om").read_bytes() == b"one"


@pytest.mark.parametrize("argv", [["--hook", "true"], ["--watch", "60"], ["out", "--watch", "60", "--json"]])
def test_options_that_do_not_go_together_are_usage_errors(root, argv, capsys):
    code = run_boundary(cli, ["pull", "net", *argv, "--registry", str(root)], prog="artifacts", usage_code="CNV-2401")
    assert code == 2
    assert "CNV-2408" in capsys.readouterr().err
