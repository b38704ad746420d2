"""Probes: outputs that tell a few elements and the range of many tensors, without holding the tensors.

A tensor of known and small size is given out whole. Of a larger one some elements are gathered, spread over all of it,
and its norm is taken, which bounds every element (or, where that is asked for, its lowest and highest element): a few
nodes whose cost is a fraction of what made the tensor. What is of one shape and type comes out of the graph joined, so
that thousands of tensors cost a few outputs. Tensors whose size is not known come out one by one; those of bodies, too:
of their Loop or Scan with one row for each turn, of their If empty where the other branch was taken.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from convert.arrays import Array
from convert.precision.policy import F16, F32, F64
from convert.precision.scope import Names
from convert.precision.shapes import Shape
from convert.walking import subgraphs

IN_BODY = 64
"""Elements gathered of a tensor of a body, for each turn."""
RUN = 16
"""Elements gathered from one place of a large tensor: a cache line of float32."""
NUMPY_HAS = frozenset({F32, F16, F64})

JOINED_AT = 2048
"""So many tensors are joined as soon as they are there: small ones that all wait for the end leave the caches."""

Part = Literal["sample", "norm", "low", "high"]
Looks = Literal["elements", "norms", "ranges"]
"""What is taken of each tensor beside some elements."""


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """One output that holds the same part of many tensors, ``size`` elements of each."""

    part: Part
    output: str
    tensors: tuple[str, ...]
    size: int


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor's own outputs, by name. Empty: not asked for. ``low`` and ``high`` are of the whole tensor."""

    tensor: str
    sample: str
    norm: str = ""
    low: str = ""
    high: str = ""


class Probes(msgspec.Struct, frozen=True, kw_only=True):
    """What was added to a model: outputs of many tensors, and outputs of one tensor each."""

    joined: tuple[Joined, ...] = ()
    single: tuple[Probe, ...] = ()


NO_LESS: Mapping[str, float] = {
    **dict.fromkeys(("Relu", "Abs", "Sqrt", "Exp", "Sigmoid", "Softmax", "Softplus"), 0.0),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare"), 0.0),
    **dict.fromkeys(("Tanh", "Erf", "Sin", "Cos", "Softsign"), -1.0),
}
NO_MORE: Mapping[str, float] = dict.fromkeys(("Sigmoid", "Softmax", "Tanh", "Erf", "Sin", "Cos", "Softsign"), 1.0)
"""Bounds that an operator keeps by itself: there the tensor need not be searched for its extremes."""


@dataclass(slots=True)
class _Found:
    """A tensor's parts in the graph that is being walked; ``shapes``: of the parts, where they can be joined."""

    tensor: str
    parts: dict[Part, str]
    kind: str = F32
    shapes: dict[Part, Shape] | None = None


class Prober:
    """Adds probes to models that have the same tensors.

    ``shapes``: of the tensors, where they are known. ``elements``: how many are gathered of each. ``bounded``:
    tensors whose norm is not needed.
    """

    def __init__(self, shapes: Mapping[str, Shape], elements: int, bounded: Collection[str] = ()) -> None:
        self.shapes = shapes
        self.sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        self.elements = elements
        self.bounded = bounded

    def is_whole(self, name: str) -> bool:
        """Whether all elements of a tensor of the main graph are given out."""
        return 0 < self.sizes.get(name, 0) <= self.elements

    def add(
        self,
        model: ModelProto,
        wanted: Collection[str],
        *,
        looks: Looks = "ranges",
        kinds: Mapping[str, str] | None = None,
    ) -> Probes:
        """Add outputs for the tensors ``wanted`` (in place). ``kinds``: types of those that are not float32."""
        walk = _Walk(self, model, wanted, looks=looks, kinds=kinds or {})
        found = walk.graph(model.graph, body=False)
        single = [one for one in found if one.shapes is None]
        for one in single:
            model.graph.output.extend(ValueInfoProto(name=name) for name in one.parts.values())
        return Probes(joined=tuple(walk.joined), single=tuple(Probe(tensor=one.tensor, **one.parts) for one in single))


_Group = tuple[Part, Shape, str]
"""A part, its shape and its type."""


class _Walk:
    def __init__(
        self, prober: Prober, model: ModelProto, wanted: Collection[str], *, looks: Looks, kinds: Mapping[str, str]
    ) -> None:
        self.prober = prober
        self.wanted = frozenset(wanted)
        self.looks = looks
        self.kinds = kinds
        self.names = Names(model.graph)
        self.main = model.graph
        self.shared: dict[tuple[str, int], str] = {}
        self.joined: list[Joined] = []
        self.waiting: dict[_Group, list[_Found]] = {}
        """Parts of one shape and type that are not joined yet."""

    def constant(self, kind: str, size: int, array: Array) -> str:
        """The name of a constant of the main graph, made once."""
        if (kind, size) not in self.shared:
            name = self.names.fresh(f"probe_{kind}_{size}")
            self.main.initializer.append(numpy_helper.from_array(array, name))
            self.shared[kind, size] = name
        return self.shared[kind, size]

    def graph(self, graph: GraphProto, *, body: bool) -> list[_Found]:
        found: list[_Found] = []
        nodes: list[NodeProto] = []
        for node in graph.node:
            nodes.append(node)
            if subgraphs(node):
                found += self._control(node)
            for name in node.output:
                if name in self.wanted:
                    added, one = self._probe(name, node.op_type, body=body)
                    nodes += added
                    found.append(one)
                    if one.shapes is not None:
                        nodes += self._wait(one)
        if not body:
            nodes += [node for group in list(self.waiting) for node in self._join(group)]
        if len(nodes) != len(graph.node):
            copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
            del graph.node[:]
            graph.node.extend(copies)
        return found

    def _wait(self, one: _Found) -> Iterator[NodeProto]:
        """Let a tensor's parts wait for others, and join those that are enough."""
        for part, shape in (one.shapes or {}).items():
            group = part, shape, one.kind
            self.waiting.setdefault(group, []).append(one)
            if len(self.waiting[group]) >= JOINED_AT:
                yield from self._join(group)

    def _join(self, group: _Group) -> Iterator[NodeProto]:
        """Join what waits of one shape and type, and give it out."""
        part, shape, kind = group
        members = self.waiting.pop(group)
        output = made = self.names.fresh(f"probes_{part}_{len(self.main.output)}")
        if kind not in NUMPY_HAS:
            made = self.names.fresh(f"{output}_narrow")
        yield helper.make_node("Concat", [one.parts[part] for one in members], [made], axis=0)
        if made != output:
            yield helper.make_node("Cast", [made], [output], to=TensorProto.FLOAT)
        self.main.output.append(ValueInfoProto(name=output))
        tensors = tuple(one.tensor for one in members)
        self.joined.append(Joined(part=part, output=output, tensors=tensors, size=math.prod(shape)))

    # ------------------------------------------------------------------------------------------------------ one tensor

    def _probe(self, name: str, op: str, *, body: bool) -> tuple[list[NodeProto], _Found]:
        if body or not self.prober.sizes.get(name, 0):
            return self._unknown(name, op, body=body)
        if self.prober.is_whole(name):
            return self._whole(name)
        size, kind = self.prober.sizes[name], self.kinds.get(name, F32)
        flat, prefix = self.constant("flat", 1, np.array([-1], np.int64)), self.names.fresh(f"probe_{name}")
        spread, shape = self._places(size)
        rows = f"{prefix}_flat"
        nodes = []
        if len(shape) > 1:
            rows = f"{prefix}_rows"
            by = self.constant("by", shape[1], np.array([-1, shape[1]], np.int64))
            nodes.append(helper.make_node("Reshape", [name, by], [rows]))
        nodes.append(helper.make_node("Gather", [rows, spread], [f"{prefix}_sample"]))
        parts: dict[Part, str] = {"sample": f"{prefix}_sample"}
        shapes: dict[Part, Shape] = {"sample": shape}
        reductions = list(self._reductions(op, name))
        if reductions or len(shape) == 1:
            nodes.insert(0, helper.make_node("Reshape", [name, flat], [f"{prefix}_flat"]))
        for part, reduce in reductions:
            parts[part], shapes[part] = f"{prefix}_{part}", (1,)
            nodes.append(helper.make_node(reduce, [f"{prefix}_flat"], [parts[part]], keepdims=1))
        return nodes, _Found(name, parts, kind, shapes)

    def _places(self, size: int) -> tuple[str, Shape]:
        """A constant that says where elements are gathered, and the shape of what is: runs where they fit."""
        count = self.prober.elements
        if size % RUN or count < 2 * RUN:
            return self.constant("spread", size, spread_over(size, count)), (count,)
        runs = count // RUN
        return self.constant("runs", size, spread_over(size // RUN, runs)), (runs, RUN)

    def _reductions(self, op: str, name: str) -> Iterator[tuple[Part, str]]:
        """What is taken of the whole tensor, but for bounds that its operator keeps by itself."""
        if self.looks == "norms":
            if name not in self.prober.bounded:
                yield "norm", "ReduceL2"
        elif self.looks == "ranges":
            yield from (("low", "ReduceMin"),) if op not in NO_LESS else ()
            yield from (("high", "ReduceMax"),) if op not in NO_MORE else ()

    def _whole(self, name: str) -> tuple[list[NodeProto], _Found]:
        shape, kind, nodes = self.prober.shapes[name], self.kinds.get(name, F32), []
        out = name
        if not shape:
            # Scalars can't be joined as they are.
            out, shape = self.names.fresh(f"probe_{name}"), (1,)
            nodes.append(helper.make_node("Reshape", [name, self.constant("flat", 1, np.array([-1], np.int64))], [out]))
        return nodes, _Found(name, {"sample": out}, kind, {"sample": shape})

    def _unknown(self, name: str, op: str, *, body: bool) -> tuple[list[NodeProto], _Found]:
        """Gather from a tensor whose size is known when it runs."""
        prefix = self.names.fresh(f"probe_{name}")
        flat = self.constant("flat", 1, np.array([-1], np.int64))
        nodes = [helper.make_node("Reshape", [name, flat], [f"{prefix}_flat"])]
        nodes += self._gather_unknown(prefix, IN_BODY if body else self.prober.elements)
        parts: dict[Part, str] = {"sample": f"{prefix}_sample"}
        if body or self.kinds.get(name, F32) != F32:
            parts["sample"] = f"{prefix}_float"
            nodes.append(helper.make_node("Cast", [f"{prefix}_sample"], [parts["sample"]], to=TensorProto.FLOAT))
        for part, reduce in self._reductions(op, name):
            parts[part] = f"{prefix}_{part}"
            nodes.append(helper.make_node(reduce, [f"{prefix}_flat"], [parts[part]], keepdims=0))
        return nodes, _Found(name, parts)

    def _gather_unknown(self, prefix: str, count: int) -> list[NodeProto]:
        """Gather from a tensor whose size is known when it runs; from an empty one nothing."""
        share = self.constant("share", count, np.linspace(0, 1, count, endpoint=False, dtype=np.float64))
        none, many = (self.constant("number", size, np.array([size], np.int64)) for size in (0, count))
        names = {part: f"{prefix}_{part}" for part in ("size", "wide", "end", "some", "place", "index")}
        return [
            helper.make_node("Shape", [f"{prefix}_flat"], [names["size"]]),
            helper.make_node("Cast", [names["size"]], [names["wide"]], to=TensorProto.DOUBLE),
            helper.make_node("Mul", [names["size"], many], [names["end"]]),
            helper.make_node("Slice", [share, none, names["end"]], [names["some"]]),
            helper.make_node("Mul", [names["some"], names["wide"]], [names["place"]]),
            helper.make_node("Cast", [names["place"]], [names["index"]], to=TensorProto.INT64),
            helper.make_node("Gather", [f"{prefix}_flat", names["index"]], [f"{prefix}_sample"]),
        ]

    # ---------------------------------------------------------------------------------------------------------- bodies

    def _control(self, node: NodeProto) -> list[_Found]:
        """Probe the bodies of a node and bring what they find out of it."""
        bodies = subgraphs(node)
        brought: list[_Found] = []
        for place, graph in enumerate(bodies):
            for found in self.graph(graph, body=True):
                parts: dict[Part, str] = {}
                for part, name in found.parts.items():
                    parts[part] = self.names.fresh(f"{name}_out")
                    node.output.append(parts[part])
                    graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
                    if node.op_type == "If":
                        _empty(bodies[1 - place], self.names)
                brought.append(_Found(found.tensor, parts))
        return brought


def _empty(branch: GraphProto, names: Names) -> None:
    """Give a branch one more output, without elements."""
    name = names.fresh("probe_nothing")
    nothing = helper.make_tensor(name, TensorProto.FLOAT, [0], [])
    branch.node.append(helper.make_node("Constant", [], [name], value=nothing))
    branch.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))


def spread_over(size: int, count: int) -> Array:
    """``count`` places of a flat tensor, one in each of as many equal pieces, not at the same place of each."""
    edges = np.arange(count + 1, dtype=np.int64) * size // count
    width = np.maximum(edges[1:] - edges[:-1], 1)
    places: Array = edges[:-1] + (np.arange(count, dtype=np.int64) * 7919) % width
    return places
