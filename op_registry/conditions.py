"""The conditions of ``rules.csv``: when a rule speaks of a node.

A condition is a list of clauses joined by `` and ``; a rule without one speaks of every node of its operator.
Something that the graph doesn't tell (a type, a rank, a value) makes a clause false: what isn't known refuses nothing.

    attr NAME present|missing              the attribute is written, or isn't
    attr NAME is V…|not V…                 its value is one of these, or is written and none of them
    attr NAME any V…                       a list attribute holds one of these
    attr NAME < N | > N                    a number, below or above
    attr NAME length N… | length-not N…    a list attribute has so many elements, or hasn't
    attr NAME odd | odd-length             an odd number; a list with an odd number of elements
    attr NAME max > N | product > N        over a list attribute
    inputs < N | > N ; outputs < N | > N   written inputs or outputs, up to the last that isn't empty
    input I present|missing|constant|variable      input I (variable: not an initializer or Constant)
    input I is V…|not V…|> N|< N           the value of a small constant input; for lists: any of its elements
    output I present                       output I is written
    dtype I is T…|not T…                   the element type of input I; ``dtype o0`` for output 0
    rank I is N…|not N…                    the rank of input I
    graph FACT > N | is N…                 a fact of the whole graph (rules on ``(graph)`` only)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

Value = int | float | str | list[int] | list[float] | list[str] | bool | None


class NodeFacts(Protocol):
    """What a condition may ask of a node."""

    def attribute(self, name: str) -> Value:
        """A written attribute's value; True where it is a tensor or a graph; None where it isn't written."""

    def count(self, of: str) -> int:
        """How many ``inputs`` or ``outputs`` are written."""

    def written(self, of: str, index: int) -> bool:
        """Whether an ``input`` or ``output`` is written."""

    def constant(self, index: int) -> bool:
        """Whether an input is an initializer or comes from a Constant node."""

    def value(self, index: int) -> Value:
        """The value of a small constant input."""

    def dtype(self, place: str) -> str:
        """The element type of an input (``0``) or output (``o0``); empty where it isn't known."""

    def rank(self, index: int) -> int | None:
        """The rank of an input, where it is known."""


class Clause(msgspec.Struct, frozen=True):
    """One clause: ``subject`` (attr, inputs, dtype, …) of ``key``, ``verb`` and ``values``."""

    subject: str
    key: str
    verb: str
    values: tuple[str, ...]


TESTS = ("present", "missing", "is", "not", "<", ">")
VERBS: Mapping[str, frozenset[str]] = {
    "attr": frozenset([*TESTS, "any", "length", "length-not", "odd", "odd-length", "max", "product"]),
    "inputs": frozenset("<>"),
    "outputs": frozenset("<>"),
    "input": frozenset([*TESTS, "constant", "variable"]),
    "output": frozenset(["present"]),
    "dtype": frozenset(["is", "not"]),
    "rank": frozenset(["is", "not"]),
    "graph": frozenset(["is", "<", ">"]),
}
ALONE = frozenset(["present", "missing", "constant", "variable", "odd", "odd-length"])
KEYLESS = frozenset(["inputs", "outputs"])


def parse_condition(text: str) -> tuple[Clause, ...]:
    """Clauses of a condition. Raises ValueError with what is wrong."""
    return tuple(_parse_clause(part) for part in text.split(" and ")) if text.strip() else ()


def _parse_clause(text: str) -> Clause:
    words = text.split()
    subject = words.pop(0) if words else ""
    if subject not in VERBS:
        raise ValueError(f"{text!r} doesn't begin with one of {', '.join(VERBS)}")
    key = "" if subject in KEYLESS else (words.pop(0) if words else "")
    verb = words.pop(0) if words else ""
    if verb not in VERBS[subject]:
        raise ValueError(f"{text!r}: {verb!r} can't be asked of {subject}")
    if (verb in ALONE) == bool(words):
        raise ValueError(f"{text!r}: {verb!r} takes {'no' if verb in ALONE else 'some'} values")
    if verb in ("max", "product") and (len(words) != 2 or words[0] != ">"):
        raise ValueError(f"{text!r}: write {verb} > N")
    numeric = words[-1:] if verb in ("<", ">", "max", "product", "length", "length-not") else []
    if not all(word.isascii() and word.lstrip("-").replace(".", "", 1).isdigit() for word in numeric):
        raise ValueError(f"{text!r}: {words[-1]!r} is no number")
    if subject in ("input", "output", "rank") and not (key.isascii() and key.isdigit() and len(key) < 4):
        raise ValueError(f"{text!r}: {key!r} is no index")
    return Clause(subject, key, verb, tuple(words))


def holds(clauses: tuple[Clause, ...], node: NodeFacts) -> bool:
    """Whether every clause is true of a node."""
    return all(ASK[clause.subject](clause, node) for clause in clauses)


def graph_holds(clauses: tuple[Clause, ...], fact: Callable[[str], int]) -> bool:
    """Whether every clause is true of a graph whose facts ``fact`` gives by name."""
    return all(_number(fact(clause.key), clause) for clause in clauses)


def _attr(clause: Clause, node: NodeFacts) -> bool:
    value = node.attribute(clause.key)
    if clause.verb == "missing" or value is None:
        return clause.verb == "missing" and value is None
    return _compare(value, clause)


def _compare(value: Value, clause: Clause) -> bool:
    verb, values = clause.verb, clause.values
    if verb == "present":
        return True
    if isinstance(value, list):
        return _compare_list(value, clause)
    if verb == "odd":
        return isinstance(value, int) and value % 2 == 1
    if verb in ("is", "not"):
        return (_word(value) in values) == (verb == "is")
    return verb in "<>" and _number(value, clause)


def _compare_list(value: list[int] | list[float] | list[str], clause: Clause) -> bool:
    verb, values = clause.verb, clause.values
    if verb == "odd-length":
        return len(value) % 2 == 1
    if verb in ("length", "length-not"):
        return (str(len(value)) in values) == (verb == "length")
    if verb in ("any", "is", "not"):
        found = any(_word(item) in values for item in value)
        return found if verb != "not" else not found
    numbers = [item for item in value if isinstance(item, int | float)]
    if verb in ("<", ">"):
        return any(_number(item, clause) for item in numbers)
    return bool(numbers) and _over(numbers, verb) > float(values[-1])


def _over(numbers: list[int | float], verb: str) -> float:
    if verb == "max":
        return max(numbers)
    product = 1.0
    for number in numbers:
        product *= number
    return product


def _number(value: object, clause: Clause) -> bool:
    if not isinstance(value, int | float):
        return False
    if clause.verb == "is":
        return _word(value) in clause.values
    limit = float(clause.values[-1])
    return value < limit if clause.verb == "<" else value > limit


def _word(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _count(clause: Clause, node: NodeFacts) -> bool:
    return _number(node.count(clause.subject), clause)


def _input(clause: Clause, node: NodeFacts) -> bool:
    index = int(clause.key)
    written = node.written("input", index)
    if clause.verb in ("present", "missing"):
        return written == (clause.verb == "present")
    if not written:
        return False
    if clause.verb in ("constant", "variable"):
        return node.constant(index) == (clause.verb == "constant")
    value = node.value(index)
    return value is not None and _compare(value, clause)


def _output(clause: Clause, node: NodeFacts) -> bool:
    return node.written("output", int(clause.key))


def _dtype(clause: Clause, node: NodeFacts) -> bool:
    dtype = node.dtype(clause.key)
    return bool(dtype) and (dtype in clause.values) == (clause.verb == "is")


def _rank(clause: Clause, node: NodeFacts) -> bool:
    rank = node.rank(int(clause.key))
    return rank is not None and (str(rank) in clause.values) == (clause.verb == "is")


ASK: Mapping[str, Callable[[Clause, NodeFacts], bool]] = {
    "attr": _attr,
    "inputs": _count,
    "outputs": _count,
    "input": _input,
    "output": _output,
    "dtype": _dtype,
    "rank": _rank,
}
