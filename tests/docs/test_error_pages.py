"""Each page of a code shows what was typed and printed before, and what works after; both against the source."""

from __future__ import annotations

import re
import shlex
import warnings
from pathlib import Path

import click
import pytest
from messages import is_printed
from pages import ROOT

from artifacts.__main__ import cli as artifacts_cli
from convert.__main__ import cli as convert_cli

EXPLAINED = sorted((ROOT / "convert" / "explain").glob("*.md"))
NO_ERROR = {"CNV-7278"}
"""Told by `convert explain` of a log; never an error."""
WITHIN = {"CNV-7341"}
"""Told within another error, in brackets at its end."""
WRONG_USAGE = {"CNV-2000", "CNV-2311", "CNV-2401"}
"""What was typed before can't be parsed: that is the error."""
PROGRAMS = {"convert": convert_cli, "artifacts": artifacts_cli}


def example(path: Path) -> tuple[list[str], list[str]]:
    """The indented lines after ``Before:`` and after ``After:``."""
    text = path.read_text(encoding="utf-8").partition("\n## Example\n")[2]
    parts = re.fullmatch(r"\nBefore:\n\n((?: {4}.*\n|\n)+)\nAfter:\n\n((?: {4}.*\n|\n)+)", text)
    assert parts is not None, text
    before, after = (part.strip("\n").splitlines() for part in parts.groups())
    return [line[4:] for line in before], [line[4:] for line in after]


@pytest.mark.parametrize("path", EXPLAINED, ids=lambda path: path.stem)
def test_a_page_shows_what_is_printed_before_and_what_to_do_after(path: Path) -> None:
    before, after = example(path)
    assert len(before) > 1
    assert after
    assert after != before[:-1]
    if path.stem in NO_ERROR:
        assert before[-1].endswith(path.stem)
        return
    if path.stem in WITHIN:
        assert is_printed(path.stem, before[-1].rpartition(f"([{path.stem}] ")[2].removesuffix(")")), before[-1]
        return
    start = f"error [{path.stem}]: "
    assert before[-1].startswith(start)
    assert is_printed(path.stem, before[-1].removeprefix(start)), before[-1]
    assert [line for line in before[:-1] + after if line.startswith("error")] == []


def typed(lines: list[str]) -> list[list[str]]:
    """The commands of this project among the lines, as words, without variables before and pipes after them."""
    found: list[list[str]] = []
    for line in lines:
        words = shlex.split(line.removeprefix("$ "), comments=True) if line.startswith("$ ") else []
        while words:
            end = next((place for place, word in enumerate(words) if word in ("&&", "|", "<")), len(words))
            first = next((place for place, word in enumerate(words) if not re.fullmatch(r"[A-Z_]+=.*", word)), end)
            if words[first:end] and words[first] in PROGRAMS:
                found.append(words[first:end])
            words = words[end + 1 :]
    return found


@pytest.mark.parametrize("path", EXPLAINED, ids=lambda path: path.stem)
def test_the_commands_of_a_page_have_options_that_exist(path: Path) -> None:
    before, after = example(path)
    for words in typed(after) if path.stem in WRONG_USAGE else typed(before) + typed(after):
        command: click.Command = PROGRAMS[words[0]]
        rest = words[1:]
        context = click.Context(command, info_name=words[0])
        while isinstance(command, click.Group):
            parsed = command.parse_args(context, list(rest))
            assert parsed is not None
            # Click parts a group's words in two until its version 9, and warns of that at each look.
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
                left = [*context.protected_args, *context.args]
            name, found, rest = command.resolve_command(context, left)
            assert found is not None
            command, context = found, click.Context(found, info_name=name, parent=context)
        command.make_parser(context).parse_args(list(rest))
