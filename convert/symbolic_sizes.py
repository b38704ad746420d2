"""Sizes of the values of a graph as products of numbers and names: ``N``, 64, ``64 N``.

ONNX's inference names what it does not know (``unk__3``) and follows equality, and it loses a size at each ``-1`` and
each broadcast of two unknowns. What those are is found here, in one pass over the nodes, and told to its names.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from convert.bigmodel import is_external
from convert.lowering.inference import infer
from convert.lowering.schemas import main_domain

LONGEST = 64
"""Elements of a vector that is followed: no value has more dimensions."""
BROADCASTS = frozenset((
    "Add", "Sub", "Mul", "Div", "Pow", "Mod", "Min", "Max", "Sum", "Mean", "Where", "Equal", "Greater", "Less",
    "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor", "PRelu",
))  # fmt: skip


class Size(NamedTuple):
    """A number times names, each as often as it stands there."""

    factor: int
    names: tuple[str, ...] = ()

    def times(self, other: Size) -> Size:
        """The product."""
        return Size(self.factor * other.factor, tuple(sorted(self.names + other.names)))

    def by(self, other: Size) -> Size | None:
        """The quotient, where it is one for all sizes above zero."""
        left = Counter(self.names)
        left.subtract(other.names)
        if not other.factor or self.factor % other.factor or any(count < 0 for count in left.values()):
            return None
        return Size(self.factor // other.factor, tuple(sorted(left.elements())))


Sizes = tuple[Size | None, ...]
ONE = Size(1)


class Followed:
    """Sizes of the values of a main graph, whose nodes are in order, and contents of its vectors of sizes."""

    def __init__(self, model: ModelProto) -> None:
        inferred = infer(_bare(model)).graph
        infos = (*inferred.value_info, *inferred.output, *inferred.input)
        self._dims = {info.name: _dims(info) for info in infos if info.type.tensor_type.HasField("shape")}
        self._own = {dim for info in model.graph.input for dim in _dims(info) if isinstance(dim, str)}
        self._meant: dict[str, Size] = {}
        self.contents: dict[str, Sizes] = {}
        for tensor in model.graph.initializer:
            self._dims.setdefault(tensor.name, tuple(tensor.dims))
            self._keep(tensor.name, tensor)
        for node in model.graph.node:
            if main_domain(node.domain):
                self._follow(node)

    def shape(self, name: str) -> Sizes | None:
        """The sizes of a value; None where not even their number is known."""
        dims = self._dims.get(name)
        return None if dims is None else tuple(map(self._size, dims))

    def _size(self, dim: int | str | None) -> Size | None:
        if isinstance(dim, int):
            return Size(dim)
        if dim is None or dim in self._own:
            return Size(1, (dim,)) if dim else None
        return self._meant.get(dim)

    def _keep(self, name: str, tensor: TensorProto) -> None:
        small = len(tensor.dims) <= 1 and math.prod(tensor.dims) <= LONGEST
        if small and tensor.data_type in (TensorProto.INT64, TensorProto.INT32) and not is_external(tensor):
            self.contents[name] = tuple(Size(int(one)) for one in numpy_helper.to_array(tensor).reshape(-1))

    def _follow(self, node: NodeProto) -> None:
        if node.op_type == "Constant":
            for item in node.attribute:
                if item.name == "value":
                    self._keep(node.output[0], item.t)
            return
        flat = len(self._dims.get(node.output[0], (0, 0))) <= 1
        if flat and (found := self._vector(node)) is not None and len(found) <= LONGEST:
            self.contents[node.output[0]] = found
        if (made := self._made(node)) is not None:
            self._learn(self._dims.get(node.output[0]), made)

    def _learn(self, dims: Sequence[int | str | None] | None, made: Sizes) -> None:
        """What the names that inference gave mean, now that the sizes are known."""
        if dims is None or len(dims) != len(made):
            return
        for dim, size in zip(dims, made, strict=True):
            if isinstance(dim, str) and dim not in self._own and size is not None:
                self._meant.setdefault(dim, size)

    # ------------------------------------------------------------------------------------------------------- shapes

    def _made(self, node: NodeProto) -> Sizes | None:
        if node.op_type == "Reshape":
            return self._reshaped(node)
        if node.op_type == "Expand":
            return _broadcast([self.shape(node.input[0]), self.contents.get(node.input[1])])
        if node.op_type in BROADCASTS:
            return _broadcast([self.shape(name) for name in node.input])
        if node.op_type == "MatMul":
            left, right = (self.shape(name) for name in node.input)
            if left is None or right is None or min(len(left), len(right)) < 2:
                return None
            above = _broadcast([left[:-2], right[:-2]])
            return None if above is None else (*above, left[-2], right[-1])
        return None

    def _reshaped(self, node: NodeProto) -> Sizes | None:
        given, asked = self.shape(node.input[0]), self.contents.get(node.input[1])
        if given is None or asked is None:
            return None
        copies = not attribute(node, "allowzero", 0)
        made = [
            (given[axis] if axis < len(given) else None) if size == Size(0) and copies else size
            for axis, size in enumerate(asked)
        ]
        if Size(-1) in made:
            total, rest = _product(given), _product([size for size in made if size != Size(-1)])
            left = None if total is None or rest is None else total.by(rest)
            made[made.index(Size(-1))] = left
        return tuple(made)

    # ------------------------------------------------------------------------------------------------------ vectors

    def _vector(self, node: NodeProto) -> Sizes | None:
        """What a vector of sizes, or one size, holds."""
        if node.op_type in ("Shape", "Size"):
            shape = self.shape(node.input[0])
            if shape is None:
                return None
            return shape[_window(node)] if node.op_type == "Shape" else (_product(shape),)
        rule = VECTORS.get(node.op_type)
        parts = [self.contents.get(name) for name in node.input if name]
        if rule is None or any(part is None for part in parts):
            return None
        return rule(node, [part for part in parts if part is not None])


def _bare(model: ModelProto) -> ModelProto:
    """The model without what its file says of the sizes of values and outputs: nobody checks that."""
    bare = ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for info in bare.graph.output:
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
    return bare


def _dims(info: ValueInfoProto) -> tuple[int | str | None, ...]:
    return tuple(
        (dim.dim_value if dim.dim_value >= 0 else None) if dim.HasField("dim_value") else dim.dim_param or None
        for dim in info.type.tensor_type.shape.dim
    )


def attribute(node: NodeProto, name: str, default: int) -> int:
    """A whole number of a node."""
    return next((int(item.i) for item in node.attribute if item.name == name), default)


def _window(node: NodeProto) -> slice:
    end = [int(item.i) for item in node.attribute if item.name == "end"]
    return slice(attribute(node, "start", 0), end[0] if end else None)


def _product(sizes: Sequence[Size | None]) -> Size | None:
    product = ONE
    for size in sizes:
        if size is None:
            return None
        product = product.times(size)
    return product


def _broadcast(shapes: Sequence[Sizes | None]) -> Sizes | None:
    """The shape that several broadcast to; a size is None where it can't be known."""
    if any(shape is None for shape in shapes):
        return None
    known = [shape for shape in shapes if shape is not None]
    rank = max(map(len, known))
    columns = zip(*((ONE,) * (rank - len(shape)) + shape for shape in known), strict=True)
    return tuple(_together(column) for column in columns)


def _together(column: Sequence[Size | None]) -> Size | None:
    wide = {size for size in column if size != ONE}
    numbers = [size for size in wide if size is not None and not size.names]
    if len(numbers) == 1 and numbers[0].factor > 1:
        return numbers[0]  # whatever the others are, they are that or 1
    return next(iter(wide), ONE) if len(wide) <= 1 else None


def _numbers(sizes: Sizes) -> list[int] | None:
    """Sizes without names as numbers; None where one has a name or is unknown."""
    plain = [size.factor for size in sizes if size is not None and not size.names]
    return plain if len(plain) == len(sizes) else None


def _gather(node: NodeProto, parts: list[Sizes]) -> Sizes | None:
    picked = _numbers(parts[1])
    if picked is None or any(not -len(parts[0]) <= one < len(parts[0]) for one in picked):
        return None
    return tuple(parts[0][one] for one in picked)


def _slice(node: NodeProto, parts: list[Sizes]) -> Sizes | None:
    said = [_numbers(part) for part in parts[1:]]
    if len(said) < 2 or any(one is None or len(one) != 1 for one in said):
        return None
    start, end, *more = [one[0] for one in said if one]
    step = more[1] if len(more) > 1 else 1
    return parts[0][slice(start, end, step)] if step > 0 else None


def _concat(node: NodeProto, parts: list[Sizes]) -> Sizes | None:
    return tuple(size for part in parts for size in part)


def _same(node: NodeProto, parts: list[Sizes]) -> Sizes | None:
    return parts[0]


def _cast(node: NodeProto, parts: list[Sizes]) -> Sizes | None:
    whole = attribute(node, "to", 0) in (TensorProto.INT64, TensorProto.INT32)
    return parts[0] if whole else None


def _pairs(calculate: Callable[[Size, Size], Size | None]) -> Callable[[NodeProto, list[Sizes]], Sizes | None]:
    def paired(node: NodeProto, parts: list[Sizes]) -> Sizes | None:
        count = max(map(len, parts))
        if len(parts) != 2 or any(len(part) not in (1, count) for part in parts):
            return None
        left, right = (part * count if len(part) == 1 else part for part in parts)
        return tuple(
            None if one is None or other is None else calculate(one, other)
            for one, other in zip(left, right, strict=True)
        )

    return paired


VECTORS: dict[str, Callable[[NodeProto, list[Sizes]], Sizes | None]] = {
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Unsqueeze": _same,
    "Squeeze": _same,
    "Identity": _same,
    "Cast": _cast,
    "Mul": _pairs(Size.times),
    "Div": _pairs(lambda one, other: one.by(other) if other.factor > 0 <= one.factor else None),
}
"""How a vector of sizes comes of others, by operator."""
