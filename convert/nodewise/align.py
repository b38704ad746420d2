"""Which value of one graph is which of the other.

name       the same name, as simplifiers, casters and rewrites leave it
structure  the same operator and module path, and the same place among those
numbers    the same elements at the same places, up to a small part of their size
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from convert.arrays import Array
from convert.precision.flow import Flow

By = Literal["name", "structure", "numbers"]
LIKE = 1e-2
"""Elements that differ by less than this in relative L2 may be the same value."""
MOST_ALIKE = 512
"""Values of one size that are compared with each other, at most."""


def align(left: Flow, right: Flow, ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> dict[str, tuple[str, By]]:
    """The value of A for values of B, and how it was found. ``ours`` and ``theirs``: elements of each value."""
    found: dict[str, tuple[str, By]] = {}
    fits = {name for name in theirs if name in ours and ours[name].size == theirs[name].size}
    found.update((name, (name, "name")) for name in fits)
    for name, counterpart in _by_structure(left, right).items():
        same = counterpart in ours and name in theirs and ours[counterpart].size == theirs[name].size
        if name not in found and same and _error(ours[counterpart], theirs[name]) < 1.0:
            found[name] = counterpart, "structure"
    taken = {counterpart for counterpart, _ in found.values()}
    found.update(_by_numbers(found, taken, ours, theirs))
    return found


def _by_structure(left: Flow, right: Flow) -> dict[str, str]:
    """Values of nodes at the same place among those of their operator and module, where both have as many."""
    groups: list[dict[tuple[str, str], list[str]]] = []
    for flow in (left, right):
        group: dict[tuple[str, str], list[str]] = {}
        for step in flow.steps:
            if not step.link and step.outputs:
                group.setdefault((step.op, step.module), []).append(step.outputs[0])
        groups.append(group)
    pairs: dict[str, str] = {}
    for key, values in groups[1].items():
        others = groups[0].get(key, [])
        if len(others) == len(values):
            pairs.update(zip(values, others, strict=True))
    return pairs


def _by_numbers(
    found: Mapping[str, object], taken: set[str], ours: Mapping[str, Array], theirs: Mapping[str, Array]
) -> dict[str, tuple[str, By]]:
    sizes: dict[int, list[str]] = {}
    for name, values in ours.items():
        if name not in taken and values.size > 1:
            sizes.setdefault(values.size, []).append(name)
    pairs: dict[str, tuple[str, By]] = {}
    for name, values in theirs.items():
        if name in found or values.size < 2:
            continue
        near = [(_error(ours[other], values), other) for other in sizes.get(values.size, [])[:MOST_ALIKE]]
        best = min(near, default=(1.0, ""))
        if best[0] <= LIKE:
            pairs[name] = best[1], "numbers"
            sizes[values.size].remove(best[1])
    return pairs


def _error(left: Array, right: Array) -> float:
    return relative_error(left, right)


def relative_error(reference: Array, candidate: Array) -> float:
    """‖c - r‖ / ‖r‖ in float64; 1e9 where one side alone is no number."""
    r, c = reference.astype(np.float64).reshape(-1), candidate.astype(np.float64).reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        same = (r == c) | (np.isnan(r) & np.isnan(c))
        odd = ~(np.isfinite(r) & np.isfinite(c))
        if bool((odd & ~same).any()):
            return 1e9
        d = np.where(same, 0.0, c - r)
        r = np.where(odd, 0.0, r)
        norm, off = float(np.linalg.norm(r)), float(np.linalg.norm(d))
    return off / norm if norm else (0.0 if not off else 1.0)


def frontier(flow: Flow, value: str, known: Mapping[str, object]) -> list[str]:
    """The nearest values before a value that are ``known``, or inputs of the graph."""
    return [name for name in piece(flow, value, known)[1] if name in known or name in flow.inputs]


def piece(flow: Flow, value: str, known: Mapping[str, object]) -> tuple[list[int], list[str]]:
    """The steps between a value and the nearest known ones before it, in order; and those, with inputs and weights."""
    steps: set[int] = set()
    edge: dict[str, None] = {}
    waiting: list[str] = [value]
    first = True
    while waiting:
        name = waiting.pop()
        if not first and (name in known or name not in flow.makers):
            edge[name] = None
            continue
        first = False
        number = flow.makers.get(name)
        if number is not None and number not in steps:
            steps.add(number)
            waiting += [source for source in flow.steps[number].inputs if source]
    return sorted(steps), list(edge)


__all__: Sequence[str] = ("By", "align", "frontier", "piece", "relative_error")
