"""Whether a compiled artifact keeps what the plan asked to keep, as the vendor's own output tells it.

A script of a plan says so in its log, in one line: ``…: plan: 3 of 4 operations are F32; not: NAME (f16)``. Where a
vendor's output does not tell, the notes say that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from convert.values import CompileOptions, Note

LINE = re.compile(r"^\w+: plan: (?:(\d+) of (\d+) operations are .+|not told, .+)$", re.MULTILINE)
LIMIT = 64 << 20
SPOKEN = re.compile(r"^plan: |of the plan stay in float32$")
OBEY = "--precisionConstraints=obey"
"""trtexec: layers run in the types that they were given, or the build fails (NVIDIA's documentation of
``BuilderFlag::kOBEY_PRECISION_CONSTRAINTS``)."""


def told_in(log: Path, source: str) -> tuple[Note, ...]:
    """The note of what a script said; a warning where something of the plan was not kept. None where it said nothing.

    ``source``: what it is told by.
    """
    if not log.is_file() or log.stat().st_size > LIMIT:
        return ()
    lines = list(LINE.finditer(log.read_text(encoding="utf-8", errors="replace")))
    if not lines:
        return ()
    said = lines[-1][0].partition(": plan: ")[2]
    if lines[-1][2] == "0":
        return ()
    if lines[-1][1] is None:
        return (Note(level="warning", text=f"whether the plan was honoured is {said}"),)
    whole = lines[-1][1] == lines[-1][2]
    return (Note(level="info" if whole else "warning", text=f"plan: {said} ({source})"),)


def plan_notes(options: CompileOptions, argv: Sequence[str], compiled: Sequence[Note], vendor: str) -> tuple[Note, ...]:
    """What is known of a mixed plan where the backend's own notes of a compile (``compiled``) say nothing of it."""
    if options.precision != "mixed" or not options.keep or any(SPOKEN.search(note.text) for note in compiled):
        return ()
    count = f"{len(options.keep)} nodes stay" if len(options.keep) > 1 else "one node stays"
    if OBEY in argv:
        text = f"plan: {count} in fp32: {vendor} was told to fail where it can't obey ({OBEY}), and did not"
    else:
        text = f"plan: whether {count} in fp32 is not told by {vendor}; the outputs on the card tell"
    return (Note(text=text),)
