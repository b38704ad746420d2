"""The project's pages, the fenced blocks in them, and running what they show as a reader would."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("op_registry", "artifacts", "convert", "flows")
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")
PAGES = [
    *READMES,
    ROOT / "CHANGELOG.md",
    *(ROOT / package / "README.md" for package in PACKAGES),
    *sorted((ROOT / "docs").rglob("*.md")),
]
NOT_RUN = ("make", "prefect")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block."""

    language: str
    text: str


class Step(NamedTuple):
    """A command as a page shows it, what it prints there, and the exit code that the page tells."""

    command: str
    output: tuple[str, ...]
    code: int = 0


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    return [Block(*match.groups()) for match in FENCE.finditer(page.read_text(encoding="utf-8"))]


def steps(text: str) -> Iterator[Step]:
    """The commands of a console block; ``$ echo $?`` tells the exit code of the one before."""
    found: list[Step] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line == "$ echo $?":
            found[-1] = found[-1]._replace(code=int(next(lines)))
        elif line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command = command[:-1] + next(lines).strip()
            found.append(Step(command, ()))
        else:
            found[-1] = found[-1]._replace(output=(*found[-1].output, line))
    return iter(found)


def commands(page: Path) -> list[Step]:
    return [step for block in blocks(page) if block.language in ("console", "sh") for step in steps(block.text)]


def shape_of(line: str) -> re.Pattern[str]:
    """What a printed line must look like: numbers, times, sizes, digests and what ``…`` stands for may differ."""
    text = re.sub(r" ?…", "…", re.sub(r"(?<![.\w])[0-9a-f]{8,}\b…?", "\0", " ".join(line.split())))
    parts = re.split(r"(\0|…|\b\d[\d.]* s\b|\b\d[\d.]* k?M?B\b|\d[\d.]*(?:e-?\d+)?)", text)
    return re.compile("".join(_pattern(part) for part in parts))


def _pattern(part: str) -> str:
    if part == "\0":
        return r"[0-9a-f]+…?"
    if part == "…":
        return ".*"
    if part.endswith("B") and part[0].isdigit():
        return r"[\d.]+ k?M?B"
    if part.endswith(" s") and part[0].isdigit():
        return r"(?:[\d.]+ s|cached)"
    return r"[\d.]+(?:e-?\d+)?" if part[:1].isdigit() else re.escape(part)


def compare(step: Step, ended: subprocess.CompletedProcess[str]) -> None:
    """See that a command ended and printed as the page says."""
    assert ended.returncode == step.code, f"$ {step.command}\n{ended.stdout}"
    printed = [" ".join(line.split()) for line in ended.stdout.splitlines()]
    wrong = [line for line in step.output if not any(map(shape_of(line).fullmatch, printed))]
    assert not wrong, "\n".join([f"$ {step.command}", ended.stdout, "does not print", *wrong])


class Reader:
    """Somebody who types what a page shows, in a folder of their own."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CONVERT_")}
        self.environment = {
            **kept,
            "PYTHONPATH": str(ROOT),
            "CONVERT_CACHE_DIR": str(cache),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "COLUMNS": "300",
        }

    def follow(self, step: Step) -> None:
        """Do what a step says, and see that it ends and prints as the page says."""
        words = shlex.split(step.command)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self.environment[name] = value
        elif words[0] not in NOT_RUN:
            compare(step, self.run("-m", *words))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python with its output on one pipe."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
