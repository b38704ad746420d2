"""A site's own overlay: rows that this site learned or wrote itself, asked before the vendors' tables.

It is one CSV file (``overlay_path``). Everything that comes from it has the grade ``site``, whatever it says, so that
support which a site has widened is never mistaken for what a source says: such nodes are listed even where they are
``ok``. A file that breaks its format is refused with file and line (CNV-2504).
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from op_registry.conditions import parse_condition
from op_registry.support import Rule
from op_registry.tables import Line, format_opsets, parse_opsets, read_bytes, read_csv
from op_registry.values import OpRow, State
from op_registry.vendors import all_vendors
from op_registry.versions import in_range

COLUMNS = ("vendor", "versions", "arch", "domain", "op", "opsets", "state", "note", "source")
WHEN = "when"
"""A further column that an overlay may have: the form of the operator that a line is about, as in ``rules.csv``."""


class SiteRow(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One line of an overlay. ``versions`` is a range; ``arch`` empty: every part; ``opsets`` as in ``ops.csv``."""

    vendor: str
    versions: str
    arch: str
    domain: str
    op: str
    opsets: str
    state: State
    note: str
    source: str
    when: str = ""

    def rule(self) -> Rule:
        """The line as a rule about some nodes of its operator."""
        return Rule(
            name=(self.domain, self.op),
            opsets=parse_opsets(self.opsets),
            archs=frozenset({self.arch} if self.arch else ()),
            state=self.state,
            grade="site",
            when=parse_condition(self.when),
            reason=self.note,
            source=self.source,
        )

    def row(self) -> OpRow:
        """The line as a row of a support table."""
        return OpRow(
            domain=self.domain,
            op=self.op,
            opsets=parse_opsets(self.opsets),
            state=self.state,
            grade="site",
            source=self.source,
            limits=self.note,
        )


def overlay_path() -> Path:
    """Where the overlay lies: ``CONVERT_OPS_OVERLAY``, or ``model-convert/ops.csv`` in the user's configuration."""
    named = os.environ.get("CONVERT_OPS_OVERLAY")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "model-convert" / "ops.csv"


def read_overlay(path: Path | None = None) -> tuple[SiteRow, ...]:
    """All lines of an overlay; none where there is no such file. Raises MalformedData (CNV-2504)."""
    path = path or overlay_path()
    if not path.exists():
        return ()
    return tuple(_site_row(line) for line in read_csv(path, COLUMNS))


def overlay_digest(path: Path | None = None) -> str:
    """A digest of the overlay's content, for cache keys; empty where there is none."""
    path = path or overlay_path()
    return hashlib.sha256(read_bytes(path)).hexdigest() if path.exists() else ""


def _site_row(line: Line) -> SiteRow:
    vendor = line.one_of("vendor", all_vendors())
    opsets = line.opsets("opsets")
    if opsets is not None and not opsets:
        raise line.fault("column 'opsets' is empty; write * for every opset")
    return SiteRow(
        vendor=vendor,
        versions=line.versions("versions"),
        arch=line.get("arch"),
        domain=line.get("domain"),
        op=line.text("op"),
        opsets=format_opsets(opsets),
        state=line.state(),
        note=line.get("note"),
        source=line.text("source"),
        when=_when(line),
    )


def _when(line: Line) -> str:
    """The condition of a line, empty where there is none. Raises MalformedData (CNV-2504) where it can't be read."""
    line.parsed(WHEN, parse_condition)
    return line.get(WHEN)


def rows_for(lines: Iterable[SiteRow], vendor: str, version: str, arch: str = "") -> tuple[OpRow, ...]:
    """The rows that hold for a vendor's toolchain version and architecture, what is said of fewer versions first.

    Lines about a form of an operator are no rows: ``rules_for`` gives them.

    The first row of an operator counts: what was learned from this very version stands over what was written for all.
    """
    return tuple(
        line.row() for line in sorted(lines, key=_breadth) if not line.when and _holds(line, vendor, version, arch)
    )


def rules_for(lines: Iterable[SiteRow], vendor: str, version: str, arch: str = "") -> tuple[Rule, ...]:
    """The rules about forms of operators that hold for a vendor's toolchain version and architecture."""
    return tuple(line.rule() for line in lines if line.when and _holds(line, vendor, version, arch))


def _holds(line: SiteRow, vendor: str, version: str, arch: str) -> bool:
    versions = not line.versions or (bool(version) and in_range(version, line.versions))
    return line.vendor == vendor and versions and line.arch in ("", arch)


def _breadth(line: SiteRow) -> tuple[bool, bool, bool]:
    """How much a line holds for; one exact version and one architecture come first."""
    return not line.versions.startswith("=="), not line.versions, not line.arch


def merged(old: Iterable[SiteRow], new: Iterable[SiteRow]) -> tuple[SiteRow, ...]:
    """Old lines and new ones, sorted; what is new about an operator at a version replaces what was said before."""
    new = tuple(new)
    told = {_subject(line) for line in new}
    kept = [line for line in old if _subject(line) not in told]
    return tuple(sorted({*kept, *new}))


def _subject(line: SiteRow) -> tuple[str, ...]:
    """What a line is about."""
    return line.vendor, line.versions, line.arch, line.domain, line.op, line.when


def overlay_text(lines: Iterable[SiteRow]) -> str:
    """Lines as the overlay's file; the column ``when`` where one of them has it."""
    lines = tuple(lines)
    columns = (*COLUMNS, WHEN) if any(line.when for line in lines) else COLUMNS
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for line in lines:
        writer.writerow([getattr(line, column) for column in columns])
    return stream.getvalue()


def write_overlay(lines: Iterable[SiteRow], path: Path | None = None) -> Path:
    """Write an overlay whole: a new file beside it, then a rename."""
    path = path or overlay_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(overlay_text(lines), encoding="utf-8")
    fresh.replace(path)
    return path
