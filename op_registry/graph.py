"""What a graph tells of its nodes: element types, ranks, constants, attributes, and where a node came from.

Reads an ``onnx.ModelProto`` in memory and nothing else; no tensor's data is touched unless it is small.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from op_registry.conditions import Value

SMALL = 64
"""Constants of up to this many elements have their value read."""
MAIN_DOMAINS = ("", "ai.onnx")

Proto = Any
"""A protobuf message of onnx."""


@lru_cache(maxsize=1)
def type_names() -> Mapping[int, str]:
    """Element types by their number: ``1`` → ``float32``."""
    from onnx import TensorProto

    renamed = {"float": "float32", "double": "float64"}
    names = {number: name.lower() for name, number in TensorProto.DataType.items()}
    return {number: renamed.get(name, name) for number, name in names.items() if number}


class Scope:
    """Types, ranks and constants by name in one graph; a body sees its outer graph's.

    What a graph states is kept as it stands in the file and read when it is asked for; ``types`` holds what was read
    or follows from operators.
    """

    def __init__(self, outer: Scope | None = None, graph: Proto = None) -> None:
        self.types: dict[str, str] = {}
        self.outer = outer
        self.graph = graph

    @cached_property
    def infos(self) -> dict[str, Proto]:
        """What the graph states of its values, by name."""
        if self.graph is None:
            return {}
        return {
            info.name: info for group in (self.graph.value_info, self.graph.output, self.graph.input) for info in group
        }

    @cached_property
    def tensors(self) -> dict[str, Proto]:
        """The initializers, by name."""
        return {} if self.graph is None else {tensor.name: tensor for tensor in self.graph.initializer}

    @cached_property
    def constants(self) -> dict[str, Proto]:
        """Sparse initializers, and the Constant nodes that ``learn_scope`` adds, by name."""
        return {} if self.graph is None else {tensor.values.name: tensor for tensor in self.graph.sparse_initializer}

    def dtype(self, name: str) -> str:
        """The element type of a value, or nothing."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.types:
                return scope.types[name]
            if found := scope.stated(name):
                return found
            scope = scope.outer
        return ""

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The element type's number of each input, output and initializer of the graph; 0: no tensor."""
        if self.graph is None:
            return {}
        ends = [*self.graph.output, *self.graph.input]
        found = {info.name: info.type.tensor_type.elem_type for info in ends}
        found.update((tensor.name, tensor.data_type) for tensor in self.graph.initializer)
        return found

    def stated(self, name: str) -> str:
        """The element type that this graph itself states, kept for the next time."""
        number = self.numbers.get(name)
        if number is None:
            if name not in self.infos:
                return ""
            number = self.infos[name].type.tensor_type.elem_type
        found = type_names().get(number, "") if number else other_type(self.infos[name].type)
        self.types[name] = found
        return found

    def present(self, *, all_stated: bool = False) -> set[str]:
        """The element types that come into this graph from outside; ``all_stated``: and all that it states."""
        kinds = {info.type.tensor_type.elem_type for info in self.infos.values()} if all_stated else set()
        numbers = kinds | set(self.numbers.values())
        found = {type_names().get(number, "") for number in numbers} | set(self.types.values())
        if 0 in numbers:
            found |= {other_type(info.type) for info in self.infos.values()}
        return (found | (self.outer.present() if self.outer is not None else set())) - {""}

    def rank(self, name: str) -> int | None:
        """The rank of a value, where it is known."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.tensors:
                return len(scope.tensors[name].dims)
            if name in scope.infos:
                kind = scope.infos[name].type
                known = kind.HasField("tensor_type") and kind.tensor_type.HasField("shape")
                return len(kind.tensor_type.shape.dim) if known else None
            scope = scope.outer
        return None

    def constant(self, name: str) -> Proto | None:
        """The tensor behind a constant value (a node for a Constant without one), or None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.tensors.get(name) or scope.constants.get(name)
            if found is not None:
                return found
            scope = scope.outer
        return None


def other_type(kind: Proto) -> str:
    """``seq(tensor(float))`` and its like; nothing where the type isn't stated."""
    names = {value: key for key, value in (("float", "float32"), ("double", "float64"))}
    if kind.HasField("sequence_type"):
        return f"seq({other_type(kind.sequence_type.elem_type)})"
    if kind.HasField("optional_type"):
        return f"optional({other_type(kind.optional_type.elem_type)})"
    if kind.HasField("tensor_type"):
        plain = type_names().get(kind.tensor_type.elem_type, "")
        return f"tensor({names.get(plain, plain)})"
    return ""


class Node:
    """The facts of one node, read when they are asked for (see ``conditions.NodeFacts``)."""

    __slots__ = ("_attributes", "inputs", "outputs", "proto", "scope")

    def __init__(self, proto: Proto, scope: Scope) -> None:
        self.proto = proto
        self.scope = scope
        self.inputs = list(proto.input)
        self.outputs = list(proto.output)
        self._attributes: dict[str, Proto] | None = None

    def attribute(self, name: str) -> Value:
        """A written attribute's value; True where it is a tensor or a graph; None where it isn't written."""
        if self._attributes is None:
            self._attributes = {item.name: item for item in self.proto.attribute}
        found = self._attributes.get(name)
        return None if found is None else attribute_value(found)

    def count(self, of: str) -> int:
        """How many inputs or outputs are written, up to the last that isn't empty."""
        names = self.inputs if of == "inputs" else self.outputs
        return next((index + 1 for index in reversed(range(len(names))) if names[index]), 0)

    def written(self, of: str, index: int) -> bool:
        """Whether an input or output is written."""
        names = self.inputs if of == "input" else self.outputs
        return index < len(names) and bool(names[index])

    def constant(self, index: int) -> bool:
        """Whether an input is an initializer or comes from a Constant node."""
        return self.scope.constant(self.inputs[index]) is not None

    def value(self, index: int) -> Value:
        """The value of a small constant input."""
        found = self.scope.constant(self.inputs[index])
        return None if found is None else constant_value(found)

    def dtype(self, place: str) -> str:
        """The element type of an input (``0``) or output (``o0``)."""
        names, index = (self.outputs, place[1:]) if place[0] == "o" else (self.inputs, place)
        number = int(index)
        return self.scope.dtype(names[number]) if number < len(names) and names[number] else ""

    def rank(self, index: int) -> int | None:
        """The rank of an input, where it is known."""
        return self.scope.rank(self.inputs[index]) if index < len(self.inputs) else None


def attribute_value(item: Proto) -> Value:
    """A plain value of an attribute; True for tensors, graphs and types."""
    kind = item.type
    if kind == 2:
        return int(item.i)
    if kind == 3:
        return str(item.s.decode("utf-8", "replace"))
    if kind == 1:
        return float(item.f)
    if kind == 7:
        return list(item.ints)
    if kind == 6:
        return list(item.floats)
    if kind == 8:
        return [text.decode("utf-8", "replace") for text in item.strings]
    return True


def constant_value(found: Proto) -> Value:
    """The value of an initializer or a Constant node, where it is small and lies in the file itself."""
    if found.DESCRIPTOR.name == "NodeProto":
        found = next(iter(found.attribute), None)
        if found is None or found.type != 4:
            return None if found is None else attribute_value(found)
        found = found.t
    if found.DESCRIPTOR.name != "TensorProto" or found.data_location == 1:
        return None
    size = 1
    for dim in found.dims:
        size *= dim
    if size > SMALL or found.data_type == 8:
        return None
    from onnx import numpy_helper

    try:
        values: list[int | float] = numpy_helper.to_array(found).reshape(-1).tolist()
    except (ValueError, TypeError):
        return None
    if not all(isinstance(item, int | float) for item in values):
        return None
    return values if found.dims else values[0]


def attribute_bytes(node: Proto) -> bytes:
    """The attributes of a node as bytes, found by walking over the fields of its message.

    Reading attributes one by one costs many times more; equal bytes mean equal attributes.
    """
    data: bytes = node.SerializeToString()
    start = stop = place = 0
    end = len(data)
    while place < end:
        tag = data[place]
        length = data[place + 1]
        body = place + 2
        if length > 127:
            length, body = _varint(data, place + 1)
        following = body + length
        if tag == ATTRIBUTE_TAG:
            start, stop = start or place, following
        elif stop:
            break
        place = following
    return data[start:stop]


ATTRIBUTE_TAG = 0x2A
"""Field 5 of NodeProto, length-delimited. All fields of a node are length-delimited and come in order."""


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 128:
            return value, place
        shift += 7


def module_path(node: Proto) -> str:
    """The path of the PyTorch module that a node came from, where the exporter left it; empty otherwise.

    torch's dynamo exporter writes ``pkg.torch.onnx.name_scopes`` (a list, outermost first, the node itself last) and
    ``namespace``; its TorchScript exporter puts the path into the node's name (``/layer1/layer1.0/conv1/Conv``).
    """
    props = node.metadata_props
    if props and (path := _path_in({item.key: item.value for item in props})):
        return path
    name: str = node.name
    return _path_of(name.split("/")[1:-1]) if name[:1] == "/" else ""


def _path_in(written: Mapping[str, str]) -> str:
    scopes = written.get("pkg.torch.onnx.name_scopes", "")
    if scopes and len(scopes) < LONGEST_SCOPES:
        try:
            names = ast.literal_eval(scopes)
        except (ValueError, SyntaxError):
            names = []
        if isinstance(names, list) and len(names) > 1:
            return str(names[-2])
    parts = [part.split(": ")[0] for part in written.get("namespace", "")[:LONGEST_SCOPES].split("/")]
    return next((part for part in reversed(parts[:-1]) if part), "")


LONGEST_SCOPES = 4096


def _path_of(parts: Sequence[str]) -> str:
    if len(parts) == 1:
        return parts[0]
    path: list[str] = []
    for part in parts:
        if path and part.startswith(path[-1] + "."):
            path[-1] = part
        else:
            path.append(part)
    return ".".join(path)
