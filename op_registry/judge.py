"""A graph judged node by node for a target: nodes of the graph, of If, Loop and Scan bodies, and of local functions.

``judge_model`` is pure: the same model, target, version and overlay give the same judgement. It asks the support table
once per operator, and looks into a node only where its operator has rules or a list of element types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from op_registry.conditions import graph_holds, holds
from op_registry.graph import MAIN_DOMAINS, Node, Scope, module_path
from op_registry.graph_facts import graph_facts
from op_registry.infer import propagate
from op_registry.opsets import best_opset
from op_registry.support import GRAPH, SupportTable, load_support
from op_registry.values import SEVERITY, Judged, Judgement, OpRow, Target
from op_registry.vendors import all_vendors, resolve_version
from op_registry.verdict import Finding, Verdict, finding_of, verdict, worst_first
from op_registry.versions import in_range

Proto = Any


def judge_model(
    model: Proto,
    target: Target,
    *,
    toolchain_version: str = "",
    strict: bool = False,
    site: Iterable[OpRow] = (),
) -> Judgement:
    """Judge every node of an ``onnx.ModelProto``.

    Args:
        model: the model in memory; tensors may stay outside (``load_external_data=False``).
        target: a part, or a family (its architecture is what all members share).
        toolchain_version: as users write it; empty: the version that the vendor's table is assumed for.
        strict: silent risks and unknowns count as refusals.
        site: rows of this site's overlay (``learn.read_overlay``), asked before the vendor's table.

    Raises:
        UnknownVersion: CNV-2502. MalformedData: CNV-2504.
    """
    vendor = all_vendors()[target.vendor]
    version = resolve_version(vendor, toolchain_version)
    table = load_support(vendor.name, version)
    rows = tuple(site)
    judge = Judge(model, table.with_site(rows) if rows else table, target)
    judge.run()
    opset = judge.opsets.get("", 0)
    counts: dict[str, int] = {state: judge.counts[state] for state in SEVERITY if judge.counts[state]}
    judgement = Judgement(
        target=target.name,
        vendor=vendor.name,
        toolchain_version=table.version,
        assumed_version=not toolchain_version,
        opset=opset,
        nodes=judge.nodes,
        supported=True,
        strict=strict,
        judged=tuple(judge.judged),
        counts=counts,
        best_opset=best_opset(judge.names, target, toolchain_version=toolchain_version, site=rows, current=opset),
    )
    return _with_outcome(judgement)


def _with_outcome(judgement: Judgement) -> Judgement:
    from msgspec.structs import replace

    return replace(judgement, supported=not judgement.refusals)


class Judge:
    """One pass over a model. Not for use by others: ``judge_model`` is the way in."""

    def __init__(self, model: Proto, table: SupportTable, target: Target) -> None:
        self.model = model
        self.table = table
        self.target = target
        self.opsets = imports_of(model.opset_import)
        self.functions: dict[tuple[str, str], Proto] = {(main(f.domain), f.name): f for f in model.functions}
        self.judged: list[Judged] = []
        self.counts: Counter[str] = Counter()
        self.nodes = 0
        self.names: set[tuple[str, str]] = set()
        self._verdicts: dict[tuple[int, str, str], Verdict] = {}
        self._typed = False
        self._seen: dict[tuple[object, ...], tuple[Finding, ...]] = {}

    def run(self) -> None:
        """Judge the graph, then each local function once, then the graph as a whole."""
        self._graph_rules()
        self._graph(self.model.graph, None, self.opsets, "")
        for (_, name), function in self.functions.items():
            opsets = imports_of(function.opset_import)
            self._nodes(function.node, Scope(), opsets, name)

    # ------------------------------------------------------------------------------------------- the graph as a whole

    def _graph_rules(self) -> None:
        rules = self.table.rules.get(("", GRAPH), ())
        opset = self.opsets.get("", 0)
        asked = [rule for rule in rules if rule.at(opset, self.target.arch)]
        facts = graph_facts(self.model) if asked else {}
        for rule in asked:
            if graph_holds(rule.when, facts):
                self._add_graph(finding_of(rule))
        self._part()

    def _part(self) -> None:
        """Whether the toolchain version knows the part at all."""
        known = self.target.toolchains
        version = self.table.version
        if not known or not version or in_range(version, known):
            return
        reason = f"{self.table.vendor.toolchain} {version} doesn't know {self.target.name} (known to {known})"
        source = "; ".join(self.target.sources)
        self._add_graph(Finding(state="refused", grade="inferred", reason=reason, source=source))

    def _add_graph(self, found: Finding) -> None:
        self.judged.append(
            Judged(
                op=GRAPH,
                node="",
                state=found.state,
                grade=found.grade,
                reason=found.reason,
                source=found.source,
                hint=found.hint,
            )
        )

    # ------------------------------------------------------------------------------------------------ nodes and bodies

    def _graph(self, graph: Proto, outer: Scope | None, opsets: Mapping[str, int], prefix: str) -> None:
        scope = Scope(outer)
        self._nodes(graph.node, scope, opsets, prefix, graph)

    def _nodes(
        self, nodes: Iterable[Proto], scope: Scope, opsets: Mapping[str, int], prefix: str, graph: Proto = None
    ) -> None:
        """Judge the nodes of one graph or function body in order."""
        names = Counter((node.domain, node.op_type) for node in nodes)
        plans = {name: self._plan(name, opsets) for name in names}
        self.nodes += sum(names.values())
        self.names.update((main(domain), op) for domain, op in names)
        typed = any(not plan.plain for plan in plans.values())
        bodies = {name for name in names if has_body(*name)}
        if not typed and not bodies and not any(plan.findings for plan in plans.values()):
            self.counts["ok"] += sum(names.values())
            return
        if graph is not None and (typed or bodies):
            scope.learn_types(graph)
            scope.learn_constants(graph)
        main_opset = opsets.get("", 1)
        for node in nodes:
            name = (node.domain, node.op_type)
            plan = plans[name]
            if typed or bodies:
                propagate(node, scope, main_opset)
            found = plan.findings if plan.plain else self._look(node, plan, scope)
            if found:
                self._add(node, found, prefix)
            else:
                self.counts["ok"] += 1
            if name in bodies:
                self._bodies(node, scope, opsets, prefix)

    def _bodies(self, node: Proto, scope: Scope, opsets: Mapping[str, int], prefix: str) -> None:
        for item in node.attribute:
            for body in (item.g, *item.graphs) if item.type in (5, 10) else ():
                if body.node:
                    self._graph(body, scope, opsets, prefix)

    def _plan(self, name: tuple[str, str], opsets: Mapping[str, int]) -> Verdict:
        domain, op = main(name[0]), name[1]
        opset = opsets.get(domain, 0)
        key = (opset, domain, op)
        if key not in self._verdicts:
            called = (domain, op) in self.functions
            self._verdicts[key] = (
                self._call(op) if called else verdict(self.table, (domain, op), opset, self.target.arch)
            )
        return self._verdicts[key]

    def _call(self, op: str) -> Verdict:
        """The verdict on a call of a local function; its body is judged by itself."""
        vendor = self.table.vendor
        if vendor.functions == "inline":
            return Verdict()
        refused = vendor.functions == "refused"
        reason = f"{op} is a function of the model itself; {vendor.toolchain} " + (
            "doesn't expand those" if refused else "isn't known to expand those"
        )
        hint = "inline the model's functions first (onnx.inliner)"
        state, source = ("refused" if refused else "unknown"), f"{vendor.toolchain} parser"
        return Verdict(
            findings=(
                Finding(
                    state="refused" if state == "refused" else "unknown",
                    grade="read" if refused else "inferred",
                    reason=reason,
                    source=source,
                    hint=hint,
                ),
            )
        )

    # ------------------------------------------------------------------------------------------------------- one node

    def _look(self, proto: Proto, plan: Verdict, scope: Scope) -> tuple[Finding, ...]:
        node = Node(proto, scope)
        found = [finding_of(rule) for rule in plan.rules if holds(rule.when, node)]
        if plan.row is not None and plan.row.types:
            found += self._types(node, plan.row)
        return worst_first([*plan.findings, *found]) if found else plan.findings

    def _types(self, node: Node, row: OpRow) -> list[Finding]:
        for place, taken in row.types.items():
            dtype = node.dtype(place)
            if dtype and dtype not in taken and not self._cast(dtype, taken):
                where = f"output {place[1:]}" if place[0] == "o" else f"input {place}"
                reason = f"{where} is {dtype}; the types named are {', '.join(sorted(taken))}"
                return [Finding(state=row.lacking, grade=row.grade, reason=reason, source=row.source)]
        return []

    def _cast(self, dtype: str, taken: frozenset[str]) -> bool:
        """ONNX Runtime casts float16 to float32 around a CPU kernel that lacks it."""
        return self.table.vendor.name == "onnxruntime" and dtype == "float16" and "float32" in taken

    def _add(self, node: Proto, found: tuple[Finding, ...], prefix: str) -> None:
        worst = found[0]
        self.counts[worst.state] += 1
        if worst.state == "ok" and worst.grade != "site":
            return
        path = module_path(node)
        self.judged.append(
            Judged(
                op=display(node.domain, node.op_type),
                node=node.name or next(iter(node.output), ""),
                module=f"{prefix}:{path}".strip(":") if prefix else path,
                state=worst.state,
                grade=worst.grade,
                reason="; ".join(dict.fromkeys(item.reason for item in found if item.state != "ok") or [worst.reason]),
                source=worst.source,
                hint=next((item.hint for item in found if item.hint), ""),
            )
        )


def main(domain: str) -> str:
    """A domain with ``ai.onnx`` written as the empty one."""
    return "" if domain in MAIN_DOMAINS else domain


def display(domain: str, op: str) -> str:
    """An operator as people read it: with its domain where it isn't ONNX's own."""
    return op if domain in MAIN_DOMAINS else f"{domain}::{op}"


def imports_of(imports: Iterable[Proto]) -> dict[str, int]:
    """Opsets by domain; of two imports of one domain the newer."""
    opsets: dict[str, int] = {}
    for item in imports:
        domain = main(item.domain)
        opsets[domain] = max(int(item.version), opsets.get(domain, 0))
    return opsets


@lru_cache(maxsize=4096)
def has_body(domain: str, op: str) -> bool:
    """Whether nodes of an operator may hold graphs; true of everything that isn't an operator of ONNX."""
    from onnx import defs

    if domain not in MAIN_DOMAINS:
        return True
    try:
        schema = defs.get_schema(op)
    except defs.SchemaError:
        return True
    return any(
        item.type in (defs.OpSchema.AttrType.GRAPH, defs.OpSchema.AttrType.GRAPHS)
        for item in schema.attributes.values()
    )
