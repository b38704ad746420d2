"""From the names in a vendor's log to the names of the graph's nodes.

Compilers change names: they replace ``/`` and ``:``, add prefixes and numbers, and join the names of what they fused
(``/conv1/Conv + /relu/Relu``, ``{ForeignNode[/a/Add.../b/Mul]}``, ``PartitionedCall_/conv1/Conv_2``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

OTHER = re.compile(r"[^A-Za-z0-9]+")
OPSET = re.compile(r"-\d{1,2}$")
SHORTEST = 3
"""Letters and digits that a node's name must have to be looked for inside a longer name."""
LONGEST = 2000


def real_names(named: Collection[str], nodes: Collection[str]) -> tuple[str, ...]:
    """The graph's nodes behind names of a log, in the log's order; names that are behind none are left out."""
    known = frozenset(nodes)
    plain: Mapping[str, str] | None = None
    found: dict[str, None] = {}
    for name in named:
        if name in known:
            found[name] = None
            continue
        plain = plain if plain is not None else {key: node for node in nodes if (key := _plain(node))}
        wanted = _plain(name[:LONGEST])
        if wanted in plain:
            found[plain[wanted]] = None
        else:
            found.update(dict.fromkeys(_inside(wanted, plain)))
    return tuple(found)


def _plain(name: str) -> str:
    return OTHER.sub("_", name).strip("_")


def _inside(wanted: str, plain: Mapping[str, str]) -> list[str]:
    """Nodes whose names stand inside a longer one, whole; a name that is a part of another hit's name is no hit."""
    padded = f"_{wanted}_"
    hits: list[tuple[int, int, str]] = []
    for key, node in plain.items():
        place = padded.find(f"_{key}_") if len(key) >= SHORTEST else -1
        if place >= 0:
            hits.append((place, place + len(key), node))
    return [
        node
        for begin, end, node in sorted(hits)
        if not any(low <= begin and end <= high and (low, high) != (begin, end) for low, high, _ in hits)
    ]


def bare_op(name: str) -> str:
    """An operator's type without the opset that tools put beside it: ``ai.onnx::13::Resize``, ``Resize-13``."""
    bare = name.rpartition("::")[2].removeprefix("onnx.").strip("'\"., ")
    return OPSET.sub("", bare)
