"""A graph against many targets at once: the matrix of all cards, and coverage by toolchain version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from op_registry.judge import judge_model, main
from op_registry.support import load_support
from op_registry.targets import PRECISIONS, all_targets
from op_registry.values import Judgement, Target
from op_registry.vendors import all_vendors, resolve_version
from op_registry.verdict import verdict
from op_registry.versions import in_range, is_version

Outcome = Literal["runnable", "with rewrites", "unknown", "blocked", "no compiler"]
OUTCOMES: tuple[Outcome, ...] = ("runnable", "with rewrites", "unknown", "blocked", "no compiler")


class Blocker(msgspec.Struct, frozen=True, kw_only=True):
    """An operator that is refused, how often, and why."""

    op: str
    nodes: int
    reason: str
    hint: str = ""


class MatrixRow(msgspec.Struct, frozen=True, kw_only=True):
    """One target. ``outcome``: ``runnable`` as the graph stands; ``with rewrites``: at ``best_opset``, where no
    operator is refused; ``unknown``: nothing is refused, but something nobody knows; ``blocked`` by operators."""

    target: str
    vendor: str
    title: str
    kind: str
    toolchain: str
    toolchain_version: str
    outcome: Outcome
    opset: int
    best_opset: int
    counts: dict[str, int]
    blocked_by: tuple[Blocker, ...] = ()
    risks: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    precisions: dict[str, str]
    default_precision: str
    notes: tuple[str, ...] = ()


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """A model against every target."""

    schema: int = 1
    model: str
    sha256: str
    opset: int
    nodes: int
    rows: tuple[MatrixRow, ...]


class CoverageRow(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a model one toolchain version takes, judged at the model's own opset."""

    vendor: str
    toolchain_version: str
    target: str
    supported: bool
    nodes: int
    counts: dict[str, int]
    taken: float
    """The share of nodes that are ok, slow or at risk."""
    refused_ops: tuple[str, ...]


def matrix(model: Any, *, name: str, sha256: str, targets: Iterable[Target] = ()) -> Matrix:
    """Judge a model for every target (families and single parts), once per architecture."""
    wanted = tuple(targets) or all_targets()
    judged: dict[tuple[str, str, str], Judgement] = {}
    rows = []
    for target in wanted:
        key = (target.vendor, target.arch, target.toolchains)
        if key not in judged:
            judged[key] = judge_model(model, target)
        rows.append(_row(model, target, judged[key]))
    opset = next((int(item.version) for item in model.opset_import if not main(item.domain)), 0)
    nodes = max((row_judged.nodes for row_judged in judged.values()), default=0)
    return Matrix(model=name, sha256=sha256, opset=opset, nodes=nodes, rows=tuple(rows))


def _row(model: Any, target: Target, judgement: Judgement) -> MatrixRow:
    vendor = all_vendors()[target.vendor]
    return MatrixRow(
        target=target.name,
        vendor=vendor.name,
        title=vendor.title,
        kind=target.kind,
        toolchain=vendor.toolchain,
        toolchain_version=judgement.toolchain_version,
        outcome=_outcome(model, target, judgement),
        opset=judgement.opset,
        best_opset=judgement.best_opset,
        counts=judgement.counts,
        blocked_by=_blockers(judgement),
        risks=_names(judgement, "risk"),
        unknown=_names(judgement, "unknown"),
        precisions={name: target.precisions[name] for name in PRECISIONS},
        default_precision=target.default_precision,
        notes=target.notes,
    )


def _outcome(model: Any, target: Target, judgement: Judgement) -> Outcome:
    if not target.backend:
        return "no compiler"
    if judgement.supported:
        known = judgement.counts.get("ok", 0) + judgement.counts.get("slow", 0) + judgement.counts.get("risk", 0)
        return "runnable" if known * 2 > judgement.nodes or not judgement.nodes else "unknown"
    if judgement.toolchain_version and not in_range(judgement.toolchain_version, target.toolchains):
        return "blocked"
    return "with rewrites" if not refused_at(model, target, judgement.best_opset) else "blocked"


def refused_at(model: Any, target: Target, opset: int) -> list[str]:
    """Operators of a model that a target's table refuses at another opset."""
    vendor = all_vendors()[target.vendor]
    table = load_support(vendor.name, resolve_version(vendor, ""))
    opsets = {item.domain: int(item.version) for item in model.opset_import}
    local = {(main(function.domain), function.name) for function in model.functions}
    names = {(main(node.domain), node.op_type) for node in all_nodes(model)} - local
    return sorted(
        name[1]
        for name in names
        if any(
            found.state == "refused"
            for found in verdict(table, name, opsets.get(name[0], 0) if name[0] else opset, target.arch).findings
        )
    )


def all_nodes(model: Any) -> Iterable[Any]:
    """Every node of a model, those of bodies and local functions included."""
    waiting = [model.graph.node, *(function.node for function in model.functions)]
    while waiting:
        for node in waiting.pop():
            yield node
            for item in node.attribute:
                if item.type in (5, 10):
                    waiting += [body.node for body in (item.g, *item.graphs)]


def _blockers(judgement: Judgement) -> tuple[Blocker, ...]:
    refused = [item for item in judgement.judged if item.state == "refused"]
    counts = Counter(item.op for item in refused)
    first = {item.op: item for item in reversed(refused)}
    return tuple(
        Blocker(op=op, nodes=count, reason=first[op].reason, hint=first[op].hint) for op, count in counts.most_common()
    )


def _names(judgement: Judgement, state: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.op for item in judgement.judged if item.state == state))


def coverage(model: Any, vendors: Iterable[str] = ()) -> tuple[CoverageRow, ...]:
    """How much of a model each toolchain version takes, for each vendor's first target."""
    wanted = set(vendors)
    firsts: dict[str, Target] = {}
    for target in all_targets():
        firsts.setdefault(target.vendor, target)
    rows = []
    for name, target in firsts.items():
        if not wanted or name in wanted:
            rows += [_covered(model, target, version) for version in known_versions(name)]
    return tuple(rows)


def known_versions(vendor_name: str) -> list[str]:
    """One version for each table of a vendor, oldest first."""
    vendor = all_vendors()[vendor_name]
    named = [era.id.rpartition("-")[2] for era in vendor.era]
    return [version if is_version(version) else vendor.default_version for version in named] or [vendor.default_version]


def _covered(model: Any, target: Target, version: str) -> CoverageRow:
    judgement = judge_model(model, target, toolchain_version=version)
    taken = sum(judgement.counts.get(state, 0) for state in ("ok", "slow", "risk"))
    return CoverageRow(
        vendor=target.vendor,
        toolchain_version=judgement.toolchain_version,
        target=target.name,
        supported=judgement.supported,
        nodes=judgement.nodes,
        counts=judgement.counts,
        taken=taken / judgement.nodes if judgement.nodes else 1.0,
        refused_ops=_names(judgement, "refused"),
    )
