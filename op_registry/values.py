"""READ FIRST: the values of the operator registry, and its one vocabulary.

``State``, what happens to a node:

    ok        the toolchain takes it
    slow      it is taken, but runs on a slower engine (Ascend: AI CPU)
    risk      it is taken, but something of it is ignored: numbers may differ silently
    refused   the toolchain stops at it
    unknown   nothing public says

``Grade``, how we know:

    read      from the toolchain's own source, table or manual
    measured  from a run of the toolchain
    inferred  concluded from something else (the row says from what)
    site      from this site's own overlay
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

State = Literal["ok", "slow", "risk", "refused", "unknown"]
Grade = Literal["read", "measured", "inferred", "site"]
PrecisionState = Literal["yes", "partial", "no", "unknown"]

STATES: tuple[State, ...] = get_args(State)
GRADES: tuple[Grade, ...] = get_args(Grade)
PRECISION_STATES: tuple[PrecisionState, ...] = get_args(PrecisionState)
SEVERITY: dict[State, int] = {"ok": 0, "slow": 1, "risk": 2, "unknown": 3, "refused": 4}
"""A node with several findings takes the state that stands highest here."""

Opsets = frozenset[int] | None
"""The opset numbers that a statement is about; None: whatever the opset is."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A card or SoC that a user types, or a family of them.

    ``precisions`` holds fp32, tf32, fp16, bf16, int8, fp8 and int4. ``backend`` is empty where no public compiler
    exists. ``opset_default`` is the opset to export at when nothing else decides.
    """

    name: str
    vendor: str
    backend: str
    kind: Literal["family", "soc"] = "soc"
    members: tuple[str, ...] = ()
    """Names of the SoCs of a family, as the compiler takes them."""
    aliases: tuple[str, ...] = ()
    arch: str = ""
    """What the compiler's kernels are built for: Ascend's short SoC name, ``gfx942``, ``mtp_372``, …"""
    precisions: dict[str, PrecisionState] = {}
    default_precision: str = "fp16"
    opset_min: int = 1
    opset_max: int = 0
    opset_default: int = 17
    memory: str = ""
    """What the sources say of device memory, with its unit; empty where they say nothing."""
    toolchains: str = ""
    """Which toolchain versions know this part, as a version range (``>=8.1,<=8.4``); empty: all."""
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


class OpRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one toolchain version says of one operator at some opsets.

    ``types`` maps a type parameter (``T``) or an input number (``0``) to the element types taken; empty: not stated.
    ``lacking`` is the state of a node whose type isn't among them.
    """

    domain: str
    op: str
    opsets: Opsets
    state: State
    grade: Grade
    source: str
    types: dict[str, frozenset[str]] = {}
    lacking: State = "unknown"
    limits: str = ""
    runs_as: str = ""
    hint: str = ""


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """On which engines an operator of the device runs, per architecture."""

    name: str
    aicore: frozenset[str] = frozenset()
    aicpu: bool = False
    host: bool = False
    known: bool = True


class Judged(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of one node on a target. ``op`` is ``(graph)`` where it is about the graph as a whole."""

    op: str
    node: str
    module: str = ""
    state: State
    grade: Grade
    reason: str
    source: str
    hint: str = ""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A whole graph judged. ``judged`` lists what isn't ``ok``, in the order of the graph."""

    target: str
    vendor: str
    toolchain_version: str
    assumed_version: bool
    """No version was asked for: the table of ``toolchain_version`` was taken."""
    opset: int
    nodes: int
    supported: bool
    strict: bool = False
    judged: tuple[Judged, ...] = ()
    counts: dict[str, int] = {}
    """Nodes per state."""
    best_opset: int = 0
    """The opset with the fewest refusals in the target's range; 0: nothing to choose between."""

    @property
    def refusals(self) -> tuple[Judged, ...]:
        """The findings that keep the graph from this target, ``strict`` taken into account."""
        refusing = {"refused", "unknown", "risk"} if self.strict else {"refused"}
        return tuple(item for item in self.judged if item.state in refusing)
