"""Facts of a graph as a whole, for the rules on ``(graph)``: each is computed when a rule asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from op_registry.conditions import Clause

INT64 = 7
LARGEST = 8 << 20
"""Bytes of an initializer whose values are looked at."""
NAMED = 5
"""Names that are told at most."""


class GraphFacts:
    """Facts of a model. ``operators`` counts the nodes of its graph by domain and operator.

    imports: opset imports; plain-nodes: nodes of the empty domain; spelled-nodes and spelled-imports: those whose
    domain is written ``ai.onnx``; same-names: nodes whose name another node has; inputs and outputs of the graph
    (initializers aren't inputs); empty-dims: dimensions of size 0 in inputs; functions: local functions; wide-int64:
    int64 initializers with values outside of int32.
    """

    def __init__(self, model: Any, operators: Mapping[tuple[str, str], int]) -> None:
        self.model = model
        self.operators = operators
        self._known: dict[str, tuple[int, tuple[str, ...]]] = {}

    def number(self, name: str) -> int:
        """A fact's number; 0 for a fact that isn't known."""
        return self._fact(name)[0]

    def subjects(self, clauses: tuple[Clause, ...]) -> str:
        """The names that the facts of a rule are about, where they are about some."""
        names = [subject for clause in clauses for subject in self._fact(clause.key)[1]]
        return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")

    def _fact(self, name: str) -> tuple[int, tuple[str, ...]]:
        if name not in self._known:
            self._known[name] = FACTS[name](self) if name in FACTS else (0, ())
        return self._known[name]


def _count(number: int) -> tuple[int, tuple[str, ...]]:
    return number, ()


def _named(names: list[str]) -> tuple[int, tuple[str, ...]]:
    return len(names), tuple(names)


def _in_domain(facts: GraphFacts, wanted: str) -> tuple[int, tuple[str, ...]]:
    return _count(sum(count for (domain, _), count in facts.operators.items() if domain == wanted))


def _same_names(facts: GraphFacts) -> tuple[int, tuple[str, ...]]:
    names = [name for node in facts.model.graph.node if (name := node.name)]
    if len(set(names)) == len(names):
        return 0, ()
    seen: set[str] = set()
    return _named([name for name in names if name in seen or seen.add(name)])  # type: ignore[func-returns-value]


def _inputs(facts: GraphFacts) -> list[Any]:
    inputs = list(facts.model.graph.input)
    initializers = {tensor.name for tensor in facts.model.graph.initializer} if inputs else set()
    return [info for info in inputs if info.name not in initializers]


def _empty_dims(facts: GraphFacts) -> tuple[int, tuple[str, ...]]:
    return _named(
        [
            info.name
            for info in _inputs(facts)
            if any(d.HasField("dim_value") and d.dim_value == 0 for d in info.type.tensor_type.shape.dim)
        ]
    )


def _wide_int64(facts: GraphFacts) -> tuple[int, tuple[str, ...]]:
    return _named([tensor.name for tensor in facts.model.graph.initializer if is_wide(tensor)])


def is_wide(tensor: Any) -> bool:
    """Whether an int64 tensor that lies in the file holds values outside of int32."""
    if tensor.data_type != INT64 or tensor.data_location == 1 or tensor.ByteSize() > LARGEST:
        return False
    from onnx import numpy_helper

    try:
        values = numpy_helper.to_array(tensor)
    except ValueError:
        return False
    return bool(values.size) and bool(values.max() > 2**31 - 1 or values.min() < -(2**31))


FACTS: Mapping[str, Callable[[GraphFacts], tuple[int, tuple[str, ...]]]] = {
    "imports": lambda facts: _count(len(facts.model.opset_import)),
    "plain-nodes": lambda facts: _in_domain(facts, ""),
    "spelled-nodes": lambda facts: _in_domain(facts, "ai.onnx"),
    "spelled-imports": lambda facts: _count(sum(item.domain == "ai.onnx" for item in facts.model.opset_import)),
    "same-names": _same_names,
    "inputs": lambda facts: _count(len(_inputs(facts))),
    "outputs": lambda facts: _count(len(facts.model.graph.output)),
    "empty-dims": _empty_dims,
    "functions": lambda facts: _named([function.name for function in facts.model.functions]),
    "wide-int64": _wide_int64,
}
