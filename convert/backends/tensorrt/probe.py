"""trtexec and its release, and the card: TensorRT measures kernels on it while it builds, so both must be here."""

from __future__ import annotations

import re
from collections.abc import Mapping

from convert.backends.asking import LAUNCHER, answer, card_for, cards_of, find_program, last_words
from convert.backends.base import Missing, Toolchain
from convert.backends.tensorrt.plan import PROGRAM
from op_registry.values import Target

FOLDERS = ("/usr/src/tensorrt/bin", "/opt/tensorrt/bin", "/usr/local/tensorrt/bin")
"""Where NVIDIA's packages and containers put trtexec."""
PLAIN = re.compile(r"TensorRT version: (\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)")
BRACKET = re.compile(r"\[TensorRT v(\d{4,6})\]")


def probe(target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
    """The toolchain for a target on this machine or behind the launcher, or what is missing."""
    behind = bool(environment.get(LAUNCHER))
    program = PROGRAM if behind else find_program(PROGRAM, environment, FOLDERS)
    if not program:
        return Missing(
            name="TensorRT",
            reason=f"{PROGRAM} is neither on PATH nor in {' or '.join(FOLDERS)}",
            hint="install TensorRT with its samples' binaries, or use NVIDIA's container for it",
        )
    text = answer([program, "--help"], environment)
    version = version_in(text)
    if not version:
        return Missing(
            name="TensorRT",
            reason=f"`{program} --help` does not tell a version: {last_words(text)}",
            hint="put TensorRT's lib folder on LD_LIBRARY_PATH, and check that `trtexec --help` works",
            asked=behind,
        )
    if behind:
        return Toolchain(name="TensorRT", version=version, details={"launcher": environment[LAUNCHER]})
    return _with_card(program, version, target, environment)


def _with_card(program: str, version: str, target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
    cards = cards_of(("nvidia",), environment)
    card = card_for(target, cards)
    if card is None:
        here = f"the card here is {', '.join(card.name for card in cards)}" if cards else "no NVIDIA card is seen"
        return Missing(
            name=target.name,
            reason=f"TensorRT {version} is here, and {here}: it builds on the card itself",
            hint=f"build on a machine with {target.name}",
        )
    details = {"program": program, "card": card.name, "arch": card.arch or target.arch}
    return Toolchain(name="TensorRT", version=version, details={**details, "driver": card.driver})


def version_in(text: str) -> str:
    """The version that trtexec prints: in words, else as a number in its first bracket.

    Six digits are 10000 x major + 100 x minor + patch (from 10.0 on), four are 1000 x major + 100 x minor + patch.
    (NVIDIA/TensorRT samples/common/logger.cpp and NvInferVersion.h.)
    """
    if found := PLAIN.search(text):
        return found[1]
    if not (found := BRACKET.search(text)):
        return ""
    number = int(found[1])
    unit = 10000 if len(found[1]) >= 6 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"
