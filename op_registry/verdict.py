"""What a support table says of one operator at one opset on one part, before any node is looked at."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from op_registry.support import ANY, Name, Rule, SupportTable
from op_registry.tables import format_opsets
from op_registry.values import SEVERITY, Grade, OpRow, State
from op_registry.versions import in_range


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing known of an operator or node: a state, and how and why."""

    state: State
    grade: Grade
    reason: str
    source: str
    hint: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for every node of an operator (``findings``), and what each node must still be asked (``rules``)."""

    findings: tuple[Finding, ...] = ()
    rules: tuple[Rule, ...] = ()
    row: OpRow | None = None

    @property
    def typed(self) -> bool:
        """Whether element types matter."""
        listed = self.row is not None and bool(self.row.types)
        return listed or any(clause.subject == "dtype" for rule in self.rules for clause in rule.when)

    @property
    def plain(self) -> bool:
        """Whether no node needs to be looked at."""
        return not self.rules and not (self.row is not None and self.row.types)


def verdict(table: SupportTable, name: Name, opset: int, arch: str) -> Verdict:
    """The verdict on an operator at an opset (0: its domain isn't imported)."""
    row = _row_at(table.site.get(name, ()), opset)
    if row is not None:
        return Verdict(findings=(_of_row(row),), row=row)
    ceiling = table.vendor.ceiling
    if ceiling is not None and not name[0] and opset > ceiling.opset:
        reason = f"opset {opset}: {ceiling.reason}"
        return _refusal(
            ceiling.state, ceiling.grade, reason, ceiling.source, f"export at opset {ceiling.opset} or lower"
        )
    known = name if name in table.rows else table.anywhere.get(name[1], name)
    rows = table.rows.get(known, ())
    row = _row_at(rows, opset)
    if row is None:
        return _unregistered(table, opset, rows)
    if row.state == "refused":
        return Verdict(findings=(_of_row(row),))
    found = [] if row.state == "ok" and row.grade in ("read", "measured") else [_of_row(row)]
    found += _engine(table, known, arch)
    if known != name:
        found.append(_other_domain(table, name, known))
    rules = [rule for key in (known, ANY) for rule in table.rules.get(key, ()) if rule.at(opset, arch)]
    found += [finding_of(rule) for rule in rules if not rule.when]
    return Verdict(findings=worst_first(found), rules=tuple(rule for rule in rules if rule.when), row=row)


def _row_at(rows: Iterable[OpRow], opset: int) -> OpRow | None:
    return next((row for row in rows if row.opsets is None or opset in row.opsets), None)


def _refusal(state: State, grade: Grade, reason: str, source: str, hint: str) -> Verdict:
    return Verdict(findings=(Finding(state=state, grade=grade, reason=reason, source=source, hint=hint),))


def _other_domain(table: SupportTable, name: Name, known: Name) -> Finding:
    """A toolchain that ignores domains takes an operator of another domain for one that it knows."""
    reason = f"the domain {name[0] or 'ai.onnx'!r} is ignored: taken as {known[1]} of {known[0] or 'ai.onnx'}"
    return Finding(state="risk", grade="measured", reason=reason, source=f"{table.vendor.toolchain} parser, run")


def _unregistered(table: SupportTable, opset: int, rows: tuple[OpRow, ...]) -> Verdict:
    vendor = table.vendor
    era = table.era.source if table.era is not None else f"{vendor.toolchain} {table.version}".strip()
    takes = [row for row in rows if row.state != "refused" and row.opsets]
    if takes:
        opsets = format_opsets(number for row in takes for number in row.opsets or ())
        reason = f"not taken at opset {opset}; {vendor.toolchain} {table.version} takes it at {opsets}"
        grade: Grade = "inferred" if any(row.grade == "inferred" for row in takes) else takes[0].grade
        source, hint = f"{takes[0].source} ({era})", f"convert the model to one of the opsets {opsets}"
        return _refusal("refused", grade, reason, source, hint)
    absent = next((row for row in rows if row.state == "refused"), None)
    if absent is not None:
        return Verdict(findings=(_of_row(absent),))
    return _refusal(vendor.unlisted, vendor.unlisted_grade, vendor.unlisted_reason, era, vendor.unlisted_hint)


def _of_row(row: OpRow) -> Finding:
    text = {
        "ok": "expected, though its table doesn't show it" if row.grade == "inferred" else "taken",
        "unknown": "nothing public says whether it is taken",
        "refused": "not supported",
        "slow": "runs on a slower engine",
        "risk": "taken, but not as ONNX defines it",
    }
    return Finding(
        state=row.state, grade=row.grade, reason=row.limits or text[row.state], source=row.source, hint=row.hint
    )


def finding_of(rule: Rule) -> Finding:
    """A rule as a finding."""
    return Finding(state=rule.state, grade=rule.grade, reason=rule.reason, source=rule.source, hint=rule.hint)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings by severity, the worst first; equal ones keep their order."""
    return tuple(sorted(findings, key=lambda finding: -SEVERITY[finding.state]))


KERNELS_OF = "CANN 8.1.RC1 operator information (AI Core, AI CPU)"
KERNELS_AT = ">=8.1,<=8.1"
"""The versions that the kernel lists are of; for others they are a hint."""
NO_WORK = frozenset(["Squeeze", "Unsqueeze", "ExpandDims", "Reshape", "Empty", "Identity", "Const"])
"""Parts that move no data and need no kernel of their own."""
KERNEL_ARCHS = {
    "Ascend310": "310",
    "Ascend310B": "310b",
    "Ascend310P": "310p",
    "Ascend910": "910",
    "Ascend910B": "910b",
    "Ascend910_93": "910_93",
}
"""Architectures that the kernel lists know, by the short SoC name."""


def _engine(table: SupportTable, name: Name, arch: str) -> list[Finding]:
    """Where the device runs an operator's parts; only where the kernel lists know the architecture.

    A part that only 3-D nodes need (AvgPool3D beside AvgPoolV2) says nothing of the operator as a whole.
    """
    short = KERNEL_ARCHS.get(arch, "")
    kernels = [part for part in table.kernels.get(name, ()) if part.known and part.name not in NO_WORK]
    lacking = [part for part in kernels if short and short not in part.aicore]
    slow = [part for part in lacking if part.aicpu or part.host]
    if slow:
        names = ", ".join(part.name for part in slow)
        where = "AI CPU" if any(part.aicpu for part in slow) else "the host"
        reason = f"{names}: no AI Core kernel on {arch}, runs on {where}"
        return [Finding(state="slow", grade="inferred", reason=reason, source=KERNELS_OF)]
    lacking = [part for part in lacking if not part.name.endswith("3D") or len(kernels) == 1]
    if lacking:
        exact = bool(table.version) and in_range(table.version, KERNELS_AT)
        reason = f"CANN 8.1.RC1 has no kernel of {lacking[0].name} for {arch}" + ("" if exact else "; this version may")
        state: State = "refused" if exact else "unknown"
        return [Finding(state=state, grade="read" if exact else "inferred", reason=reason, source=KERNELS_OF)]
    return []
