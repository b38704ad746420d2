"""What a rule sees: one node, what is known of its values, and a way to write the nodes that take its place."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from convert.lowering import schemas
from convert.lowering.facts import Scope

ATTRIBUTE_TYPES = {name: int(number) for name, number in onnx.AttributeProto.AttributeType.items()}
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


MAX_WRITTEN = 1 << 24
"""Elements of a constant that a rule writes at most; sizes come from the file, and memory is ours."""


class Refuse(Exception):
    """A rule says that a node has no equivalent, and why. Collected by the engine."""


def room_for(*sizes: int) -> None:
    """Refuse to write a constant of these sizes where it is too large, or a size is below zero."""
    if any(size < 0 for size in sizes) or math.prod(int(size) for size in sizes) > MAX_WRITTEN:
        raise Refuse(f"it needs a constant of {' x '.join(map(str, sizes))} elements")


@contextmanager
def as_defined(node: NodeProto) -> Iterator[None]:
    """Around a rule: a node that contradicts its operator's definition is refused.

    A rule relies on what the definition says of inputs, attributes and bodies. ONNX's checker does not hold all of it
    against a file (a Scan whose body lacks an input, pads for fewer axes than there are), and a rule that trips over it
    has no equivalent to offer.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        told = " ".join(str(error).split())[:160]
        raise Refuse(f"{node.op_type} does not hold what its definition asks for ({told})") from error


class Names:
    """Hands out value and node names that the model does not use."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken
        self.counts: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """A name that starts with ``stem`` and that nothing else has."""
        while True:
            count = self.counts[stem] = self.counts.get(stem, 0) + 1
            name = f"{stem}_{count}"
            if name not in self.taken:
                self.taken.add(name)
                return name


class Site:
    """A node to replace, of an operator's ``version``. Whatever is written must be valid at ``opset``."""

    def __init__(self, node: NodeProto, scope: Scope, names: Names, opset: int, version: int = 0) -> None:
        self.version = version or opset
        self.node = node
        self.scope = scope
        self.names = names
        self.opset = opset
        self.nodes: list[NodeProto] = []
        self.stem = (node.name or next(filter(None, node.output), "") or node.op_type).strip()

    # ------------------------------------------------------------------------------------------------ the node as it is

    def has(self, index: int) -> bool:
        """Whether an optional input is given."""
        return index < len(self.node.input) and bool(self.node.input[index])

    def inp(self, index: int) -> str:
        """An input's name, empty where it is not given."""
        return self.node.input[index] if index < len(self.node.input) else ""

    def wants(self, index: int) -> bool:
        """Whether an output is asked for."""
        return index < len(self.node.output) and bool(self.node.output[index])

    def out(self, index: int = 0) -> str:
        """An output's name; a fresh one where the output is not asked for."""
        return self.node.output[index] if self.wants(index) else self.names.fresh(self.stem)

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute's value (text as ``str``), or the default."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                if attribute.ref_attr_name:
                    raise Refuse(f"attribute {name} refers to an attribute of the function around it")
                value = helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return default

    # -------------------------------------------------------------------------------------- what is known of values

    def dtype(self, name: str) -> int:
        """The element type of a value; refuses where it is not known."""
        found = self.scope.dtype(name)
        if not found:
            raise Refuse(f"the type of '{name}' is not known")
        return found

    def rank(self, name: str) -> int:
        """The rank of a value; refuses where it is not known."""
        return len(self.dims(name))

    def dims(self, name: str) -> tuple[int | None, ...]:
        """The shape of a value, None for a symbolic dimension; refuses where the rank is not known."""
        found = self.scope.shape(name)
        if found is None:
            raise Refuse(f"the rank of '{name}' is not known")
        return found

    def fixed(self, name: str) -> tuple[int, ...]:
        """The shape of a value; refuses where a dimension is not known."""
        found = self.dims(name)
        if any(dim is None for dim in found):
            raise Refuse(f"the shape of '{name}' is not fixed")
        return tuple(dim for dim in found if dim is not None)

    def const(self, name: str) -> np.ndarray | None:
        """A value's content where it is constant and small."""
        return self.scope.const(name) if name else None

    def ints(self, index: int, what: str) -> list[int]:
        """A constant integer input as a list; refuses where it is computed by the model."""
        value = self.const(self.inp(index))
        if value is None:
            raise Refuse(f"{what} is computed while the model runs, and must be constant at opset {self.opset}")
        return [int(item) for item in value.reshape(-1)]

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from the front."""
        return value + rank if value < 0 else value

    # ---------------------------------------------------------------------------------------------------- writing

    def emit(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """Write a node. Attributes that are None are left out; trailing empty inputs and outputs are cut."""
        if schemas.schema(op, self.opset) is None:
            raise Refuse(f"it needs {op}, which opset {self.opset} does not have")
        ins, outs = list(inputs), list(outputs)
        while ins and not ins[-1]:
            ins.pop()
        while len(outs) > 1 and not outs[-1]:
            outs.pop()
        given = {key: value for key, value in attributes.items() if value is not None}
        node = helper.make_node(op, ins, outs, name=self.names.fresh(f"{self.stem}/{op}"))
        node.attribute.extend(_attribute(op, self.opset, key, given[key]) for key in sorted(given))
        node.doc_string = self.node.doc_string
        node.metadata_props.extend(self.node.metadata_props)
        self.nodes.append(node)

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Write a node with one new output and return that output's name."""
        output = self.names.fresh(f"{self.stem}/{op}_value")
        self.emit(op, inputs, [output], **attributes)
        return output

    def end(self, op: str, *inputs: str, **attributes: Any) -> None:
        """Write the node that makes the first output of the node being replaced."""
        self.emit(op, inputs, [self.out(0)], **attributes)

    def end_as(self, name: str, index: int = 0) -> None:
        """Let an output of the node being replaced be a value already there; nothing where it is not asked for."""
        if self.wants(index):
            self.emit("Identity", [name], [self.node.output[index]])

    def same(self, inputs: Sequence[str] | None = None, *, drop: Sequence[str] = (), **attributes: Any) -> NodeProto:
        """Write the node itself again, with other inputs and attributes; returns the written node."""
        node = NodeProto()
        node.CopyFrom(self.node)
        if inputs is not None:
            del node.input[:]
            node.input.extend(inputs)
        while node.input and not node.input[-1]:
            node.input.pop()
        gone = {*drop, *attributes}
        kept = [attribute for attribute in node.attribute if attribute.name not in gone]
        del node.attribute[:]
        node.attribute.extend(kept)
        new = {key: value for key, value in attributes.items() if value is not None}
        node.attribute.extend(_attribute(node.op_type, self.opset, key, new[key]) for key in sorted(new))
        self.nodes.append(node)
        return node

    def tensor(self, array: np.ndarray) -> str:
        """A constant with an array's content and type."""
        return self.op("Constant", value=numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape)))

    def longs(self, *values: int) -> str:
        """A constant int64 vector."""
        return self.tensor(np.array(values, dtype=np.int64))

    def long(self, value: int) -> str:
        """A constant int64 scalar."""
        return self.tensor(np.array(value, dtype=np.int64))

    def tensor_of_no_dims(self) -> str:
        """The shape of a scalar."""
        return self.tensor(np.zeros(0, dtype=np.int64))

    def scalar(self, value: float, dtype: int) -> str:
        """A constant scalar of an ONNX element type."""
        return self.op("Constant", value=helper.make_tensor("value", dtype, [], [value]))

    def cast(self, name: str, dtype: int) -> str:
        """A value in another element type."""
        return self.op("Cast", name, to=dtype)

    # --------------------------------------------------------- operators whose axes are attributes or inputs by version

    def reduce(self, op: str, name: str, axes: Sequence[int], keepdims: int = 1) -> str:
        """A reduction over fixed axes (at least one)."""
        if self.opset >= (13 if op == "ReduceSum" else 18):
            return self.op(op, name, self.longs(*axes), keepdims=keepdims)
        return self.op(op, name, axes=list(axes), keepdims=keepdims)

    def unsqueeze(self, name: str, *axes: int) -> str:
        """A value with dimensions of one put in."""
        if self.opset >= 13:
            return self.op("Unsqueeze", name, self.longs(*axes))
        return self.op("Unsqueeze", name, axes=list(axes))

    def squeeze(self, name: str, *axes: int) -> str:
        """A value with dimensions of one taken out."""
        if self.opset >= 13:
            return self.op("Squeeze", name, self.longs(*axes))
        return self.op("Squeeze", name, axes=list(axes))

    def slice(self, name: str, start: str, end: str, axis: int, step: str = "") -> str:
        """A part of a value along one axis; start, end and step are int64 vectors of one."""
        return self.op("Slice", name, start, end, self.longs(axis), step)

    def dim(self, name: str, axis: int) -> str:
        """The size of one dimension as an int64 vector of one."""
        size = (self.scope.shape(name) or ())[axis : axis + 1 or None]
        if size and size[0] is not None:
            return self.longs(size[0])
        return self.op("Gather", self.op("Shape", name), self.longs(axis), axis=0)

    def reshape(self, name: str, *sizes: int) -> str:
        """A value in another shape, in the meaning of Reshape (0 keeps, -1 is worked out)."""
        return self.op("Reshape", name, self.longs(*sizes))

    def softmax(self, name: str) -> str:
        """Softmax along the last axis, the same in every version."""
        return self.op("Softmax", name, axis=-1)

    def split(self, name: str, sizes: Sequence[int], axis: int) -> list[str]:
        """The parts of a value, of fixed sizes along an axis."""
        outputs = [self.names.fresh(f"{self.stem}/Split_value") for _ in sizes]
        if self.opset >= 13:
            self.emit("Split", [name, self.longs(*sizes)], outputs, axis=axis)
        else:
            self.emit("Split", [name], outputs, axis=axis, split=list(sizes))
        return outputs

    # -------------------------------------------------------------------------------------------------- subgraphs

    def inner(self) -> Site:
        """A place to write the nodes of a subgraph, seeing the same values."""
        return Site(self.node, self.scope, self.names, self.opset, self.version)

    def branch(self, outputs: Sequence[str], inputs: Sequence[onnx.ValueInfoProto] = ()) -> GraphProto:
        """What was written here as a graph."""
        infos = [onnx.ValueInfoProto(name=name) for name in outputs]
        return helper.make_graph(self.nodes, self.names.fresh(f"{self.stem}/graph"), list(inputs), infos)

    def choose(self, condition: str, yes: tuple[Site, str], no: tuple[Site, str]) -> str:
        """An If over two branches, each a place and the value that it makes there, of one element type."""
        branches = []
        for place, name in (yes, no):
            output = place.names.fresh(f"{self.stem}/branch")
            place.emit("Identity", [name], [output])
            branches.append(place.branch([output]))
        return self.op("If", condition, then_branch=branches[0], else_branch=branches[1])


def _attribute(op: str, opset: int, name: str, value: Any) -> onnx.AttributeProto:
    """An attribute of the type that the schema says, so that an empty list and a float given as int come out right."""
    found = schemas.schema(op, opset)
    declared = found.attributes.get(name) if found is not None else None
    if declared is None:
        return helper.make_attribute(name, value)
    kind = ATTRIBUTE_TYPES[str(declared.type).rpartition(".")[2]]
    if kind in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS):
        value = [float(v) for v in value] if kind == onnx.AttributeProto.FLOATS else float(value)
    return helper.make_attribute(name, value, attr_type=kind)
