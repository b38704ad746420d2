"""Probes: outputs that tell a few elements of many tensors, and their range, without holding the tensors.

A tensor of known and small size is given out whole. Of a larger one some elements are gathered, spread over all of it,
and its norm is taken, which bounds every element (or, where that is asked for, its lowest and highest element): a few
nodes whose cost is a fraction of what made the tensor. Tensors of
bodies are gathered likewise, and come out of their Loop or Scan with one row for each turn, out of their If empty
where the other branch was taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper, shape_inference

from convert.arrays import Array
from convert.bigmodel import nbytes
from convert.precision.scope import Names
from convert.precision.types import bodies_of

IN_BODY = 64
"""Elements gathered of a tensor of a body, for each turn."""
SHAPES_FROM = 1 << 10
"""Initializers up to this many bytes go into shape inference, which reads shapes and axes of them."""


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor's outputs, by name. Empty: not asked for. ``low`` and ``high`` are of the whole tensor."""

    tensor: str
    sample: str
    norm: str = ""
    low: str = ""
    high: str = ""
    whole: bool = False


class Reading(NamedTuple):
    """What a probe told: some elements, and of the whole tensor its norm and its range, each None where not asked for.

    Where all elements were given out, neither is.
    """

    sample: Array
    norm: float | None = None
    low: float | None = None
    high: float | None = None


Looks = Literal["elements", "norms", "ranges"]
"""What is taken of each tensor beside some elements."""


NO_LESS: Mapping[str, float] = {
    **dict.fromkeys(("Relu", "Abs", "Sqrt", "Exp", "Sigmoid", "Softmax", "Softplus"), 0.0),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare"), 0.0),
    **dict.fromkeys(("Tanh", "Erf", "Sin", "Cos", "Softsign"), -1.0),
}
NO_MORE: Mapping[str, float] = dict.fromkeys(("Sigmoid", "Softmax", "Tanh", "Erf", "Sin", "Cos", "Softsign"), 1.0)
"""Bounds that an operator keeps by itself: there the tensor need not be searched for its extremes."""


@dataclass(slots=True)
class _Found:
    """A tensor's parts in the graph that is being walked."""

    tensor: str
    parts: dict[str, str]
    whole: bool


class Prober:
    """Adds probes to models that have the same tensors.

    ``sizes``: elements by tensor, where they are known. ``elements``: how many are gathered of each. ``bounded``:
    tensors whose norm is not needed.
    """

    def __init__(self, sizes: Mapping[str, int], elements: int, bounded: Collection[str] = ()) -> None:
        self.sizes = sizes
        self.elements = elements
        self.bounded = bounded

    def add(
        self, model: ModelProto, wanted: Collection[str], *, looks: Looks = "ranges", cast: bool = False
    ) -> tuple[Probe, ...]:
        """Add outputs for the tensors ``wanted`` (in place).

        ``cast``: tensors may be of a type that numpy lacks, and are given out as float32.
        """
        walk = _Walk(self, model, wanted, looks=looks, cast=cast)
        probes = []
        for found in walk.graph(model.graph, body=False):
            model.graph.output.extend(ValueInfoProto(name=name) for name in found.parts.values())
            probes.append(Probe(tensor=found.tensor, whole=found.whole, **found.parts))
        return tuple(probes)


class _Walk:
    def __init__(self, prober: Prober, model: ModelProto, wanted: Collection[str], *, looks: Looks, cast: bool) -> None:
        self.prober = prober
        self.wanted = wanted
        self.looks = looks
        self.cast = cast
        self.names = Names(model.graph)
        self.main = model.graph
        self.shared: dict[tuple[str, int], str] = {}
        self.given = {value.name for value in model.graph.output}

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
            if any(bodies_of(node)):
                found += self._control(node)
            for name in node.output:
                if name in self.wanted:
                    added, one = self._probe(name, node.op_type, body=body)
                    nodes += added
                    found.append(one)
        if len(nodes) != len(graph.node):
            copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
            del graph.node[:]
            graph.node.extend(copies)
        return found

    # ------------------------------------------------------------------------------------------------------ one tensor

    def _probe(self, name: str, op: str, *, body: bool) -> tuple[list[NodeProto], _Found]:
        size = 0 if body else self.prober.sizes.get(name, 0)
        if 0 < size <= self.prober.elements:
            return self._whole(name)
        prefix = self.names.fresh(f"probe_{name}")
        flat = self.constant("flat", 0, np.array([-1], np.int64))
        nodes = [helper.make_node("Reshape", [name, flat], [f"{prefix}_flat"])]
        if size:
            spread = self.constant("spread", size, spread_over(size, self.prober.elements))
            nodes.append(helper.make_node("Gather", [f"{prefix}_flat", spread], [f"{prefix}_sample"]))
        else:
            nodes += self._gather_unknown(prefix, IN_BODY if body else self.prober.elements)
        parts = {"sample": f"{prefix}_sample"}
        if self.cast or body:
            parts["sample"] = f"{prefix}_float"
            nodes.append(helper.make_node("Cast", [f"{prefix}_sample"], [parts["sample"]], to=TensorProto.FLOAT))
        for part, reduce in self._reductions(op, name):
            parts[part] = f"{prefix}_{part}"
            nodes.append(helper.make_node(reduce, [f"{prefix}_flat"], [parts[part]], keepdims=0))
        return nodes, _Found(name, parts, False)

    def _reductions(self, op: str, name: str) -> Iterator[tuple[str, str]]:
        """What is taken of the whole tensor, but for bounds that its operator keeps by itself."""
        if self.looks == "norms":
            if name not in self.prober.bounded:
                yield "norm", "ReduceL2"
        elif self.looks == "ranges":
            yield from (("low", "ReduceMin"),) if op not in NO_LESS else ()
            yield from (("high", "ReduceMax"),) if op not in NO_MORE else ()

    def _whole(self, name: str) -> tuple[list[NodeProto], _Found]:
        if not self.cast and name not in self.given:
            return [], _Found(name, {"sample": name}, True)
        out = self.names.fresh(f"probe_{name}")
        return [helper.make_node("Cast", [name], [out], to=TensorProto.FLOAT)], _Found(name, {"sample": out}, True)

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
        bodies = list(bodies_of(node))
        brought: list[_Found] = []
        for place, graph in enumerate(bodies):
            for found in self.graph(graph, body=True):
                parts = {}
                for part, name in found.parts.items():
                    parts[part] = self.names.fresh(f"{name}_out")
                    node.output.append(parts[part])
                    graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
                    if node.op_type == "If":
                        _empty(bodies[1 - place], self.names)
                brought.append(_Found(found.tensor, parts, False))
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


def readings(probes: tuple[Probe, ...], outputs: Mapping[str, Array]) -> Iterator[tuple[str, Reading]]:
    """What each probe told in one run; a tensor that did not come to be has no elements."""
    for probe in probes:
        sample = outputs[probe.sample].reshape(-1)
        norm = float(outputs[probe.norm].max()) if probe.norm and sample.size else None
        low = float(np.fmin.reduce(outputs[probe.low], axis=None)) if probe.low and sample.size else None
        high = float(np.fmax.reduce(outputs[probe.high], axis=None)) if probe.high and sample.size else None
        yield probe.tensor, Reading(sample, norm, low, high)


# --------------------------------------------------------------------------------------------------------------- sizes


def sizes_of(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Elements of the main graph's tensors where shape inference knows them. ``shapes``: of the inputs."""
    outline = _outline(model, shapes)
    try:
        inferred = shape_inference.infer_shapes(outline, data_prop=True).graph
    except (shape_inference.InferenceError, ValueError, RuntimeError):
        return {}
    sizes = {}
    for value in (*inferred.value_info, *inferred.output):
        dims = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.HasField("shape") and all(dims):
            sizes[value.name] = int(np.prod(dims, dtype=np.int64))
    return sizes


def _outline(model: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> ModelProto:
    """A copy with the inputs' shapes, and with the types of big weights but not their values."""
    outline = ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import)
    graph = outline.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    graph.output.extend(ValueInfoProto(name=value.name) for value in model.graph.output)
    for value in model.graph.input:
        kind = value.type.tensor_type.elem_type
        known = value.name in shapes
        graph.input.append(helper.make_tensor_value_info(value.name, kind, shapes[value.name]) if known else value)
    for tensor in model.graph.initializer:
        if nbytes(tensor) <= SHAPES_FROM and tensor.data_location != TensorProto.EXTERNAL:
            graph.initializer.append(tensor)
        else:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return outline
