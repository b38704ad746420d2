"""A graph against many targets at once: the matrix of all cards, and coverage by toolchain version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from op_registry.judge import judge_model, main
from op_registry.overlay import SiteRow
from op_registry.support import GRAPH, load_support
from op_registry.targets import PRECISIONS, all_targets, is_rare, toolchain_version
from op_registry.values import Judgement, PrecisionState, Target
from op_registry.vendors import all_vendors, known_versions
from op_registry.verdict import verdict
from op_registry.versions import in_range

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
    members: tuple[str, ...] = ()
    toolchain: str
    toolchain_version: str
    outcome: Outcome
    opset: int
    best_opset: int
    counts: dict[str, int]
    blocked_by: tuple[Blocker, ...] = ()
    risks: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    precisions: dict[str, PrecisionState]
    default_precision: str
    rare: bool = False
    """A part of which little is public but its name."""
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


AtOpset = Callable[[int], Any]
"""Gives the same model at another opset, or None where that can't be had."""


def matrix(
    model: Any,
    *,
    name: str,
    sha256: str,
    targets: Iterable[Target] = (),
    at_opset: AtOpset | None = None,
    site: Iterable[SiteRow] = (),
) -> Matrix:
    """Judge a model for every target (families and single parts), once per architecture.

    A model that is refused as it stands is judged again at the target's best opset, where ``at_opset`` can bring it
    there; without ``at_opset``, the tables alone say whether its operators would be taken there.
    """
    wanted = tuple(targets) or all_targets()
    site = tuple(site)
    rows: list[MatrixRow] = []
    judged: dict[tuple[str, str, str], MatrixRow] = {}
    for target in wanted:
        key = (target.vendor, target.arch, target.toolchains)
        if key not in judged:
            judged[key] = _row(model, target, at_opset, site)
        rows.append(
            replace(
                judged[key],
                target=target.name,
                kind=target.kind,
                members=target.members,
                precisions={precision: target.precisions[precision] for precision in PRECISIONS},
                default_precision=target.default_precision,
                rare=is_rare(target),
                notes=target.notes,
            )
        )
    opset = next((int(item.version) for item in model.opset_import if not main(item.domain)), 0)
    return Matrix(model=name, sha256=sha256, opset=opset, nodes=sum(1 for _ in all_nodes(model)), rows=tuple(rows))


def without_members(rows: Iterable[MatrixRow]) -> list[MatrixRow]:
    """Families stand for their members, whose verdicts are the same; single parts have rows of their own."""
    rows = list(rows)
    members = {(row.vendor, name) for row in rows for name in row.members}
    return [row for row in rows if row.members or (row.vendor, row.target) not in members]


def _row(model: Any, target: Target, at_opset: AtOpset | None, site: tuple[SiteRow, ...]) -> MatrixRow:
    vendor = all_vendors()[target.vendor]
    judgement = judge_model(model, target, site=site)
    outcome, shown = _outcome(model, target, judgement, at_opset, site=site)
    return MatrixRow(
        target=target.name,
        vendor=vendor.name,
        title=vendor.title,
        kind=target.kind,
        toolchain=vendor.toolchain,
        toolchain_version=judgement.toolchain_version,
        outcome=outcome,
        opset=judgement.opset,
        best_opset=judgement.best_opset,
        counts=judgement.counts,
        blocked_by=_blockers(shown),
        risks=_names(shown, "risk"),
        unknown=_names(shown, "unknown"),
        precisions=target.precisions,
        default_precision=target.default_precision,
    )


def _outcome(
    model: Any, target: Target, judgement: Judgement, at_opset: AtOpset | None, *, site: tuple[SiteRow, ...]
) -> tuple[Outcome, Judgement]:
    """The outcome, and the judgement that speaks for it: at the best opset where the model can be brought there."""
    if not target.backend:
        return "no compiler", judgement
    if judgement.supported:
        known = sum(judgement.counts.get(state, 0) for state in ("ok", "slow", "risk"))
        return ("runnable" if known * 2 > judgement.nodes or not judgement.nodes else "unknown"), judgement
    version = judgement.toolchain_version
    if judgement.best_opset in (0, judgement.opset) or (version and not in_range(version, target.toolchains)):
        return "blocked", judgement
    lowered = at_opset(judgement.best_opset) if at_opset is not None else None
    if lowered is not None:
        again = judge_model(lowered, target, site=site)
        return ("with rewrites" if again.supported else "blocked"), again
    remaining = refused_at(model, target, judgement.best_opset)
    left = tuple(item for item in judgement.judged if item.op.rpartition("::")[2] in remaining or item.op == GRAPH)
    if remaining or at_opset is not None:
        return "blocked", replace(judgement, judged=left) if left else judgement
    return "with rewrites", replace(judgement, judged=())


def refused_at(model: Any, target: Target, opset: int) -> list[str]:
    """Operators of a model that a target's table refuses at another opset."""
    table = load_support(target.vendor, toolchain_version(target))
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
    """What is refused, by operator."""
    refused = [item for item in judgement.judged if item.state == "refused"]
    counts = Counter(item.op for item in refused)
    first = {item.op: item for item in reversed(refused)}
    return tuple(
        Blocker(op=op, nodes=count, reason=first[op].reason, hint=first[op].hint) for op, count in counts.most_common()
    )


def _names(judgement: Judgement, state: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.op for item in judgement.judged if item.state == state))


def coverage(model: Any, vendors: Iterable[str] = (), site: Iterable[SiteRow] = ()) -> tuple[CoverageRow, ...]:
    """How much of a model each toolchain version takes, for each vendor's first target."""
    wanted, site = set(vendors), tuple(site)
    firsts: dict[str, Target] = {}
    for target in all_targets():
        firsts.setdefault(target.vendor, target)
    rows = []
    for name, target in firsts.items():
        if not wanted or name in wanted:
            rows += [_covered(model, target, version, site) for version in known_versions(all_vendors()[name])]
    return tuple(rows)


def _covered(model: Any, target: Target, version: str, site: tuple[SiteRow, ...]) -> CoverageRow:
    judgement = judge_model(model, target, toolchain_version=version, site=site)
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
