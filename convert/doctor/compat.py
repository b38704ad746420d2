"""Which versions belong together: ``data/compat.csv``, read once, and two versions held against it.

A row's ``rule`` says what its range means: ``tested`` (the vendor tested these together: another version warns),
``lower`` (a stated lower bound: an older version blocks) and ``incompatible`` (the vendor says that they don't work
together: blocks). What no row speaks of is not known, and is said to be so.
"""

from __future__ import annotations

import csv
import re
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from convert.doctor.values import Finding
from op_registry.versions import in_range, is_version

DATA = Path(__file__).with_name("data") / "compat.csv"
Rule = Literal["tested", "lower", "incompatible"]


class CompatRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row. ``version`` and ``range`` are ranges; ``version`` may be an exact text of its own (``2.1.0.post17``)."""

    component: str
    version: str
    needs: str
    range: str
    rule: Rule
    confidence: Literal["high", "medium", "low"]
    source: str


@lru_cache(maxsize=1)
def compat_rows() -> tuple[CompatRow, ...]:
    """All rows, in the order of the file."""
    with DATA.open(encoding="utf-8", newline="") as stream:
        return tuple(msgspec.convert(row, CompatRow) for row in csv.DictReader(stream))


def judge_pair(component: str, version: str, needs: str, there: str) -> Finding | None:
    """What is known of a version of a component beside a version of what it needs; None where no row speaks of it.

    A build's own suffix (``+cpu``, ``-V1.5.0a``) is left out where the row doesn't have one.
    """
    rows = [row for row in compat_rows() if (row.component, row.needs) == (component, needs)]
    rows = [row for row in rows if _speaks_of(row, version)]
    plain = _plain(there)
    if not rows or not is_version(plain):
        return None
    about = f"{component} {version}, {needs} {there}"
    for row in rows:
        if row.rule == "incompatible" and in_range(plain, row.range):
            return Finding(level="blocked", about=about, text="the vendor says that they don't work together",
                           hint=f"install a {needs} that is not {row.range}", source=row.source)  # fmt: skip
        bound = re.match(r">=?\s*[0-9][^,|]*", row.range)
        if row.rule == "lower" and bound is not None and not in_range(plain, bound[0]):
            return Finding(level="blocked", about=about, text=f"{component} {version} needs {needs} {bound[0]}",
                           hint=f"update {needs}, or take an older {component}", source=row.source)  # fmt: skip
    holding = [row for row in rows if row.rule != "incompatible" and in_range(plain, row.range)]
    if holding:
        return Finding(level="ok", about=about, text="they belong together", source=holding[0].source)
    tested = [row for row in rows if row.rule != "incompatible"]
    if not tested:
        return None
    ranges = " or ".join(dict.fromkeys(row.range.replace("|", " or ") for row in tested))
    return Finding(level="warning", about=about, text=f"nobody says that they were tested together; tested: {ranges}",
                   hint=f"if something fails, try a tested {needs} first", source=tested[0].source)  # fmt: skip


def _speaks_of(row: CompatRow, version: str) -> bool:
    if row.version == version:
        return True
    try:
        return is_version(_plain(version)) and in_range(_plain(version), row.version)
    except ValueError:
        return False


def _plain(version: str) -> str:
    """``2.6.0+cpu`` → ``2.6.0``, ``6.3.31-V1.5.0a`` → ``6.3.31``; other texts stay."""
    return re.sub(r"(\+|-V).*$", "", version.strip())
