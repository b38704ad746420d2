"""The values of rewriting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import onnx

NMS_SPLIT = ("nms-split", "the graph cut in front of NonMaxSuppression, in two files; only where asked for")
"""Name and title of what is asked for like a rewrite and gives two graphs (``nms_split.py``)."""


class Avoided(msgspec.Struct, frozen=True, kw_only=True):
    """What a rewrite makes avoidable: an operator, or one attribute of it at some values (none: at any)."""

    op: str
    domain: str = ""
    attribute: str = ""
    values: tuple[str | int, ...] = ()
    fact: str = ""
    """What else is avoided, in a word: ``int64-input``, ``duplicate-names``, …"""


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """A rewrite that was made and proven. ``nodes``: the names of the nodes (or values) that it replaced."""

    name: str
    nodes: tuple[str, ...]
    evidence: dict[str, Any]
    """How it was proven: runtime, number of inputs, greatest differences."""


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """A rewrite that was tried and taken back, and why."""

    name: str
    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class RewriteResult:
    """The model after rewriting. Names that found nothing to do are in neither list."""

    model: onnx.ModelProto
    applied: tuple[Applied, ...]
    undone: tuple[Undone, ...] = ()


@dataclass(frozen=True)
class Rewrite:
    """One rewrite. ``run`` changes a copy of the model in place and says which nodes it replaced.

    ``repairs``: the model may not run before it (unsorted nodes, double names): then nothing is compared.
    ``opt_in``: it is tried only where asked for by name.
    """

    name: str
    title: str
    avoids: tuple[Avoided, ...]
    run: Callable[[onnx.ModelProto, str], list[str]]
    repairs: bool = False
    opt_in: bool = False
    allowed: float = 0.0
    """By how much the outputs may change (relative L2); 0: they stay what they were."""
