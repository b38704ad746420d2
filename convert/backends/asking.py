"""Asking a compiler what it is, here or behind the launcher; and the card that it compiles on."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from artifacts.cards import LIMITED_BY, Card, find_cards
from artifacts.errors import ModelConvertError
from artifacts.runner import run_process
from artifacts.scratch import temporary_folder
from convert.launcher import launched, parse_launcher
from op_registry.targets import find_target
from op_registry.values import Target

SECONDS = 30.0
MOST = 1 << 20
SUM = ("sh", "-c", "echo launched-$((41 + 1))")
RESULT = "launched-42"
BY_MODEL = ("nvidia", "iluvatar")
"""Vendors whose engines run on the model of card that they were built on (trtexec and IxRT both measure kernels)."""
ANSI = re.compile(r"\x1b\[[0-9;]*m")
LAUNCHER = "CONVERT_LAUNCHER"
HIDES = ("", "-1")
"""Values of a variable such as ``CUDA_VISIBLE_DEVICES`` that leave no card to a program."""


def find_program(name: str, environment: Mapping[str, str], folders: Sequence[str]) -> str:
    """A program on ``PATH``, else in the folders where its vendor puts it; empty where there is none."""
    places = [environment.get("PATH", ""), *folders]
    return shutil.which(name, path=":".join(place for place in places if place)) or ""


def answer(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """What a program prints, both streams, at most 1 MiB, without colours.

    Empty where it can't be started or takes too long. Behind a launcher the program runs on its other side.
    """
    with temporary_folder("asking") as folder:
        log = Path(folder) / "answer.log"
        words = launched(parse_launcher(environment.get(LAUNCHER, "")), argv, {}, Path(tempfile.gettempdir()))
        try:
            run_process(
                words, folder=Path(folder), log=log, timeout=SECONDS, environment={**environment, "LC_ALL": "C"}
            )
        except ModelConvertError:
            return ""
        if not log.is_file():
            return ""
        with log.open("rb") as stream:
            return ANSI.sub("", stream.read(MOST).decode("utf-8", "replace"))


def launcher_fault(launcher: Sequence[str]) -> str:
    """How a launcher fails by itself, given a small sum to do, in words; empty where it comes back with the result."""
    with temporary_folder("asking") as folder:
        log = Path(folder) / "answer.log"
        try:
            ended = run_process(
                launched(launcher, SUM, {}, Path(folder)), folder=Path(folder), log=log, timeout=SECONDS
            )
        except ModelConvertError as error:
            return error.message
        if ended.timed_out:
            return f"it did not answer within {SECONDS:.0f} s"
        with log.open("rb") as stream:
            said = stream.read(MOST).decode("utf-8", "replace")
        if ended.returncode:
            return f"it ended with exit code {ended.returncode}: {last_words(said)}"
        return "" if RESULT in said else f"it ended with exit code 0, and ran nothing: {last_words(said)}"


def last_words(text: str) -> str:
    """The last line that a program said, for a sentence about it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it says nothing"


def card_for(target: Target, cards: Sequence[Card]) -> Card | None:
    """The card of this machine that a target's artifacts can be compiled and run on: the part, else the same arch.

    Where an engine fits one model of card (``BY_MODEL``), a card that is known as another target does not do.
    """
    same = [card for card in cards if card.target == target.name or card.name == target.name]
    alike = [card for card in cards if target.arch and _arch(card) == target.arch]
    if target.vendor in BY_MODEL:
        alike = [card for card in alike if not card.target]
    return next(iter([*same, *alike]), None)


def _arch(card: Card) -> str:
    return card.arch or (find_target(card.target).arch if card.target else "")


def cards_of(vendors: Sequence[str], environment: Mapping[str, str]) -> list[Card]:
    """This machine's cards of some vendors; other vendors' tools are not asked."""
    return find_cards(environment, vendors)


def hidden_by(vendor: str, environment: Mapping[str, str]) -> str:
    """The variable that hides every card of a vendor from programs, though not from its tool; empty: none does."""
    names = LIMITED_BY.get(vendor, ())
    return next((name for name in names if environment.get(name, "0").strip() in HIDES), "")
