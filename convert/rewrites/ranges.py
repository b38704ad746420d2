"""Between which integers a value of a graph lies, whatever the inputs are: intervals, from the constants on.

What is not known has the range of its type. A sum or product that could leave int64, where it would wrap, has the whole
range. Bodies of Loop, Scan and If are looked into from inside; what they give out has the range of its type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from convert.lowering.facts import Scope

Span = tuple[int, int]
"""The least and the greatest value."""
INT64: Span = (-(1 << 63), (1 << 63) - 1)
INT32: Span = (-(1 << 31), (1 << 31) - 1)
DEPTH = 200
PASSED_ON = frozenset(
    {
        *("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Expand", "Tile", "Slice", "Split", "Identity"),
        *("Gather", "GatherElements", "GatherND", "DepthToSpace", "SpaceToDepth"),
    }
)
"""Operators whose output holds no number that their first input doesn't hold."""


def fits_int32(span: Span) -> bool:
    """Whether every number of a range is an int32."""
    return INT32[0] <= span[0] and span[1] <= INT32[1]


class Ranges:
    """Ranges of values, each worked out once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], Span] = {}
        self._scopes: dict[int, Scope] = {}
        """Kept, so that no other scope gets the number of one that is gone."""

    def span(self, name: str, scope: Scope, depth: int = 0) -> Span:
        """The range of an integer value that ``scope`` sees."""
        owner = scope.defines(name)
        whole = _of_type(scope.dtype(name))
        if owner is None or depth > DEPTH:
            return whole
        key = (id(self._scopes.setdefault(id(owner), owner)), name)
        if key not in self._known:
            # A value that is asked for while it is being worked out has the range of its type.
            self._known[key] = whole
            found = self._find(name, owner, depth)
            inside = whole[0] <= found[0] and found[1] <= whole[1]
            self._known[key] = found if inside else whole
        return self._known[key]

    def _find(self, name: str, scope: Scope, depth: int) -> Span:
        value = scope.const(name)
        if value is not None:
            if value.dtype.kind not in "iub" or not value.size:
                return (0, 0) if value.dtype.kind in "iub" else _of_type(scope.dtype(name))
            return int(value.min()), int(value.max())
        node = scope.makers.get(name)
        if node is None or node.domain not in ("", "ai.onnx"):
            return _of_type(scope.dtype(name))

        def of(index: int) -> Span:
            return self.span(node.input[index], scope, depth + 1)

        if node.op_type == "TopK" and name != node.output[0]:
            size = _axis_size(node, scope, -1)
            return (0, max(size - 1, 0)) if size is not None else _of_type(scope.dtype(name))
        if node.op_type in PASSED_ON or node.op_type == "TopK":
            return of(0)
        rule = RULES.get(node.op_type)
        found = rule(node, of, scope) if rule is not None else None
        return found if found is not None else _of_type(scope.dtype(name))


Of = Callable[[int], Span]
RangeRule = Callable[[NodeProto, Of, Scope], Span | None]


def _of_type(number: int) -> Span:
    if number == TensorProto.BOOL:
        return 0, 1
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(number)) if number else np.dtype(np.int64)
        info = np.iinfo(dtype)
    except (KeyError, ValueError):
        return INT64
    return int(info.min), int(info.max)


def _attribute(node: NodeProto, name: str, default: int) -> int:
    return next((int(found.i) for found in node.attribute if found.name == name), default)


def _axis_size(node: NodeProto, scope: Scope, default: int) -> int | None:
    shape = scope.shape(node.input[0])
    axis = _attribute(node, "axis", default)
    return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None


def _index_of_axis(default: int) -> RangeRule:
    def rule(node: NodeProto, of: Of, scope: Scope) -> Span | None:
        size = _axis_size(node, scope, default)
        return (0, max(size - 1, 0)) if size is not None else None

    return rule


def _places(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    """NonZero, NonMaxSuppression: a place in one of the dimensions of the first input (or, of boxes, the scores)."""
    shapes = [scope.shape(name) for name in node.input[:2]]
    dims = [dim for shape in shapes for dim in (shape if shape is not None else (None,))]
    sizes = [dim for dim in dims if dim is not None]
    return (0, max([*sizes, 1]) - 1) if len(sizes) == len(dims) else None


def _shape(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    shape = scope.shape(node.input[0])
    sizes = [dim for dim in shape or () if dim is not None]
    return (min(sizes), max(sizes)) if shape and len(sizes) == len(shape) else (0, INT64[1])


def _between(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    """Range: from its start to its limit."""
    start, limit = of(0), of(1)
    return min(start[0], limit[0]), max(start[1], limit[1])


def _union(first: int) -> RangeRule:
    def rule(node: NodeProto, of: Of, scope: Scope) -> Span | None:
        spans = [of(index) for index in range(first, len(node.input)) if node.input[index]]
        return min(span[0] for span in spans), max(span[1] for span in spans)

    return rule


def _clip(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    low, high = of(0)
    if len(node.input) > 1 and node.input[1]:
        low, high = max(low, of(1)[0]), max(high, of(1)[1])
    if len(node.input) > 2 and node.input[2]:
        low, high = min(low, of(2)[0]), min(high, of(2)[1])
    return low, high


def _greatest(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    spans = [of(index) for index in range(len(node.input))]
    return max(span[0] for span in spans), max(span[1] for span in spans)


def _least(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    spans = [of(index) for index in range(len(node.input))]
    return min(span[0] for span in spans), min(span[1] for span in spans)


def _sum(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    left, right = of(0), of(1)
    return left[0] + right[0], left[1] + right[1]


def _difference(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    left, right = of(0), of(1)
    return left[0] - right[1], left[1] - right[0]


def _product(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    corners = [one * other for one in of(0) for other in of(1)]
    return min(corners), max(corners)


def _quotient(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    """Towards zero, as ONNX divides integers; only by what is greater than zero."""
    if of(1)[0] <= 0:
        return None
    corners = [abs(one) // other * (1 if one >= 0 else -1) for one in of(0) for other in of(1)]
    low, high = of(0)
    return min([*corners, *([0] if low <= 0 <= high else [])]), max([*corners, *([0] if low <= 0 <= high else [])])


def _remainder(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    greatest = max(abs(of(1)[0]), abs(of(1)[1])) - 1
    if of(1)[0] > 0 and not _attribute(node, "fmod", 0):
        return 0, greatest
    return -max(greatest, 0), max(greatest, 0)


def _negative(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    low, high = of(0)
    return -high, -low


def _absolute(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    low, high = of(0)
    return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _cast(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    """From an integer or a boolean; what a float holds is not known."""
    source = scope.dtype(node.input[0])
    if not source or helper.tensor_dtype_to_np_dtype(source).kind not in "iub":
        return None
    return of(0)


def _running_sum(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    shape = scope.shape(node.input[0])
    sizes = [dim for dim in shape or () if dim is not None]
    if shape is None or len(sizes) != len(shape):
        return None
    low, high, count = *of(0), max([*sizes, 1])
    return min(low * count, low, 0), max(high * count, high, 0)


def _filled(node: NodeProto, of: Of, scope: Scope) -> Span | None:
    for found in node.attribute:
        if found.name == "value":
            value = numpy_helper.to_array(found.t)
            return (int(value.min()), int(value.max())) if value.dtype.kind in "iub" else None
    return None


RULES: Mapping[str, RangeRule] = {
    "ArgMax": _index_of_axis(0),
    "ArgMin": _index_of_axis(0),
    "NonZero": _places,
    "NonMaxSuppression": _places,
    "Shape": _shape,
    "Range": _between,
    "Concat": _union(0),
    "Where": _union(1),
    "Clip": _clip,
    "Max": _greatest,
    "Min": _least,
    "Add": _sum,
    "Sub": _difference,
    "Mul": _product,
    "Div": _quotient,
    "Mod": _remainder,
    "Neg": _negative,
    "Abs": _absolute,
    "Cast": _cast,
    "CumSum": _running_sum,
    "ConstantOfShape": _filled,
}
