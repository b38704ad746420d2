"""Bounds of ``Slice`` that lie beyond int32 (``to the end`` is written as the greatest int64), brought inside of it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from convert.rewrites.base import Avoided, Rewrite
from convert.walking import walk

LOW, HIGH = -(1 << 31), (1 << 31) - 1
BOUNDS = (1, 2)
"""Inputs of Slice that are clamped to the size of the axis, which int32 can always say."""


def run(model: ModelProto, argument: str) -> list[str]:
    """Narrow constants that nothing but bounds of Slice reads; gives their names."""
    read: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for node in walk(model.graph):
        for place, name in enumerate(node.input):
            read[name].add((node.op_type, place))
    outputs = {info.name for info in model.graph.output}
    held = [(tensor.name, tensor) for tensor in model.graph.initializer]
    for node in walk(model.graph):
        if node.op_type == "Constant":
            held += [(node.output[0], item.t) for item in node.attribute if item.name == "value"]
    done = []
    for name, tensor in held:
        only_bounds = read[name] and read[name] <= {("Slice", place) for place in BOUNDS}
        if only_bounds and name not in outputs and _narrowed(tensor):
            done.append(name)
    return done


def _narrowed(tensor: TensorProto) -> bool:
    """Bring the content inside of int32, in place; whether anything changed."""
    if tensor.data_type != TensorProto.INT64 or tensor.data_location == TensorProto.EXTERNAL:
        return False
    values = numpy_helper.to_array(tensor)
    inside = values.clip(LOW, HIGH)
    if np.array_equal(inside, values):
        return False
    tensor.CopyFrom(numpy_helper.from_array(inside, tensor.name))
    return True


RULE = Rewrite(
    name="slice-bounds",
    title="bounds of Slice inside of int32",
    avoids=(Avoided(op="*", fact="wide-int64"),),
    run=run,
)
