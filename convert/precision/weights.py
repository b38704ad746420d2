"""Casting the weights themselves: small ones at once, external ones while they are streamed to their new file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from convert.bigmodel import is_external, refer_as
from convert.precision.scope import type_number
from convert.walking import graphs_in


def cast_weights(graph: GraphProto, wanted: Iterable[tuple[TensorProto, str, str]]) -> int:
    """Replace a graph's initializers by those wanted: (tensor, type, name). How many were cast.

    Initializers that nothing wants are dropped. External ones become references that are cast when they are written.
    """
    made = [(tensor.data_type, _cast(tensor, type_number(kind), name)) for tensor, kind, name in wanted]
    del graph.initializer[:]
    graph.initializer.extend(tensor for _, tensor in made)
    return sum(before != tensor.data_type for before, tensor in made)


def _cast(tensor: TensorProto, number: int, name: str) -> TensorProto:
    made = TensorProto()
    if number == tensor.data_type:
        made.CopyFrom(tensor)
    elif is_external(tensor):
        made.CopyFrom(tensor)
        refer_as(made, number)
    else:
        made = numpy_helper.from_array(cast_array(numpy_helper.to_array(tensor), number))
    made.name = name
    return made


def cast_array(array: np.ndarray[Any, Any], number: int) -> np.ndarray[Any, Any]:
    """An array in another floating-point type, rounded to nearest even; too large numbers become infinite."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        cast: np.ndarray[Any, Any] = array.astype(helper.tensor_dtype_to_np_dtype(number))
    return cast


def constants_to_weights(graph: GraphProto) -> None:
    """Turn Constant nodes that hold tensors and numbers into initializers, in every graph."""
    for inner in graphs_in(graph):
        kept = []
        for node in inner.node:
            tensor = _constant(node)
            if tensor is None:
                kept.append(node)
            else:
                inner.initializer.append(tensor)
        if len(kept) != len(inner.node):
            copies = [NodeProto.FromString(node.SerializeToString()) for node in kept]
            del inner.node[:]
            inner.node.extend(copies)


def _constant(node: NodeProto) -> TensorProto | None:
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or not node.attribute:
        return None
    attribute, tensor = node.attribute[0], TensorProto()
    if attribute.name == "value":
        tensor.CopyFrom(attribute.t)
    elif attribute.name == "value_float":
        tensor = helper.make_tensor("", TensorProto.FLOAT, [], [attribute.f])
    elif attribute.name == "value_floats":
        tensor = helper.make_tensor("", TensorProto.FLOAT, [len(attribute.floats)], attribute.floats)
    elif attribute.name == "value_int":
        tensor = helper.make_tensor("", TensorProto.INT64, [], [attribute.i])
    elif attribute.name == "value_ints":
        tensor = helper.make_tensor("", TensorProto.INT64, [len(attribute.ints)], attribute.ints)
    else:
        return None
    tensor.name = node.output[0]
    return tensor
