"""Asking a compiler what it is, here or behind the launcher; and the card that it compiles on."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from artifacts.cards import Card, find_cards
from artifacts.errors import ModelConvertError
from artifacts.runner import run_process
from convert.launcher import launched, parse_launcher
from op_registry.targets import find_target
from op_registry.values import Target

SECONDS = 30.0
MOST = 1 << 20
LAUNCHER = "CONVERT_LAUNCHER"


def find_program(name: str, environment: Mapping[str, str], folders: Sequence[str]) -> str:
    """A program on ``PATH``, else in the folders where its vendor puts it; empty where there is none."""
    places = [environment.get("PATH", ""), *folders]
    return shutil.which(name, path=":".join(place for place in places if place)) or ""


def answer(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """What a program prints, both streams, at most 1 MiB; empty where it can't be started or takes too long.

    Behind a launcher the program runs on its other side.
    """
    with tempfile.TemporaryDirectory(prefix="asking-") as folder:
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
            return stream.read(MOST).decode("utf-8", "replace")


def last_words(text: str) -> str:
    """The last line that a program said, for a sentence about it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it says nothing"


def card_for(target: Target, cards: Sequence[Card]) -> Card | None:
    """The card of this machine that a target's artifacts can be compiled and run on: the part, else the same arch."""
    same = [card for card in cards if card.target == target.name or card.name == target.name]
    alike = [card for card in cards if target.arch and _arch(card) == target.arch]
    return next(iter([*same, *alike]), None)


def _arch(card: Card) -> str:
    return card.arch or (find_target(card.target).arch if card.target else "")


def cards_of(vendor: str, environment: Mapping[str, str]) -> list[Card]:
    """This machine's cards of a vendor."""
    return [card for card in find_cards(environment) if card.vendor == vendor]
