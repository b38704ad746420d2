"""What an examination finds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from artifacts.cards import Card
from convert.backends.base import Missing, Toolchain
from op_registry.values import Target

Level = Literal["ok", "note", "warning", "blocked"]
WORST: Mapping[Level, int] = {"ok": 0, "note": 1, "warning": 2, "blocked": 3}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. ``blocked``: it can't work like this; ``warning``: nobody says that it does."""

    level: Level
    about: str
    text: str
    hint: str = ""
    source: str = ""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What a checker looks at: the target, its toolchain or what is missing, the vendor's cards, and this machine.

    ``root`` is the root of the file system; ``packages`` are versions of installed Python distributions.
    """

    target: Target
    found: Toolchain | Missing
    cards: tuple[Card, ...] = ()
    environment: dict[str, str] = {}
    packages: dict[str, str] = {}
    root: str = "/"

    def path(self, name: str) -> Path:
        """A file of this machine by its absolute name."""
        return Path(self.root) / name.lstrip("/")


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Versions by component (``cann``, ``driver``, ``torch``), the pairs to hold against each other, and findings."""

    versions: dict[str, str] = {}
    pairs: tuple[tuple[str, str], ...] = ()
    findings: tuple[Finding, ...] = ()


class Checker(Protocol):
    """What one vendor's checker does: look at a scene; it reads files and starts nothing."""

    def __call__(self, scene: Scene) -> Parts:
        """The parts of a vendor's toolchain and what is wrong with them."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """One vendor's toolchain on this machine, or the machine itself. ``usable``: a conversion can end here."""

    vendor: str
    title: str
    target: str = ""
    toolchain: str = ""
    version: str = ""
    usable: bool = False
    present: bool = False
    """Something of this vendor is here: its toolchain, or a card."""
    versions: dict[str, str] = {}
    cards: tuple[Card, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def level(self) -> Level:
        """The worst finding."""
        return max((finding.level for finding in self.findings), key=lambda level: WORST[level], default="ok")


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was looked at. ``usable``: the exit code, 0 or 6."""

    machine: Health
    vendors: tuple[Health, ...] = ()
    usable: bool = False
