"""Every node a name of its own, of characters that every compiler can write into its files."""

from __future__ import annotations

import re

from onnx import ModelProto

from convert.rewrites.base import Avoided, Rewrite
from convert.walking import walk

ILLEGAL = re.compile(r"[^A-Za-z0-9_./\-]")


def run(model: ModelProto, argument: str) -> list[str]:
    """Name the nameless, rename what is illegal or comes twice; says which names changed. Values keep their names."""
    nodes = list(walk(model.graph))
    taken: set[str] = set()
    changed = []
    for node in nodes:
        wanted = ILLEGAL.sub("_", node.name) or f"{node.op_type}_node"
        name, count = wanted, 1
        while name in taken:
            count += 1
            name = f"{wanted}_{count}"
        taken.add(name)
        if name != node.name:
            changed.append(node.name or name)
            node.name = name
    return changed


RULE = Rewrite(
    name="node-names",
    title="unique and legal node names",
    avoids=(Avoided(op="*", fact="double-or-illegal-names"),),
    run=run,
    repairs=True,
)
