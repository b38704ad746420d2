"""Weights that are listed as inputs too (the habit of old exporters) as plain weights."""

from __future__ import annotations

from onnx import ModelProto, ValueInfoProto

from convert.rewrites.base import Avoided, Rewrite


def run(model: ModelProto, argument: str) -> list[str]:
    """Take weights out of the inputs; says which. IR version 4 is the first that allows it."""
    weights = {tensor.name for tensor in model.graph.initializer}
    gone = [info.name for info in model.graph.input if info.name in weights]
    if not gone:
        return []
    kept = []
    for info in model.graph.input:
        if info.name not in weights:
            copy = ValueInfoProto()
            copy.CopyFrom(info)
            kept.append(copy)
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = max(model.ir_version, 4)
    return gone


RULE = Rewrite(
    name="weights-not-inputs",
    title="weights that are no inputs",
    avoids=(Avoided(op="*", fact="weights-as-inputs"),),
    run=run,
)
