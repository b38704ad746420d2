"""Reading a vendor's log: which row of its table names the first cause, and what the log says there.

A log is never searched with a regular expression as a whole. Plain texts and error codes find places, the same number
at most for a log of any length, and a row's bounded pattern is tried on the line there and the next one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import islice

import msgspec

from convert.backends.base import Diagnosis
from convert.diagnosis.names import bare_op, real_names
from convert.diagnosis.tables import KINDS, RANKS, Row, rows_for

LONGEST = 8 << 20
"""Characters of a log that are read: its end."""
PLACES = 200
"""Places at which one row is tried."""
BEFORE, AFTER = 300, 900
"""Characters around a place that a pattern sees."""
CODES = 256
"""Different error codes of one log that are looked at, the first ones."""
NAMED = 64
CODE = re.compile(r"(?<![A-Za-z0-9])(?:E[A-Z0-9]\d{4}|W\d{5})(?![A-Za-z0-9])")
CONTROL = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
TROUBLE = re.compile(
    r"(?i)\b(?:error|fail\w{0,4}|fatal|exception|abort\w{0,3}|invalid|unsupported|cannot|can't)\b|\[[EF]\]"
)
LABELS = {
    "op": "operator",
    "node": "node",
    "flag": "flag",
    "input": "input",
    "file": "file",
    "module": "module",
    "step": "step",
    "value": "value",
    "expected": "expected",
}


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """A row found in a log: where its line begins, whether its pattern matched, and what the groups hold."""

    row: Row
    at: int
    detailed: bool
    line: str
    groups: dict[str, str]

    def order(self) -> tuple[int, int, bool, bool, int]:
        """Causes before what follows them, the first one first; of two for one line the one that says more."""
        return (self.row.rank, self.at, not self.detailed, not self.row.codes, -self.row.number)


def read_log(vendor: str, log: str, nodes: Collection[str] = ()) -> Diagnosis:
    """What a log of a vendor's tool means: the first cause in it, in our words, and what to do.

    ``nodes`` are the names of the graph's nodes: where they are given, names in the log are mapped to them, however
    the vendor changed them. Pure; time grows with the log's length only. A log that no row knows gives
    ``known=False`` and its last meaningful lines. Raises ValueError for a vendor without a table.
    """
    matches = matches_in(vendor, log)
    if not matches:
        return Diagnosis(
            cause=last_lines(log) or "the tool said nothing",
            hint="nothing of this log is known here: read it from its first error on, and see the vendor's manual",
            known=False,
        )
    first = matches[0]
    alike = [match for match in matches if match.row.rank == first.row.rank and match.row.kind == first.row.kind]
    named = _gathered(alike, "node")
    ops = tuple(dict.fromkeys(bare_op(op) for several in _gathered(alike, "op") for op in several.split(",")))
    return Diagnosis(
        code=KINDS[first.row.kind].code,
        cause=f"{first.row.cause}{_details(first, ops, log)}",
        hint=first.row.action,
        nodes=real_names(named, nodes) if nodes else tuple(named),
        ops=ops,
    )


def matches_in(vendor: str, log: str) -> list[Match]:
    """Every row found in a log, the first cause first."""
    log = log[-LONGEST:]
    rows = rows_for(vendor)
    found: dict[tuple[str, int, int], Match] = {}
    codes = _codes_in(log) if any(row.codes for row in rows) else {}
    for row in rows:
        for place, code in _places(row, log, codes):
            match = _tried(row, log, place, by_code=bool(code))
            if match is not None:
                found.setdefault((row.vendor, row.number, match.at), match)
    return sorted(found.values(), key=Match.order)


def _codes_in(log: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for match in CODE.finditer(log):
        places = found.get(match[0])
        if places is None:
            if len(found) < CODES:
                found[match[0]] = [match.start()]
        elif len(places) < PLACES:
            places.append(match.start())
    return found


def _places(row: Row, log: str, codes: dict[str, list[int]]) -> Iterator[tuple[int, str]]:
    """Where a row may stand, by its codes and by its plain texts."""
    coded = ((place, code) for code, places in codes.items() if row.has_code(code) for place in places)
    yield from islice(coded, PLACES)
    most = max(PLACES // max(len(row.seek), 1), 20)
    for text in row.seek:
        place, count = log.find(text), 0
        while place >= 0 and count < most:
            yield place, ""
            place, count = log.find(text, place + len(text)), count + 1


def _tried(row: Row, log: str, place: int, *, by_code: bool) -> Match | None:
    """The row at a place of a log. A code alone is enough; a plain text needs the pattern."""
    begin = max(log.rfind("\n", max(0, place - BEFORE), place) + 1, place - BEFORE, 0)
    end = _line_end(log, place, place + AFTER)
    text = log[begin:end]
    match = row.search(text) if row.pattern else None
    if match is None and end < place + AFTER:
        text = f"{text} {log[end + 1 : _line_end(log, end + 1, place + AFTER)].strip()}"
        match = row.search(text) if row.pattern else None
    if match is None and not by_code:
        return None
    groups = {name.rstrip("23"): value.strip() for name, value in match.groupdict().items() if value} if match else {}
    line = clean(log[begin:end])
    return Match(row=row, at=begin, detailed=match is not None, line=line, groups=groups)


def _line_end(log: str, start: int, limit: int) -> int:
    end = log.find("\n", start, limit)
    return end if end >= 0 else min(limit, len(log))


def _gathered(matches: list[Match], group: str) -> list[str]:
    values = (clean(match.groups[group]) for match in matches if match.groups.get(group))
    return list(dict.fromkeys(values))[:NAMED]


def _details(match: Match, ops: tuple[str, ...], log: str) -> str:
    """What the log itself says of the cause, behind our words."""
    if RANKS[match.row.rank] == "status":
        told = last_lines(log)
        return f" ({told})" if told and told != match.line else ""
    said = [
        f"{label} {clean(match.groups[name])}"
        for name, label in LABELS.items()
        if match.groups.get(name) and name != "op"
    ]
    if ops:
        said.insert(0, f"operator{'s' * (len(ops) > 1)} {', '.join(ops[:8])}{' …' if len(ops) > 8 else ''}")
    reason = clean(match.groups.get("reason", ""))
    if not said and not reason:
        return f" ({match.line[:200]})" if match.line else ""
    return (f" ({'; '.join(said)})" if said else "") + (f": {reason}" if reason else "")


def clean(text: str) -> str:
    """A piece of a log in one line, without anything that a terminal would act on."""
    return " ".join(CONTROL.sub(" ", text).split())


def last_lines(log: str, count: int = 3) -> str:
    """The last lines of a log that say something; those that speak of trouble where there are any."""
    lines = [line for line in (clean(line[:400]) for line in log[-65536:].splitlines()) if line]
    trouble = [line for line in lines if TROUBLE.search(line)]
    return " | ".join((trouble or lines)[-count:])[:600]
