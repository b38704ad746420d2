"""Finite mask values that float16 can't hold (-1e9, -3.4e38) as -60000, where they lead into a Softmax."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto

from convert.lowering.site import Refuse, Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node

LARGEST = 65504.0
MASK = -60000.0
"""Far enough from any score that exp() of it is zero, and with room for a score to be added to it."""


def run(model: ModelProto, argument: str) -> list[str]:
    """Bound the constants that Where and Add put in front of a Softmax; says at which nodes."""
    readers: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)

    def wanted(site: Site) -> bool:
        if site.node.op_type not in ("Where", "Add") or not _only_softmax(site.node, readers):
            return False
        return any(_overflows(site.const(name)) for name in site.node.input)

    return each_node(model, _bounded, wanted)


def _overflows(value: np.ndarray | None) -> bool:
    if value is None or value.dtype not in (np.float32, np.float64):
        return False
    return bool(np.any(np.isfinite(value) & (value < -LARGEST)))


def _only_softmax(node: NodeProto, readers: dict[str, list[NodeProto]]) -> bool:
    """Whether what a node makes is read by Softmax alone, through an Add or a Where at most."""
    following = readers.get(node.output[0], [])
    if not following:
        return False
    return all(
        reader.op_type == "Softmax" or (reader.op_type in ("Add", "Where") and _only_softmax(reader, readers))
        for reader in following
    )


def _bounded(site: Site) -> None:
    inputs = []
    for name in site.node.input:
        value = site.const(name)
        if value is None or not _overflows(value):
            inputs.append(name)
            continue
        if np.any(np.isfinite(value) & (value > LARGEST)):
            raise Refuse("a mask that is also large and positive")
        inputs.append(site.tensor(np.where(np.isfinite(value), np.maximum(value, MASK), value).astype(value.dtype)))
    site.same(inputs)


RULE = Rewrite(
    name="fp16-masks",
    title="mask values that float16 can hold",
    avoids=(Avoided(op="Where", fact="fp16-overflow"), Avoided(op="Add", fact="fp16-overflow")),
    run=run,
)
