"""What each node of an operator must be asked, worked out once per operator, and the answers remembered.

Nodes with the same attributes, written inputs, types, ranks and constants get the same findings; ``Ask.look`` computes
a signature of just what the operator's rules read, and evaluates the rules once per signature.
"""

from __future__ import annotations

from typing import Any

from op_registry.conditions import Clause, holds
from op_registry.graph import Node, Scope, attribute_bytes, constant_value
from op_registry.values import OpRow
from op_registry.verdict import Finding, Verdict, finding_of, worst_first

Signature = tuple[object, ...]


class Ask:
    """The questions of one operator's rules, and the findings of the node signatures met so far."""

    def __init__(self, verdict: Verdict, present: frozenset[str] | set[str], *, casts: bool) -> None:
        """Keep what can matter where only the element types of ``present`` occur.

        ``casts``: float16 is cast to float32 around a kernel that lacks it (ONNX Runtime).
        """
        self.verdict = verdict
        self.casts = casts
        self.rules = [rule for rule in verdict.rules if all(_possible(clause, present) for clause in rule.when)]
        row = verdict.row
        self.types = [] if row is None else [(p, t) for p, t in row.types.items() if not present <= t]
        clauses = [clause for rule in self.rules for clause in rule.when]
        attributes = [clause for clause in clauses if clause.subject == "attr"]
        self.valued = any(clause.verb not in ("present", "missing") for clause in attributes)
        self.named = bool(attributes)
        self.counts = any(clause.subject in ("inputs", "outputs", "input", "output") for clause in clauses)
        self.ranks = sorted({int(clause.key) for clause in clauses if clause.subject == "rank"})
        places = {clause.key for clause in clauses if clause.subject == "dtype"} | {place for place, _ in self.types}
        self.dtypes = [(place[0] == "o", int(place.removeprefix("o"))) for place in sorted(places)]
        self.values = sorted({int(clause.key) for clause in clauses if clause.subject == "input" and _deep(clause)})
        self._known: dict[Signature, tuple[Finding, ...]] = {}
        self.bare = not self.types and all(any(map(_asks_a_written_attribute, rule.when)) for rule in self.rules)
        """No rule speaks of a node without attributes."""
        self.quick = not self.rules and not verdict.findings and [place for place, _ in self.types] == ["0"]
        """The only thing to ask is whether the type of the first input is taken."""

    @property
    def idle(self) -> bool:
        """Whether no node needs to be looked at: the verdict holds for all."""
        return not self.rules and not self.types

    def takes(self, dtype: str) -> bool:
        """For ``quick`` operators: whether a type of the first input is taken (an unknown one refuses nothing)."""
        return not dtype or dtype in self.types[0][1]

    def look(self, proto: Any, scope: Scope) -> tuple[Finding, ...]:
        """The findings of one node, the worst first."""
        if self.bare and not proto.attribute:
            return self.verdict.findings
        key = self._signature(proto, scope)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._evaluate(Node(proto, scope))
        return found

    def _signature(self, proto: Any, scope: Scope) -> Signature:
        inputs, outputs = proto.input, proto.output
        key: list[object] = []
        if self.valued:
            key.append(attribute_bytes(proto))
        elif self.named:
            key += [item.name for item in proto.attribute]
        if self.counts:
            key += [tuple(map(bool, inputs)), tuple(map(bool, outputs))]
        for of_output, index in self.dtypes:
            names = outputs if of_output else inputs
            key.append(scope.dtype(names[index]) if index < len(names) else "")
        for index in self.ranks:
            key.append(scope.rank(inputs[index]) if index < len(inputs) else None)
        for index in self.values:
            found = scope.constant(inputs[index]) if index < len(inputs) else None
            key += [found is not None, str(constant_value(found)) if found is not None else ""]
        return tuple(key)

    def _evaluate(self, node: Node) -> tuple[Finding, ...]:
        found = [finding_of(rule) for rule in self.rules if holds(rule.when, node)]
        row = self.verdict.row
        if row is not None and self.types:
            found += self._type_findings(node, row)
        return worst_first([*self.verdict.findings, *found]) if found else self.verdict.findings

    def _type_findings(self, node: Node, row: OpRow) -> list[Finding]:
        for place, taken in self.types:
            dtype = node.dtype(place)
            if not dtype or dtype in taken or (self.casts and dtype == "float16" and "float32" in taken):
                continue
            where = f"output {place[1:]}" if place[0] == "o" else f"input {place}"
            reason = f"{where} is {dtype}; the types named are {', '.join(sorted(taken))}"
            return [Finding(state=row.lacking, grade=row.grade, reason=reason, source=row.source)]
        return []


def _possible(clause: Clause, present: frozenset[str] | set[str]) -> bool:
    """Whether a clause on a type can be true at all."""
    if clause.subject != "dtype":
        return True
    return any((dtype in clause.values) == (clause.verb == "is") for dtype in present if dtype)


def _asks_a_written_attribute(clause: Clause) -> bool:
    return clause.subject == "attr" and clause.verb != "missing"


def _deep(clause: Clause) -> bool:
    """Whether a clause on an input asks for more than whether it is written."""
    return clause.verb not in ("present", "missing")
