"""Which target of a version fits the cards of this machine.

An artifact compiled for one exact part fits that part alone; one without a part fits every member of its family. A part
that isn't known by name still fits what was compiled for its architecture (``gfx942``). ``cpu`` fits every machine, but
is never taken by itself where the version has anything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from artifacts.cards import Card
from artifacts.errors import RegistryError

ARCH_NAMES = ("gfx", "sm_", "mtp_")
"""Architectures that compilers take as the name of a part; Ascend's short SoC names are not among them."""
HOST = "cpu"


def match_cards(facts: Sequence[Mapping[str, str]], cards: Sequence[Card], ref: str) -> int | None:
    """The number of the one target that fits the cards of this machine; None where no known card was found.

    Args:
        facts: ``target``, ``soc`` and ``precision`` of each target of the version.
        cards: The machine's cards.
        ref: What was asked for, for messages.

    Raises:
        RegistryError: CNV-9071 (cards, but nothing for them), CNV-9072 (targets for cards of several kinds).
    """
    known = [card for card in cards if card.target or card.soc]
    if len(facts) == 1 and (not known or facts[0]["target"].lower() == HOST):
        return 0
    if not known:
        return None
    best = [(number, card) for card in known if (number := _best(facts, card)) is not None]
    taken = {number for number, _ in best}
    if len(taken) == 1:
        return best[0][0]
    here = describe(cards)
    there = ", ".join(sorted(label(item) for item in facts))
    if not taken:
        raise RegistryError(
            "CNV-9071",
            f"{ref} has nothing for this machine's {here}; it has: {there}",
            hint="convert the model for this card, or take another one's artifact with --target",
        )
    fits = "; ".join(f"{label(facts[number])} for {card.name}" for number, card in sorted(dict(best).items()))
    raise RegistryError(
        "CNV-9072",
        f"this machine has cards of several kinds ({here}), and {ref} has artifacts for more than one: {fits}",
        hint="choose one with --target or --soc",
    )


def _best(facts: Sequence[Mapping[str, str]], card: Card) -> int | None:
    strengths = [fitness(item["target"], item["soc"], card) for item in facts]
    return strengths.index(max(strengths)) if max(strengths) else None


def fitness(target: str, soc: str, card: Card) -> int:
    """How well an artifact fits a card: 3 its exact part, 2 its architecture, 1 its family, 0 not at all."""
    named = (soc or target).lower()
    if soc and named == card.soc.lower():
        return 3
    if not soc and named == card.target.lower():
        return 3 if card.soc else 1
    if card.arch.startswith(ARCH_NAMES) and named == card.arch.lower():
        return 2
    return 1 if not soc and named in {name.lower() for name in card.families} else 0


def describe(cards: Sequence[Card]) -> str:
    """The machine's cards in a few words: ``2 × 910B3 (npu-smi)``."""
    counted: dict[tuple[str, str], int] = {}
    for card in cards:
        counted[card.name, card.tool] = counted.get((card.name, card.tool), 0) + 1
    parts = [
        f"{count} × {name} ({tool})" if count > 1 else f"{name} ({tool})" for (name, tool), count in counted.items()
    ]
    return ", ".join(parts)


def label(facts: Mapping[str, str]) -> str:
    """A target in a message: ``Ascend910B (Ascend910B3) fp16``."""
    exact = f" ({facts['soc']})" if facts["soc"] and facts["soc"] != facts["target"] else ""
    return f"{facts['target']}{exact} {facts['precision']}".strip()
