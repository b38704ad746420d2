"""One toolchain version's support table, read from ``data/<vendor>/``.

``ops.csv``      what is registered: a row per operator, opsets either in ``opsets`` (with ``versions``, a range of
                 versions) or in one column per era; a cell ``~8-18`` is expected but not read, ``?8-18`` is unknown
``rules.csv``    what the rows can't say: attributes, ranks, values that are refused, ignored or slow
``kernels.csv``  (Ascend) on which engine each operator of the device runs, per architecture
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import msgspec

from op_registry.conditions import Clause, parse_condition
from op_registry.tables import DATA, Line, parse_opsets, read_csv, read_toml
from op_registry.values import Grade, Kernel, OpRow, Opsets, State
from op_registry.vendors import Era, Vendor, all_vendors, era_of
from op_registry.versions import in_range

Name = tuple[str, str]
"""Domain (empty: ai.onnx) and operator."""
GRAPH = "(graph)"
ANY = ("", "*")
"""The name of rules that speak of every operator."""
S = TypeVar("S")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A statement about nodes of an operator that the rows can't make. ``archs`` empty: every part."""

    name: Name
    opsets: Opsets
    archs: frozenset[str]
    state: State
    grade: Grade
    when: tuple[Clause, ...]
    reason: str
    source: str
    hint: str = ""
    listed: bool = False
    """The rule decides the state that ``ops list`` gives the operator at these opsets."""

    def at(self, opset: int, arch: str) -> bool:
        """Whether the rule speaks of an opset and an architecture."""
        return (self.opsets is None or opset in self.opsets) and (not self.archs or arch in self.archs)


class SupportTable(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one toolchain version."""

    vendor: Vendor
    version: str
    era: Era | None
    rows: Mapping[Name, tuple[OpRow, ...]]
    rules: Mapping[Name, tuple[Rule, ...]]
    kernels: Mapping[Name, tuple[Kernel, ...]]
    site: Mapping[Name, tuple[OpRow, ...]] = {}
    """The rows of this site's overlay; they are asked first."""
    newest_opset: int = 0
    """The newest opset that the toolchain loads; 0: not stated."""
    anywhere: Mapping[str, Name] = {}
    """Operators by name alone, for toolchains that ignore domains."""

    def with_site(self, rows: Iterable[OpRow], rules: Iterable[Rule] = ()) -> SupportTable:
        """The same table with a site's own rows and rules in front."""
        groups, own = group_rows(rows), _grouped((rule.name, rule) for rule in rules)
        if not groups and not own:
            return self
        both = {name: (*found, *self.rules.get(name, ())) for name, found in own.items()}
        return msgspec.structs.replace(self, site=groups, rules={**self.rules, **both})


def group_rows(rows: Iterable[OpRow]) -> dict[Name, tuple[OpRow, ...]]:
    """Rows by operator."""
    return _grouped(((row.domain, row.op), row) for row in rows)


def _grouped(items: Iterable[tuple[Name, S]]) -> dict[Name, tuple[S, ...]]:
    groups: dict[Name, list[S]] = defaultdict(list)
    for name, item in items:
        groups[name].append(item)
    return {name: tuple(found) for name, found in groups.items()}


@lru_cache(maxsize=64)
def load_support(vendor_name: str, version: str) -> SupportTable:
    """The table of a vendor's toolchain version (resolved: see ``vendors.resolve_version``).

    For ``onnxruntime`` it is always that of the installed package; without one, that of the version written down.
    Raises MalformedData (CNV-2504) where a data file breaks its format.
    """
    vendor = all_vendors()[vendor_name]
    folder = DATA / vendor_name
    if vendor_name == "onnxruntime":
        return _onnxruntime(vendor, folder)
    return _table(vendor, version, list(_read_rows(vendor, version, folder)), 0)


def _table(vendor: Vendor, version: str, rows: list[OpRow], newest: int) -> SupportTable:
    folder = DATA / vendor.name
    by_name = {row.op: (row.domain, row.op) for row in rows if row.state != "refused"}
    return SupportTable(
        vendor=vendor,
        version=version,
        era=era_of(vendor, version) if version else next(iter(vendor.era), None),
        rows=group_rows(rows),
        rules=_grouped((rule.name, rule) for rule in _read_rules(folder, version)),
        kernels=_read_kernels(folder / "kernels.csv"),
        newest_opset=newest,
        anywhere=by_name if vendor.domains == "ignored" else {},
    )


class Measured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of which ONNX Runtime ``data/onnxruntime/ops.csv`` is."""

    version: str
    newest_opset: int


def _onnxruntime(vendor: Vendor, folder: Path) -> SupportTable:
    written = read_toml(folder / "measured.toml", Measured)
    installed = installed_onnxruntime() or written.version
    if installed == written.version:
        return _table(vendor, installed, list(_read_rows(vendor, installed, folder)), written.newest_opset)
    from op_registry.generate import installed_rows

    rows, newest = installed_rows()
    return _table(vendor, installed, rows, newest)


def installed_onnxruntime() -> str:
    """The version of the ONNX Runtime that this Python would import, without importing it; empty where it has none."""
    loaded = sys.modules.get("onnxruntime")
    if loaded is not None:
        return str(getattr(loaded, "__version__", ""))
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        return ""
    text = Path(spec.origin).read_text(encoding="utf-8", errors="replace")
    match = re.search(r"""^__version__\s*=\s*["']([^"']+)["']""", text, re.MULTILINE)
    return match[1] if match else ""


def _read_rows(vendor: Vendor, version: str, folder: Path) -> Iterator[OpRow]:
    era = era_of(vendor, version) if version else next(iter(vendor.era), None)
    path = folder / "ops.csv"
    if not path.exists():
        return
    for line in read_csv(path, ("domain", "op", "state", "grade", "source")):
        row = row_of(line, era, version, vendor.lacking)
        if row is not None:
            yield row


def row_of(line: Line, era: Era | None, version: str, lacking: State = "unknown") -> OpRow | None:
    """A line of ``ops.csv`` as it holds for a version; None where it says nothing of it."""
    if "versions" in line.cells and version and not in_range(version, line.versions("versions")):
        return None
    state, grade = line.state(), line.grade()
    by_era = era is not None and era.id in line.cells
    cell = line.get(era.id) if by_era and era is not None else line.get("opsets")
    source = line.text("source")
    if cell[:1] in ("~", "?"):
        state, grade = (state if cell[0] == "~" else "unknown"), "inferred"
        cell = cell[1:]
    if not cell:
        if by_era and state != "refused":
            return None
        if state != "refused":
            raise line.fault("the opsets are missing")
    try:
        opsets = parse_opsets(cell)
    except ValueError as fault:
        raise line.fault(str(fault)) from fault
    return OpRow(
        domain=line.get("domain"),
        op=line.text("op"),
        opsets=opsets,
        state=state,
        grade=grade,
        source=source,
        types=line.parsed("types", parse_types),
        lacking=lacking,
        limits=line.get("limits"),
        runs_as=line.get("runs_as"),
        hint=line.get("hint"),
    )


@lru_cache(maxsize=1024)
def parse_types(text: str) -> dict[str, frozenset[str]]:
    """``0=float32|float64 1=int64``. Raises ValueError."""
    types = {}
    for part in text.split():
        place, equals, names = part.partition("=")
        if not equals or not names or not place.isascii() or not place.removeprefix("o").isdigit():
            raise ValueError(f"{part!r} isn't written PLACE=TYPE|TYPE")
        types[place] = frozenset(names.split("|"))
    return types


RULE_COLUMNS = ("op", "domain", "opsets", "versions", "archs", "state", "grade", "when", "reason", "hint", "source")


def _read_rules(folder: Path, version: str) -> Iterator[Rule]:
    path = folder / "rules.csv"
    if not path.exists():
        return
    for line in read_csv(path, RULE_COLUMNS):
        if version and not in_range(version, line.versions("versions")):
            continue
        opsets, when = line.opsets("opsets"), line.parsed("when", parse_condition)
        for op in line.text("op").split():
            yield Rule(
                name=(line.get("domain"), op),
                opsets=opsets,
                archs=frozenset(line.get("archs").split()),
                state=line.state(),
                grade=line.grade(),
                when=when,
                reason=line.text("reason"),
                source=line.text("source"),
                hint=line.get("hint"),
                listed=line.get("listed") == "yes",
            )


def _read_kernels(path: Path) -> dict[Name, tuple[Kernel, ...]]:
    if not path.exists():
        return {}
    return _grouped(
        (
            (line.get("domain"), line.text("op")),
            Kernel(
                name=line.text("runs_as"),
                aicore=frozenset(line.get("aicore").split()),
                aicpu=line.get("aicpu") == "yes",
                host=line.get("host") == "yes",
                known=line.get("known") != "no",
            ),
        )
        for line in read_csv(path, ("domain", "op", "runs_as", "aicore", "aicpu", "host", "known"))
    )
