"""What is known of the values of a graph: types and shapes by ONNX's inference, contents where they are constant."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto, TypeProto, numpy_helper

from convert.lowering import constants

LIMIT = 1 << 16
"""Constants of more elements than this are not looked into."""


class Scope:
    """The values of one graph; names that it does not define are looked up in the graph around it."""

    def __init__(self, parent: Scope | None = None, *, is_function: bool = False, old_ir: bool = False) -> None:
        self.parent = parent
        self.is_function: bool = is_function or (parent is not None and parent.is_function)
        self.old_ir: bool = old_ir or (parent is not None and parent.old_ir)
        self.types: dict[str, TypeProto] = {}
        self.tensors: dict[str, TensorProto] = {}
        self.makers: dict[str, NodeProto] = {}
        self.inputs: set[str] = set()
        self.known: dict[str, np.ndarray | None] = {}

    def add_nodes(self, nodes: Iterable[NodeProto]) -> None:
        """Take up the nodes that make values here."""
        for node in nodes:
            self.makers.update((name, node) for name in node.output if name)

    def defines(self, name: str) -> Scope | None:
        """The scope that defines a name, this one or one around it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.makers or name in scope.inputs or name in scope.tensors:
                return scope
            scope = scope.parent
        return None

    def type_of(self, name: str) -> TypeProto | None:
        """The type of a value, or None where it is not known."""
        scope = self.defines(name) or self
        if name in scope.types:
            return scope.types[name]
        if name in scope.tensors:
            tensor = scope.tensors[name]
            return onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        return None

    def dtype(self, name: str) -> int:
        """The element type of a tensor value; 0 where it is not known or the value is no tensor."""
        found = self.type_of(name)
        return found.tensor_type.elem_type if found is not None and found.HasField("tensor_type") else 0

    def shape(self, name: str) -> tuple[int | None, ...] | None:
        """The shape of a tensor value, None for a symbolic dimension; None where not even the rank is known."""
        found = self.type_of(name)
        if found is None or not found.HasField("tensor_type") or not found.tensor_type.HasField("shape"):
            constant = self.known.get(name)
            return None if constant is None else constant.shape
        dims = found.tensor_type.shape.dim
        return tuple(d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in dims)

    def symbol(self, name: str, axis: int) -> str:
        """The name of a symbolic dimension, empty where it has none."""
        found = self.type_of(name)
        if found is None or not found.HasField("tensor_type") or axis >= len(found.tensor_type.shape.dim):
            return ""
        return str(found.tensor_type.shape.dim[axis].dim_param)

    def const(self, name: str) -> np.ndarray | None:
        """The content of a value that does not depend on the inputs, where it is small and simple to know."""
        scope = self.defines(name)
        if scope is None:
            return None
        if name not in scope.known:
            scope.known[name] = None
            scope.known[name] = scope._evaluate(name)
        return scope.known[name]

    def _evaluate(self, name: str) -> np.ndarray | None:
        if name in self.tensors:
            overridable = name in self.inputs and not self.old_ir
            return None if overridable else small_array(self.tensors[name])
        node = self.makers.get(name)
        return None if node is None else constants.evaluate(node, self)


def small_array(tensor: TensorProto) -> np.ndarray | None:
    """A tensor's content, or None where it is big or lies outside of the model."""
    if tensor.data_location == TensorProto.EXTERNAL or int(np.prod(list(tensor.dims), dtype=np.int64)) > LIMIT:
        return None
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError):
        # Its data do not fit its type and shape: `sound.py` says so where it matters.
        return None


def scope_of(graph: GraphProto, parent: Scope | None = None, *, old_ir: bool = False) -> Scope:
    """What is known of a graph after inference; value infos of the graph are believed."""
    scope = Scope(parent, old_ir=old_ir)
    for info in (*graph.value_info, *graph.output, *graph.input):
        if info.HasField("type"):
            scope.types[info.name] = info.type
    scope.inputs = {info.name for info in graph.input}
    scope.tensors = {tensor.name: tensor for tensor in graph.initializer}
    scope.add_nodes(graph.node)
    return scope


def function_scope(function: onnx.FunctionProto) -> Scope:
    """What is known inside a local function: what makes what, but no types."""
    scope = Scope(is_function=True)
    scope.inputs = set(function.input)
    scope.add_nodes(function.node)
    return scope
