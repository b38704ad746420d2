"""What a comparison node by node says; apart from the comparing, so that the command line imports no numpy."""

from __future__ import annotations

from typing import Literal

import msgspec

from convert.values import Note


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """One node of B whose output departs from the value of A that it stands for.

    ``error`` is its relative L2, ``arriving`` the highest of what it was computed from, ``made`` what the piece of B
    from those inputs to here makes of A's exact numbers; None where it was not run.
    """

    node: str
    op: str
    module: str = ""
    output: str
    counterpart: str
    """The value of A, and ``counterpart_node`` what wrote it."""
    counterpart_node: str = ""
    by: Literal["name", "structure", "numbers", "dump"] = "name"
    error: float = 0.0
    arriving: float = 0.0
    made: float | None = None
    reason: str = ""


class NodeDiff(msgspec.Struct, frozen=True, kw_only=True):
    """Two graphs node by node. ``first`` made the first error beyond ``limit``; None where nothing departs."""

    limit: float
    aligned: int
    values: int
    """How many float values B has, and of how many the counterpart is known."""
    by: dict[str, int] = {}
    first: Departure | None = None
    departures: tuple[Departure, ...] = ()
    notes: tuple[Note, ...] = ()
