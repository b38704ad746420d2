"""Constant int64 indices as int32, where every one of them fits: accelerators lack int64 or run it slowly."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from convert.lowering.site import Refuse, Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node

INDEX_INPUT = {"Gather": 1, "GatherElements": 1, "ScatterElements": 1}
"""Operators that take int32 indices, and where."""
INT32 = np.iinfo(np.int32)


def _wanted(site: Site) -> bool:
    place = INDEX_INPUT.get(site.node.op_type)
    value = site.const(site.inp(place)) if place is not None else None
    return value is not None and value.dtype == np.int64


def _as_int32(site: Site) -> None:
    place = INDEX_INPUT[site.node.op_type]
    value = site.const(site.inp(place))
    if value is None or (value.size and (value.min() < INT32.min or value.max() > INT32.max)):
        raise Refuse("an index does not fit into int32")
    inputs = list(site.node.input)
    inputs[place] = site.tensor(value.astype(np.int32))
    site.same(inputs)


def run(model: ModelProto, argument: str) -> list[str]:
    """Narrow every constant index; says where."""
    return each_node(model, _as_int32, _wanted)


RULE = Rewrite(
    name="indices-to-int32",
    title="constant indices as int32",
    avoids=tuple(Avoided(op=op, fact="int64-input") for op in INDEX_INPUT),
    run=run,
)
