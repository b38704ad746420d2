"""A graph judged node by node for a target: nodes of the graph, of If, Loop and Scan bodies, and of local functions.

``judge_model`` is pure: the same model, target, version and overlay give the same judgement. It asks the support table
once per operator, and looks into a node only where its operator has rules or a list of element types.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from op_registry import targets
from op_registry.ask import Ask
from op_registry.conditions import graph_holds
from op_registry.graph import MAIN_DOMAINS, Scope, module_path
from op_registry.graph_facts import GraphFacts
from op_registry.infer import follow_types, possible_types
from op_registry.opsets import best_opset
from op_registry.overlay import SiteRow, rows_for, rules_for
from op_registry.support import GRAPH, Name, SupportTable, load_support
from op_registry.values import SEVERITY, Judged, Judgement, Target
from op_registry.vendors import Vendor, all_vendors
from op_registry.verdict import Finding, Verdict, finding_of, verdict
from op_registry.versions import in_range

Proto = Any


def judge_model(
    model: Proto,
    target: Target,
    *,
    toolchain_version: str = "",
    strict: bool = False,
    site: Iterable[SiteRow] = (),
) -> Judgement:
    """Judge every node of an ``onnx.ModelProto``.

    Args:
        model: the model in memory; tensors may stay outside (``load_external_data=False``).
        target: a part, or a family (its architecture is what all members share).
        toolchain_version: as users write it; empty: the version that the vendor's table is assumed for.
        strict: silent risks and unknowns count as refusals.
        site: this site's overlay (``overlay.read_overlay``), asked before the vendor's table.

    Raises:
        UnknownVersion: CNV-2502. MalformedData: CNV-2504.
    """
    vendor = all_vendors()[target.vendor]
    version = targets.toolchain_version(target, toolchain_version)
    table = load_support(vendor.name, version)
    lines = tuple(site)
    asked = (vendor.name, version, target.arch)
    judge = Judge(model, table.with_site(rows_for(lines, *asked), rules_for(lines, *asked)), target)
    with _no_garbage():
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
        best_opset=best_opset(judge.names, target, toolchain_version=toolchain_version, site=lines, current=opset),
    )
    return replace(judgement, supported=not judgement.refusals)


@contextmanager
def _no_garbage() -> Iterator[None]:
    """No search for garbage in between: a pass makes some hundred thousand short-lived objects and no cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Judge:
    """One pass over a model. Not for use by others: ``judge_model`` is the way in."""

    def __init__(self, model: Proto, table: SupportTable, target: Target) -> None:
        self.model = model
        self.table = table
        self.target = target
        self.opsets = imports_of(model.opset_import)
        self.functions: dict[Name, Proto] = {(main(f.domain), f.name): f for f in model.functions}
        self.judged: list[Judged] = []
        self.counts: Counter[str] = Counter()
        self.nodes = 0
        self.names: set[Name] = set()
        self._texts: dict[int, tuple[str, str]] = {}
        """By the identity of a findings tuple, all of which live as long as this object."""
        self._asked: list[Ask] = []

    def run(self) -> None:
        """Judge the graph as a whole, its nodes, and then each local function once."""
        graph = self.model.graph
        nodes = list(graph.node)
        pairs = names_of(nodes)
        self._whole(Counter(pairs))
        self._nodes(nodes, Scope(None, graph), self.opsets, "", pairs)
        for (_, name), function in self.functions.items():
            self._nodes(list(function.node), Scope(), imports_of(function.opset_import), name)

    # ------------------------------------------------------------------------------------------- the graph as a whole

    def _whole(self, operators: Mapping[Name, int]) -> None:
        opset = self.opsets.get("", 0)
        facts = GraphFacts(self.model, operators)
        for rule in self.table.rules.get(("", GRAPH), ()):
            if rule.at(opset, self.target.arch) and graph_holds(rule.when, facts.number):
                self._tell(finding_of(rule), facts.subjects(rule.when))
        for found in unknown_part(self.table, self.target):
            self._tell(found, "")

    def _tell(self, found: Finding, subject: str) -> None:
        self.judged.append(
            Judged(
                op=GRAPH,
                node=subject,
                state=found.state,
                grade=found.grade,
                reason=found.reason,
                source=found.source,
                hint=found.hint,
            )
        )

    # ------------------------------------------------------------------------------------------------ nodes and bodies

    def _nodes(
        self,
        nodes: list[Proto],
        scope: Scope,
        opsets: Mapping[str, int],
        prefix: str,
        pairs: list[Name] | None = None,
    ) -> None:
        """Judge the nodes of one graph, body or function in order."""
        pairs = pairs or names_of(nodes)
        names = Counter(pairs)
        self.nodes += len(nodes)
        self.names.update((main(domain), op) for domain, op in names)
        asks = self._asks(names, nodes, pairs, scope, opsets)
        bodies = {name for name in names if has_body(*name)}
        busy = {name for name, ask in asks.items() if not ask.idle or ask.verdict.findings or name in bodies}
        if bodies or any(asks[name].dtypes for name in busy):
            busy -= passing({name: asks[name] for name in busy - bodies}, nodes, pairs, scope, opsets.get("", 1))
        self.counts["ok"] += sum(count for name, count in names.items() if name not in busy)
        titles = {name: display(*name) for name in busy}
        for node, name in zip(nodes, pairs, strict=True):
            if name not in busy:
                continue
            ask = asks[name]
            if found := ask.verdict.findings if ask.idle else ask.look(node, scope):
                self._add(node, titles[name], found, prefix)
            else:
                self.counts["ok"] += 1
            if name in bodies:
                self._bodies(node, scope, opsets, prefix)

    def _asks(
        self,
        names: Iterable[Name],
        nodes: list[Proto],
        pairs: list[Name],
        scope: Scope,
        opsets: Mapping[str, int],
    ) -> dict[Name, Ask]:
        """What the nodes of each operator must be asked; the scope learns constants where they matter."""
        verdicts = {name: self._verdict(name, opsets) for name in names}
        bodies = any(has_body(*name) for name in verdicts)
        if bodies or not all(verdict.plain for verdict in verdicts.values()):
            learn_constants(nodes, pairs, scope)
        typed = bodies or any(verdict.typed for verdict in verdicts.values())
        present = possible_types(nodes, pairs, scope, opsets.get("", 1)) if typed else set()
        casts = self.table.vendor.name == "onnxruntime"
        asks = {name: Ask(verdict, present, casts=casts) for name, verdict in verdicts.items()}
        self._asked += asks.values()
        return asks

    def _bodies(self, node: Proto, scope: Scope, opsets: Mapping[str, int], prefix: str) -> None:
        for item in node.attribute:
            for body in (item.g, *item.graphs) if item.type in (5, 10) else ():
                if body.node:
                    self._nodes(list(body.node), Scope(scope, body), opsets, prefix)

    def _verdict(self, name: Name, opsets: Mapping[str, int]) -> Verdict:
        known = (main(name[0]), name[1])
        if known in self.functions:
            return call_verdict(self.table.vendor, name[1])
        return verdict(self.table, known, opsets.get(known[0], 0), self.target.arch)

    def _add(self, node: Proto, op: str, found: tuple[Finding, ...], prefix: str) -> None:
        worst = found[0]
        self.counts[worst.state] += 1
        if worst.state == "ok" and worst.grade != "site":
            return
        reason, hint = self._texts.get(id(found)) or self._texts.setdefault(id(found), texts_of(found))
        path = module_path(node)
        self.judged.append(
            Judged(
                op=op,
                node=node.name or next(iter(node.output), ""),
                module=f"{prefix}:{path}".strip(":") if prefix else path,
                state=worst.state,
                grade=worst.grade,
                reason=reason,
                source=worst.source,
                hint=hint,
            )
        )


def passing(asks: Mapping[Name, Ask], nodes: list[Proto], pairs: list[Name], scope: Scope, opset: int) -> set[Name]:
    """Operators whose nodes all pass by the type of their first input alone; the scope learns all types on the way.

    Types are followed from operator to operator: that costs less than reading what the graph states of each value,
    which is asked where nothing follows.
    """
    firsts = follow_types(nodes, pairs, scope, opset)
    met = set(zip(pairs, firsts, strict=True))
    return {
        name
        for name, ask in asks.items()
        if ask.quick and all(ask.takes(dtype) for known, dtype in met if known == name)
    }


def names_of(nodes: Iterable[Proto]) -> list[Name]:
    """Domain and operator of each node; equal ones are one object, which spares the garbage collector much work."""
    ops = [node.op_type for node in nodes]
    domains = [node.domain for node in nodes]
    if not any(domains):
        known = {op: ("", op) for op in set(ops)}
        return [known[op] for op in ops]
    shared: dict[Name, Name] = {}
    return [shared.setdefault(name, name) for name in zip(domains, ops, strict=True)]


def texts_of(found: tuple[Finding, ...]) -> tuple[str, str]:
    """The reasons of a node's findings in one text, and the first hint."""
    reasons = dict.fromkeys(item.reason for item in found if item.state != "ok") or [found[0].reason]
    return "; ".join(reasons), next((item.hint for item in found if item.hint), "")


def learn_constants(nodes: list[Proto], pairs: list[Name], scope: Scope) -> None:
    """Make a scope know the Constant nodes of a graph."""
    if any(op == "Constant" for _, op in set(pairs)):
        constants = [node for node, (_, op) in zip(nodes, pairs, strict=True) if op == "Constant" and node.output]
        scope.constants.update({node.output[0]: node for node in constants})


def unknown_part(table: SupportTable, target: Target) -> list[Finding]:
    """A toolchain version that doesn't know the part at all."""
    if not target.toolchains or not table.version or in_range(table.version, target.toolchains):
        return []
    reason = f"{table.vendor.toolchain} {table.version} doesn't know {target.name} (known to {target.toolchains})"
    return [Finding(state="refused", grade="inferred", reason=reason, source="; ".join(target.sources))]


def call_verdict(vendor: Vendor, op: str) -> Verdict:
    """The verdict on a call of a local function; the function's own nodes are judged by themselves."""
    if vendor.functions == "inline":
        return Verdict()
    refused = vendor.functions == "refused"
    how = "doesn't expand those" if refused else "isn't known to expand those"
    finding = Finding(
        state="refused" if refused else "unknown",
        grade="read" if refused else "inferred",
        reason=f"{op} is a function of the model itself; {vendor.toolchain} {how}",
        source=f"{vendor.toolchain} parser",
        hint="inline the model's functions first (onnx.inliner)",
    )
    return Verdict(findings=(finding,))


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
