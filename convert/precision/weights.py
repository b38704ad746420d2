"""Casting the weights themselves: small ones at once, external ones while they are streamed to their new file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper

from convert.bigmodel import is_external, refer_as
from convert.precision.scope import type_number


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
