"""Which opset suits a set of operators and a target best: the one with the fewest refusals, then the fewest risks.

Only the tables are asked. An operator that an opset doesn't have yet counts against that opset as much as a refusal
does: an exporter, or a lowering, may decompose it into others, but nobody knows that before.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from op_registry import targets
from op_registry.overlay import SiteRow, rows_for
from op_registry.support import SupportTable, load_support
from op_registry.values import State, Target
from op_registry.verdict import verdict

COST: dict[State, float] = {"refused": 100.0, "unknown": 10.0, "risk": 10.0, "slow": 1.0, "ok": 0.0}
NOT_YET = 100.0
"""What an operator costs that the opset doesn't have yet."""


def best_opset(
    ops: Iterable[tuple[str, str]],
    target: Target,
    *,
    toolchain_version: str = "",
    site: Iterable[SiteRow] = (),
    current: int = 0,
) -> int:
    """The best opset of a target's range for operators given as (domain, name).

    Without operators: the target's usual one. Among equals, ``current`` wins, then the target's usual one, then the
    newest. Raises UnknownVersion (CNV-2502).
    """
    names = [name for name in ops if not name[0]]
    if not names:
        return target.opset_default
    version = targets.toolchain_version(target, toolchain_version)
    table = load_support(target.vendor, version).with_site(rows_for(site, target.vendor, version, target.arch))
    opsets = range(target.opset_min, (target.opset_max or table.newest_opset) + 1)
    costs = {opset: sum(_cost(table, name, opset, target.arch) for name in names) for opset in opsets}
    lowest = min(costs.values())
    best = [opset for opset, cost in costs.items() if cost == lowest]
    return next((opset for opset in (current, target.opset_default) if opset in best), best[-1])


def _cost(table: SupportTable, name: tuple[str, str], opset: int, arch: str) -> float:
    if not exists_at(name[1], opset):
        return NOT_YET
    found = verdict(table, name, opset, arch)
    states = [item.state for item in found.findings] + [rule.state for rule in found.rules if rule.listed]
    return max((COST[state] for state in states), default=0.0)


@lru_cache(maxsize=8192)
def exists_at(op: str, opset: int) -> bool:
    """Whether ONNX has an operator at an opset; true of names that it doesn't know at all."""
    from onnx import defs

    try:
        defs.get_schema(op)
    except defs.SchemaError:
        return True
    try:
        return not defs.get_schema(op, opset).deprecated
    except defs.SchemaError:
        return False
