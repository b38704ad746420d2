"""Weights with equal content as one weight, as they were in the model before it was exported."""

from __future__ import annotations

import hashlib

from onnx import ModelProto, NodeProto, TensorProto

from convert.rewrites.base import Avoided, Rewrite
from convert.walking import subgraphs

SMALL = 1 << 10
"""Weights below this many bytes are left alone: nothing is gained."""


def run(model: ModelProto, argument: str) -> list[str]:
    """Keep the first of equal weights; says which went."""
    inputs = {info.name for info in model.graph.input} | {info.name for info in model.graph.output}
    first: dict[bytes, str] = {}
    renamed: dict[str, str] = {}
    for tensor in model.graph.initializer:
        key = _key(tensor)
        if key and tensor.name not in inputs and first.setdefault(key, tensor.name) != tensor.name:
            renamed[tensor.name] = first[key]
    if renamed:
        for index in range(len(model.graph.initializer) - 1, -1, -1):
            if model.graph.initializer[index].name in renamed:
                del model.graph.initializer[index]
        for node in model.graph.node:
            _rename(node, renamed)
    return list(renamed)


def _key(tensor: TensorProto) -> bytes:
    """What two equal weights share; for external data the place that they share in the file. Empty: left alone."""
    if tensor.data_location != TensorProto.EXTERNAL and tensor.ByteSize() < SMALL:
        return b""
    content = TensorProto()
    content.CopyFrom(tensor)
    content.ClearField("name")
    content.ClearField("doc_string")
    return hashlib.sha256(content.SerializeToString(deterministic=True)).digest()


def _rename(node: NodeProto, renamed: dict[str, str]) -> None:
    for index, name in enumerate(node.input):
        node.input[index] = renamed.get(name, name)
    for graph in subgraphs(node):
        own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
        inside = {name: new for name, new in renamed.items() if name not in own}
        for inner in graph.node:
            _rename(inner, inside)
        for info in graph.output:
            info.name = inside.get(info.name, info.name)


RULE = Rewrite(
    name="tie-weights",
    title="equal weights stored once",
    avoids=(Avoided(op="*", fact="copied-weights"),),
    run=run,
)
