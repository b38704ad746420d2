"""Questions asked of the support data without a graph: list, show, diff. Pure functions that return Structs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from op_registry.errors import UnknownOperator
from op_registry.overlay import SiteRow, rows_for
from op_registry.support import ANY, GRAPH, Name, Rule, SupportTable, load_support
from op_registry.tables import DATA, format_opsets, read_csv
from op_registry.targets import find_target
from op_registry.values import SEVERITY, Grade, Kernel, OpRow, State, Target
from op_registry.vendors import Vendor, all_vendors, find_vendor, resolve_version
from op_registry.verdict import verdict


class OpEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What a toolchain version says of an operator at some opsets.

    ``opsets`` is empty where it is refused at all of them, and where the opset doesn't matter (``any_opset``).
    """

    domain: str
    op: str
    opsets: tuple[int, ...]
    any_opset: bool = False
    state: State
    grade: Grade
    source: str
    note: str = ""
    runs_as: str = ""


class OpList(msgspec.Struct, frozen=True, kw_only=True):
    """All operators of a toolchain version, as ``convert ops list --json`` prints them."""

    schema: int = 1
    vendor: str
    toolchain_version: str
    target: str = ""
    ops: tuple[OpEntry, ...]


class RuleShown(msgspec.Struct, frozen=True, kw_only=True):
    """A rule on an operator, in words."""

    opsets: str
    state: State
    grade: Grade
    when: str
    reason: str
    hint: str
    source: str


class VendorView(msgspec.Struct, frozen=True, kw_only=True):
    """What one vendor's toolchain says of one operator."""

    vendor: str
    title: str
    toolchain: str
    toolchain_version: str
    entries: tuple[OpEntry, ...]
    rules: tuple[RuleShown, ...] = ()
    kernels: tuple[Kernel, ...] = ()


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """An execution provider of ONNX Runtime that names an operator: second evidence, whatever the vendor's table."""

    op: str
    provider: str
    listed: str
    modes: str
    source: str


class OpShown(msgspec.Struct, frozen=True, kw_only=True):
    """One operator at every vendor."""

    schema: int = 1
    op: str
    vendors: tuple[VendorView, ...]
    evidence: tuple[Evidence, ...]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a comparison: a vendor's toolchain version, seen from a target where one was named."""

    name: str
    vendor: str
    toolchain_version: str
    target: str = ""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """An operator that the two sides take differently, each side as ``ok 8-18, risk 18``."""

    domain: str
    op: str
    before: str
    after: str
    kind: str
    """``gained``: taken on the second side only; ``lost``: on the first only; ``changed``: otherwise."""


class OpDiff(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides compared."""

    schema: int = 1
    before: Side
    after: Side
    changes: tuple[Change, ...]
    same: int
    """Operators that both sides take alike."""


def list_ops(
    vendor_name: str, version: str = "", *, target: Target | None = None, site: Iterable[SiteRow] = ()
) -> OpList:
    """Every operator that a toolchain version's table names, sorted.

    Raises UnknownVendor (CNV-2503) and UnknownVersion (CNV-2502).
    """
    vendor = find_vendor(vendor_name)
    known = resolve_version(vendor, version)
    arch = target.arch if target else ""
    table = load_support(vendor.name, known).with_site(rows_for(site, vendor.name, known, arch))
    names = sorted({*table.rows, *table.site}, key=lambda name: (name[0], name[1].casefold(), name[1]))
    ops = tuple(entry for name in names for entry in entries_of(table, name, arch))
    return OpList(vendor=vendor.name, toolchain_version=table.version, target=target.name if target else "", ops=ops)


def entries_of(table: SupportTable, name: Name, arch: str = "") -> list[OpEntry]:
    """An operator's entries: one for each group of opsets with the same state, grade and source."""
    rows = [*table.site.get(name, ()), *table.rows.get(name, ())]
    groups: dict[tuple[State, Grade, str, str], set[int]] = {}
    taken: set[int] = set()
    entries: list[OpEntry] = []
    for row in rows:
        if row.opsets is None or not row.opsets:
            entries.append(_entry(row, (), _listed(table, name, row, 0, arch)))
            continue
        for opset in row.opsets - taken:
            state, grade, source, note = _listed(table, name, row, opset, arch)
            groups.setdefault((state, grade, source, note), set()).add(opset)
        taken |= row.opsets
    first = rows[0]
    entries += [_entry(first, tuple(sorted(opsets)), key) for key, opsets in groups.items()]
    return sorted(entries, key=lambda entry: (entry.opsets, entry.state))


def _entry(row: OpRow, opsets: tuple[int, ...], key: tuple[State, Grade, str, str]) -> OpEntry:
    state, grade, source, note = key
    return OpEntry(
        domain=row.domain,
        op=row.op,
        opsets=opsets,
        any_opset=row.opsets is None,
        state=state,
        grade=grade,
        source=source,
        note=note,
        runs_as=row.runs_as,
    )


def _listed(table: SupportTable, name: Name, row: OpRow, opset: int, arch: str) -> tuple[State, Grade, str, str]:
    """State, grade, source and note of an operator at an opset, rules that decide the list taken in."""
    if row.grade == "site" or row.state == "refused":
        return row.state, row.grade, row.source, row.limits
    worst: tuple[State, str, str] = (row.state, row.source, row.limits)
    rules = [rule for rule in table.rules.get(name, ()) if rule.listed and rule.at(opset, arch) and not rule.archs]
    for rule in rules:
        if SEVERITY[rule.state] > SEVERITY[worst[0]]:
            worst = (rule.state, rule.source, rule.reason)
    if arch:
        for found in verdict(table, name, opset, arch).findings:
            if SEVERITY[found.state] > SEVERITY[worst[0]]:
                worst = (found.state, found.source, found.reason)
    return worst[0], row.grade, worst[1], worst[2]


def show_op(op: str, version_of: dict[str, str] | None = None, site: Iterable[SiteRow] = ()) -> OpShown:
    """One operator at every vendor's version (the vendor's usual one where ``version_of`` says nothing).

    ``op`` may carry its domain (``npu::NPUMish``); case doesn't matter. ``site``: this site's overlay, of which rows
    for one part alone say so. Raises UnknownOperator (CNV-2505).
    """
    lines = tuple(_for_any_part(line) for line in site)
    versions = version_of or {}
    domain, _, wanted = op.rpartition("::")
    domain = "" if domain == "ai.onnx" else domain
    tables = {
        vendor.name: _with_site(vendor, resolve_version(vendor, versions.get(vendor.name, "")), lines)
        for vendor in all_vendors().values()
    }
    found = {
        name
        for table in tables.values()
        for name in (*table.rows, *table.site)
        if name[1].casefold() == wanted.casefold() and (not domain or name[0] == domain)
    }
    if not found:
        raise _unknown_operator(op, tables.values())
    views = tuple(_view(table, sorted(found)) for table in tables.values())
    evidence = tuple(item for item in providers() if item.op.casefold() == wanted.casefold())
    return OpShown(op=sorted(found)[0][1], vendors=views, evidence=evidence)


def _with_site(vendor: Vendor, version: str, site: Iterable[SiteRow]) -> SupportTable:
    return load_support(vendor.name, version).with_site(rows_for(site, vendor.name, version))


def _for_any_part(line: SiteRow) -> SiteRow:
    if not line.arch:
        return line
    return msgspec.structs.replace(line, arch="", note=f"{line.arch} only" + (f": {line.note}" if line.note else ""))


def _unknown_operator(op: str, tables: Iterable[SupportTable]) -> UnknownOperator:
    names = {name[1].casefold(): name[1] for table in tables for name in table.rows}
    near = difflib.get_close_matches(op.rpartition("::")[2].casefold(), list(names), n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(names[item] for item in near)}?" if near else "convert ops list has all of them"
    return UnknownOperator("CNV-2505", f"no table names an operator {op!r}", hint=hint)


def _view(table: SupportTable, names: list[Name]) -> VendorView:
    entries = tuple(
        entry for name in names if name in table.rows or name in table.site for entry in entries_of(table, name)
    )
    if not entries:
        vendor = table.vendor
        entries = (
            OpEntry(
                domain=names[0][0],
                op=names[0][1],
                opsets=(),
                state=vendor.unlisted,
                grade=vendor.unlisted_grade,
                source=table.era.source if table.era else vendor.toolchain,
                note=vendor.unlisted_reason,
            ),
        )
    return VendorView(
        vendor=table.vendor.name,
        title=table.vendor.title,
        toolchain=table.vendor.toolchain,
        toolchain_version=table.version,
        entries=entries,
        rules=tuple(_rule_shown(rule) for name in names for rule in table.rules.get(name, ())),
        kernels=tuple(kernel for name in names for kernel in table.kernels.get(name, ())),
    )


def _rule_shown(rule: Rule) -> RuleShown:
    when = " and ".join(
        " ".join(part for part in (clause.subject, clause.key, clause.verb, *clause.values) if part)
        for clause in rule.when
    )
    return RuleShown(
        opsets=format_opsets(rule.opsets),
        state=rule.state,
        grade=rule.grade,
        when=when,
        reason=rule.reason,
        hint=rule.hint,
        source=rule.source,
    )


@lru_cache(maxsize=1)
def providers() -> tuple[Evidence, ...]:
    """Operators that ONNX Runtime's vendor providers name."""
    columns = ("op", "provider", "listed", "modes", "source")
    return tuple(
        Evidence(
            op=line.text("op"),
            provider=line.text("provider"),
            listed=line.one_of("listed", ("yes", "no")),
            modes=line.get("modes"),
            source=line.text("source"),
        )
        for line in read_csv(DATA / "providers.csv", columns)
    )


def parse_side(text: str, vendor: str = "") -> Side:
    """A side of ``diff``: ``TARGET``, ``VENDOR``, either with ``@VERSION``, or a bare version of ``vendor``.

    Raises UnknownTarget, UnknownVendor or UnknownVersion.
    """
    name, at, version = text.partition("@")
    if vendor and not at and text[:1].isdigit():
        name, version = vendor, text
    known = _vendor_named(name)
    if known is not None:
        return Side(name=text, vendor=known.name, toolchain_version=resolve_version(known, version))
    target = find_target(name)
    owner = all_vendors()[target.vendor]
    return Side(name=text, vendor=owner.name, toolchain_version=resolve_version(owner, version), target=target.name)


def _vendor_named(name: str) -> Vendor | None:
    wanted = name.casefold()
    return next((v for v in all_vendors().values() if wanted in (v.name, *v.aliases) and wanted != "cpu"), None)


def diff_ops(before: Side, after: Side, site: Iterable[SiteRow] = ()) -> OpDiff:
    """What two toolchain versions, parts or vendors take differently, by the vendors' tables and a site's overlay."""
    lines = tuple(site)
    left, right = _summaries(before, lines), _summaries(after, lines)
    changes: list[Change] = []
    same = 0
    for name in sorted({*left, *right}, key=lambda name: (name[0], name[1].casefold())):
        one, two = left.get(name, ""), right.get(name, "")
        if one == two or (not _takes(one) and not _takes(two)):
            same += bool(_takes(one))
            continue
        kind = "gained" if not _takes(one) else "lost" if not _takes(two) else "changed"
        changes.append(
            Change(domain=name[0], op=name[1], before=one or "not named", after=two or "not named", kind=kind)
        )
    return OpDiff(before=before, after=after, changes=tuple(changes), same=same)


def _takes(summary: str) -> bool:
    return any(state in summary for state in ("ok", "slow", "risk"))


def _summaries(side: Side, site: Iterable[SiteRow]) -> dict[Name, str]:
    target = find_target(side.target) if side.target else None
    listed = list_ops(side.vendor, side.toolchain_version, target=target, site=site)
    texts: dict[Name, list[str]] = {}
    for entry in listed.ops:
        where = "any opset" if entry.any_opset else format_opsets(entry.opsets)
        texts.setdefault((entry.domain, entry.op), []).append(f"{entry.state} {where}".strip())
    return {name: ", ".join(parts) for name, parts in texts.items()}


def graph_rules(vendor_name: str, version: str = "") -> tuple[RuleShown, ...]:
    """The rules on graphs as a whole, and on every operator."""
    vendor = find_vendor(vendor_name)
    table = load_support(vendor.name, resolve_version(vendor, version))
    return tuple(_rule_shown(rule) for name in (("", GRAPH), ANY) for rule in table.rules.get(name, ()))


def show_rules(vendor_name: str, version: str = "") -> list[tuple[Name, RuleShown]]:
    """The rules on single operators, sorted by operator."""
    vendor = find_vendor(vendor_name)
    table = load_support(vendor.name, resolve_version(vendor, version))
    names = sorted(set(table.rules) - {("", GRAPH), ANY}, key=lambda name: (name[0], name[1].casefold()))
    return [(name, _rule_shown(rule)) for name in names for rule in table.rules[name]]
