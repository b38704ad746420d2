"""ixrtexec and its edition, the IxRT package of its interpreter, and the card."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from convert.backends.asking import LAUNCHER, answer, card_for, cards_of, find_program, last_words
from convert.backends.base import Missing, Toolchain
from convert.backends.ixrt.plan import ASSUMED, PROGRAM
from op_registry.values import Target

FOLDERS = ("/usr/local/corex/bin", "/usr/local/bin")
PYTHON = "CONVERT_IXRT_PYTHON"
"""The Python that has the package ixrt, where it is not the one that ixrtexec starts with."""
VERSION = "import ixrt; print('ixrt', ixrt.__version__)"


def probe(target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
    """The toolchain for a target on this machine or behind the launcher, or what is missing."""
    behind = bool(environment.get(LAUNCHER))
    program = PROGRAM if behind else find_program(PROGRAM, environment, FOLDERS)
    if not program:
        return Missing(
            name="IxRT",
            reason=f"{PROGRAM} is neither on PATH nor in {' or '.join(FOLDERS)}",
            hint="install the CoreX SDK and its package ixrt, and put /usr/local/corex/lib64 on LD_LIBRARY_PATH",
        )
    text = answer([program, "--help"], environment)
    if "--save_engine" not in text:
        return Missing(
            name="IxRT",
            reason=f"`{program} --help` does not list its flags: {last_words(text)}",
            hint="put /usr/local/corex/lib64 on LD_LIBRARY_PATH, and check that `ixrtexec --help` works",
            asked=behind,
        )
    python = environment.get(PYTHON) or ("python3" if behind else interpreter_of(Path(program)))
    found = re.search(r"^ixrt (\d[\w.+-]{0,40})", answer([python, "-c", VERSION], environment), re.MULTILINE)
    details = {"edition": edition_in(text), "python": python}
    version = found[1] if found else ASSUMED
    if not found:
        details["version_told_by"] = "nothing: ixrt could not be imported, so the newest known one is taken"
    if behind:
        return Toolchain(name="IxRT", version=version, details={**details, "launcher": environment[LAUNCHER]})
    cards = cards_of(("iluvatar",), environment)
    card = card_for(target, cards)
    if card is None:
        here = f"the card here is {', '.join(one.name for one in cards)}" if cards else "no Iluvatar card is seen"
        return Missing(
            name=target.name,
            reason=f"IxRT {version} is here, and {here}: it builds on the card itself",
            hint=f"build on a machine with {target.name}",
        )
    return Toolchain(name="IxRT", version=version, details={**details, "program": program, "card": card.name})


def edition_in(help_text: str) -> str:
    """The edition of an ixrtexec, by the flags and precisions that its help lists."""
    if "--strongly_typed" in help_text:
        return "2025-12"
    if re.search(r"--precision \{[^}]{0,60}bf16", help_text):
        return "2025-11"
    return "2025-06" if "--timingCacheFile" in help_text else "2024-09"


def interpreter_of(program: Path) -> str:
    """The Python that a console script starts with; ``python3`` where its first line names none."""
    try:
        with program.open("rb") as stream:
            first = stream.readline(400).decode("utf-8", "replace")
    except OSError:
        return "python3"
    found = re.match(r"#!\s*(?:/usr/bin/env\s+)?(\S*python[\d.]*)\s*$", first)
    return found[1] if found else "python3"
