"""Small constants worked out ahead: shapes, axes and the integer arithmetic around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import NodeProto, numpy_helper

if TYPE_CHECKING:
    from convert.lowering.facts import Scope

Array = np.ndarray
Attributes = dict[str, Any]
MAX_ELEMENTS = 1 << 12


def attributes_of(node: NodeProto) -> Attributes | None:
    """A node's attributes as Python values, or None where one is a reference to a function's attribute."""
    if any(attribute.ref_attr_name for attribute in node.attribute):
        return None
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def evaluate(node: NodeProto, scope: Scope) -> Array | None:
    """What a node makes, where its inputs are constant and it is one of the simple operators; else None."""
    if node.domain not in ("", "ai.onnx") or len(node.output) != 1:
        return None
    attributes = attributes_of(node)
    if attributes is None:
        return None
    if node.op_type == "Constant":
        return _constant(attributes)
    if node.op_type in ("Shape", "Size"):
        return _shape(node, attributes, scope)
    worker = WORKERS.get(node.op_type)
    if worker is None:
        return None
    inputs = [scope.const(name) if name else None for name in node.input]
    if any(value is None and name for value, name in zip(inputs, node.input, strict=True)):
        return None
    try:
        with np.errstate(all="ignore"):
            result = worker(inputs, attributes)
    except (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError):
        return None
    return result if result is not None and result.size <= MAX_ELEMENTS else None


def _constant(attributes: Attributes) -> Array | None:
    for name, value in attributes.items():
        if name == "value":
            small = value.data_location != onnx.TensorProto.EXTERNAL and np.prod(value.dims) <= MAX_ELEMENTS
            return _content(value) if small else None
        if name in ("value_int", "value_ints"):
            return np.array(value, dtype=np.int64)
        if name in ("value_float", "value_floats"):
            return np.array(value, dtype=np.float32)
    return None


def _content(tensor: onnx.TensorProto) -> Array | None:
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError):
        return None


def _shape(node: NodeProto, attributes: Attributes, scope: Scope) -> Array | None:
    shape = scope.shape(node.input[0])
    if shape is None:
        return None
    part = shape[attributes.get("start", 0) : attributes.get("end")] if node.op_type == "Shape" else shape
    if any(dim is None for dim in part):
        return None
    dims = np.array([dim for dim in part if dim is not None], dtype=np.int64)
    return dims if node.op_type == "Shape" else np.array(dims.prod(), dtype=np.int64)


def _axes(inputs: Sequence[Array | None], attributes: Attributes) -> tuple[int, ...] | None:
    if len(inputs) > 1 and inputs[1] is not None:
        return tuple(int(axis) for axis in inputs[1].reshape(-1))
    return tuple(attributes["axes"]) if "axes" in attributes else None


def _squeeze(inputs: Sequence[Any], attributes: Attributes) -> Array:
    return np.asarray(np.squeeze(inputs[0], _axes(inputs, attributes)))


def _unsqueeze(inputs: Sequence[Any], attributes: Attributes) -> Array:
    return np.expand_dims(inputs[0], _axes(inputs, attributes) or ())


def _cast(inputs: Sequence[Any], attributes: Attributes) -> Array:
    return np.asarray(inputs[0]).astype(onnx.helper.tensor_dtype_to_np_dtype(attributes["to"]))


def _slice(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
    data = inputs[0]
    given = [np.asarray(value).tolist() for value in inputs[1:] if value is not None]
    if "starts" in attributes:
        given = [attributes["starts"], attributes["ends"], attributes.get("axes", range(len(attributes["starts"])))]
    starts, ends = given[0], given[1]
    axes = given[2] if len(given) > 2 else range(len(starts))
    steps = given[3] if len(given) > 3 else [1] * len(starts)
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index[axis] = slice(start, end, step)
    return np.asarray(data[tuple(index)])


def _div(inputs: Sequence[Any], _: Attributes) -> Array:
    left, right = inputs
    if not np.issubdtype(left.dtype, np.integer):
        return np.asarray(left / right)
    quotient = np.abs(left) // np.abs(right)
    return np.asarray(np.where((left < 0) != (right < 0), -quotient, quotient)).astype(left.dtype)


def _reshape(inputs: Sequence[Any], attributes: Attributes) -> Array:
    data, shape = inputs
    keep_zero = attributes.get("allowzero", 0)
    return np.asarray(data.reshape([data.shape[i] if d == 0 and not keep_zero else d for i, d in enumerate(shape)]))


def _range(inputs: Sequence[Any], _: Attributes) -> Array | None:
    start, limit, delta = (value.reshape(-1)[0] for value in inputs)
    if delta == 0 or abs((limit - start) / delta) > MAX_ELEMENTS:
        return None
    return np.arange(start, limit, delta, dtype=inputs[0].dtype)


def _constant_of_shape(inputs: Sequence[Any], attributes: Attributes) -> Array | None:
    value: Array = numpy_helper.to_array(attributes["value"]) if "value" in attributes else np.zeros(1, np.float32)
    shape = [int(d) for d in inputs[0]]
    if np.prod(shape) > MAX_ELEMENTS:
        return None
    return np.broadcast_to(value[:1], shape).copy()


def _expand(inputs: Sequence[Any], _: Attributes) -> Array | None:
    shape = np.broadcast_shapes(inputs[0].shape, tuple(int(d) for d in inputs[1]))
    return np.broadcast_to(inputs[0], shape).copy() if np.prod(shape) <= MAX_ELEMENTS else None


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[Sequence[Any], Attributes], Array]:
    return lambda inputs, _: np.asarray(function(inputs[0], inputs[1]))


WORKERS: dict[str, Callable[[Sequence[Any], Attributes], Array | None]] = {
    "Identity": lambda inputs, _: inputs[0],
    "Cast": _cast,
    "Gather": lambda inputs, a: np.take(inputs[0], inputs[1], axis=a.get("axis", 0)),
    "Concat": lambda inputs, a: np.concatenate(inputs, axis=a["axis"]),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Add": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
    "Div": _div,
    "Equal": _binary(np.equal),
    "Less": _binary(np.less),
    "Greater": _binary(np.greater),
    "And": _binary(np.logical_and),
    "Or": _binary(np.logical_or),
    "Not": lambda inputs, _: np.logical_not(inputs[0]),
    "Where": lambda inputs, _: np.where(inputs[0], inputs[1], inputs[2]),
    "Transpose": lambda inputs, a: np.transpose(inputs[0], a.get("perm")),
    "Neg": lambda inputs, _: np.negative(inputs[0]),
    "Reshape": _reshape,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
}
"""The operators that are worked out, each as inputs and attributes to an array."""
