"""The values of a graph while it is cast: which types each exists in, and under which name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onnx import GraphProto, NodeProto, TensorProto, helper

from convert.precision.policy import Choice
from convert.walking import graphs_in

SUFFIX = {
    "tensor(float)": "fp32",
    "tensor(float16)": "fp16",
    "tensor(bfloat16)": "bf16",
    "tensor(double)": "fp64",
}


def type_text(number: int) -> str:
    """``tensor(float)`` for ``TensorProto.FLOAT``; empty for 0."""
    return f"tensor({TensorProto.DataType.Name(number).lower()})" if number else ""


def type_number(text: str) -> int:
    """``TensorProto.FLOAT`` for ``tensor(float)``."""
    return int(TensorProto.DataType.Value(text.removeprefix("tensor(").removesuffix(")").upper()))


class Names:
    """Names that nothing in the model has."""

    def __init__(self, graph: GraphProto) -> None:
        self.taken: set[str] = set()
        for inner in graphs_in(graph):
            self.taken |= {value.name for value in (*inner.input, *inner.output, *inner.initializer)}
            self.taken |= {name for node in inner.node for name in (*node.output, node.name)}

    def fresh(self, wanted: str) -> str:
        """``wanted``, or that with a number."""
        name, number = wanted, 1
        while name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self.taken.add(name)
        return name


class Scope:
    """One graph's values. Names that it does not define are those of the graph around it."""

    def __init__(self, graph: GraphProto, parent: Scope | None, names: Names) -> None:
        self.parent = parent
        self.names = names
        self.types: dict[str, str] = {}
        self.places: dict[str, dict[Choice, str]] = {}
        self.weights = {tensor.name: tensor for tensor in graph.initializer}
        self.wanted: dict[str, dict[str, str]] = {}
        """Weight → type → the name it is to have in that type."""
        self.outputs = {value.name for value in graph.output}
        self.declared = {
            value.name: type_text(value.type.tensor_type.elem_type)
            for value in (*graph.value_info, *graph.output)
            if value.type.HasField("tensor_type")
        }
        self.stored: dict[str, str] = {}
        """Values of this graph that are stored in another type now."""
        self.nodes: list[NodeProto] = []
        self.casts = 0
        for value in graph.input:
            self.define(value.name, type_text(value.type.tensor_type.elem_type))
        for name, tensor in self.weights.items():
            self.types[name] = type_text(tensor.data_type)
            self.places.pop(name, None)
        for sparse in graph.sparse_initializer:
            self.define(sparse.values.name, type_text(sparse.values.data_type))

    def define(self, name: str, kind: str, *, stored: str = "", place: str = "") -> None:
        """A value of original type ``kind``, lying in type ``stored`` under the name ``place``."""
        self.types[name] = kind
        lies = stored or kind
        self.places.setdefault(name, {})[Choice(lies, lies)] = place or name
        if lies != kind and (place or name) == name:
            self.stored[name] = lies

    def define_rounded(self, name: str, kind: str, choice: Choice) -> None:
        """A value that lies in its original type and holds numbers of the type ``choice.storage`` alone."""
        self.define(name, kind)
        self.places[name][choice] = name

    def definer(self, name: str) -> Scope | None:
        """The scope that defines a name, this one or one around it."""
        scope: Scope | None = self
        while scope is not None and name not in scope.types:
            scope = scope.parent
        return scope

    def type_of(self, name: str) -> str:
        """The original type of a value; empty where it is not known."""
        scope = self.definer(name)
        return scope.types[name] if scope is not None else ""

    def get(self, name: str, choice: Choice) -> str:
        """The name under which a value lies in a type, having passed through its storage type.

        What is missing is cast where the value is defined, so that a loop does not cast it in every turn.
        """
        scope = self.definer(name)
        if scope is None or not scope.types[name]:
            return name
        return scope._get(name, choice)

    def _get(self, name: str, choice: Choice) -> str:
        places = self.places.setdefault(name, {})
        if choice in places:
            return places[choice]
        base = Choice(choice.storage, choice.storage)
        if choice != base:
            places[choice] = self.cast(self._get(name, base), choice.compute, name)
        elif name in self.weights:
            places[base] = self._weight(name, choice.storage)
        else:
            # The first place is the one that the value's own node wrote.
            source = next(iter(places.values()))
            places[base] = self.cast(source, choice.storage, name)
        return places[choice]

    def _weight(self, name: str, kind: str) -> str:
        """The name of a weight in a type. Its own name goes to the cast one, or stays where the graph gives it out."""
        wanted = self.wanted.setdefault(name, {})
        if kind not in wanted:
            own = (kind == self.types[name]) == (name in self.outputs) and name not in wanted.values()
            wanted[kind] = name if own else self.names.fresh(f"{name}_{SUFFIX.get(kind, 'cast')}")
        return wanted[kind]

    def cast(self, source: str, kind: str, name: str, *, to: str = "") -> str:
        """Append a Cast of ``source``; its output is ``to``, or a new name after ``name``."""
        output = to or self.names.fresh(f"{name}_{SUFFIX.get(kind, 'cast')}")
        node_name = self.names.fresh(f"Cast_{output}")
        self.nodes.append(helper.make_node("Cast", [source], [output], name=node_name, to=type_number(kind)))
        self.casts += 1
        return output

    def settled_weights(self) -> list[tuple[TensorProto, str, str]]:
        """The weights that the graph needs: tensor, type and name, once all nodes are in ``nodes``.

        Those used in their original type alone get their own name back.
        """
        alone = {name: self.types[name] for name, wanted in self.wanted.items() if list(wanted) == [self.types[name]]}
        _rename(self.nodes, {self.wanted[name][kind]: name for name, kind in alone.items()})
        for name, kind in alone.items():
            self.wanted[name][kind] = name
        return [(self.weights[name], kind, place) for name in self.wanted for kind, place in self.wanted[name].items()]


def _rename(nodes: Iterable[NodeProto], names: Mapping[str, str]) -> None:
    """Rename inputs of nodes, those of graphs inside them included."""
    for node in nodes:
        for index, name in enumerate(node.input):
            if name in names:
                node.input[index] = names[name]
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                _rename(graph.node, names)
