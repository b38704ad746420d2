"""A graph judged node by node for a target: nodes of the graph, of If, Loop and Scan bodies, and of local functions.

``judge_model`` is pure: the same model, target, version and overlay give the same judgement. It asks the support table
once per operator, and looks into a node only where its operator has rules or a list of element types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from op_registry.ask import Ask
from op_registry.conditions import graph_holds
from op_registry.graph import MAIN_DOMAINS, Scope, module_path
from op_registry.graph_facts import graph_facts
from op_registry.infer import output_plan, propagate
from op_registry.opsets import best_opset
from op_registry.support import GRAPH, Name, SupportTable, load_support
from op_registry.values import SEVERITY, Judged, Judgement, OpRow, Target
from op_registry.vendors import Vendor, all_vendors, resolve_version
from op_registry.verdict import Finding, Verdict, finding_of, verdict
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
    return replace(judgement, supported=not judgement.refusals)


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

    def run(self) -> None:
        """Judge the graph as a whole, its nodes, and then each local function once."""
        self._whole()
        graph = self.model.graph
        self._nodes(list(graph.node), Scope(None, graph), self.opsets, "")
        for (_, name), function in self.functions.items():
            self._nodes(list(function.node), Scope(), imports_of(function.opset_import), name)

    # ------------------------------------------------------------------------------------------- the graph as a whole

    def _whole(self) -> None:
        opset = self.opsets.get("", 0)
        asked = [rule for rule in self.table.rules.get(("", GRAPH), ()) if rule.at(opset, self.target.arch)]
        facts = graph_facts(self.model) if asked else {}
        found = [finding_of(rule) for rule in asked if graph_holds(rule.when, facts)]
        found += unknown_part(self.table, self.target)
        self.judged += [judged_of(item, op=GRAPH) for item in found]

    # ------------------------------------------------------------------------------------------------ nodes and bodies

    def _nodes(self, nodes: list[Proto], scope: Scope, opsets: Mapping[str, int], prefix: str) -> None:
        """Judge the nodes of one graph, body or function in order."""
        pairs = [(node.domain, node.op_type) for node in nodes]
        names = Counter(pairs)
        self.nodes += len(nodes)
        self.names.update((main(domain), op) for domain, op in names)
        verdicts = {name: self._verdict(name, opsets) for name in names}
        if all(verdict.plain for verdict in verdicts.values()):
            present: set[str] = set()
        else:
            present = learn_scope(nodes, pairs, scope, opsets.get("", 1))
        casts = self.table.vendor.name == "onnxruntime"
        asks = {name: Ask(verdict, present, casts=casts) for name, verdict in verdicts.items()}
        bodies = {name for name in names if has_body(*name)}
        busy = {name for name, ask in asks.items() if not ask.idle or ask.verdict.findings or name in bodies}
        self.counts["ok"] += sum(count for name, count in names.items() if name not in busy)
        for node, name in zip(nodes, pairs, strict=True):
            if name in busy:
                ask = asks[name]
                self._add(node, ask.verdict.findings if ask.idle else ask.look(node, scope), prefix)
                if name in bodies:
                    self._bodies(node, scope, opsets, prefix)

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

    def _add(self, node: Proto, found: tuple[Finding, ...], prefix: str) -> None:
        worst = found[0] if found else None
        self.counts[worst.state if worst else "ok"] += 1
        if worst is None or (worst.state == "ok" and worst.grade != "site"):
            return
        path = module_path(node)
        reasons = dict.fromkeys(item.reason for item in found if item.state != "ok") or [worst.reason]
        item = judged_of(
            worst,
            op=display(node.domain, node.op_type),
            node=node.name or next(iter(node.output), ""),
            module=f"{prefix}:{path}".strip(":") if prefix else path,
        )
        hint = next((item.hint for item in found if item.hint), "")
        self.judged.append(replace(item, reason="; ".join(reasons), hint=hint))


def learn_scope(nodes: list[Proto], pairs: list[Name], scope: Scope, opset: int) -> set[str]:
    """Make a scope know the constants and types of its nodes; the element types that occur.

    Types that a graph states are enough where it states (nearly) all; where it doesn't, they follow from operators.
    """
    constants = [node for node, (_, op) in zip(nodes, pairs, strict=True) if op == "Constant" and node.output]
    scope.constants.update({node.output[0]: node for node in constants})
    if len(scope.infos) < len(nodes):
        plans = {name: output_plan(name[0], name[1], opset) for name in set(pairs)}
        for node, name in zip(nodes, pairs, strict=True):
            propagate(node, scope, plans[name])
    return scope.present()


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


def judged_of(found: Finding, *, op: str, node: str = "", module: str = "") -> Judged:
    """A finding as it is reported of a node."""
    return Judged(
        op=op,
        node=node,
        module=module,
        state=found.state,
        grade=found.grade,
        reason=found.reason,
        source=found.source,
        hint=found.hint,
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
