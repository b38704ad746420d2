"""A graph as a flow of values: each node with what it reads and writes, those of bodies in their place.

If, Loop and Scan become links: from what goes into them to the inputs of their bodies, and from the outputs of the
bodies to theirs. The way back of a loop is left out, so that a flow has no cycle and nodes stand in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnx import GraphProto, ModelProto, NodeProto, TensorProto
from onnx.inliner import inline_local_functions

from convert.precision import make_runnable
from convert.precision.kernels import schema_of
from convert.precision.policy import F32, MOVES
from convert.precision.scope import Names, Scope, type_text
from convert.precision.sorting import sort_nodes
from convert.precision.types import bound_types, formals, output_types_elsewhere, plain_domain
from convert.precision.weights import constants_to_weights
from convert.walking import graphs_in, subgraphs
from op_registry.graph import module_path


@dataclass(frozen=True, slots=True)
class Step:
    """One node, or (``link``) a way into or out of a body. ``inputs`` may hold empty names."""

    name: str
    op: str
    module: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    link: bool = False
    inside: bool = False
    """In a body."""

    @property
    def moves(self) -> bool:
        """Whether it only moves values."""
        return self.link or self.op in MOVES


@dataclass(slots=True)
class Flow:
    """The steps of a graph in order, and what is known of its values. Names are unique over all bodies."""

    steps: list[Step] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    weights: dict[str, TensorProto] = field(default_factory=dict)
    makers: dict[str, int] = field(default_factory=dict)
    """Value → the number of the step that writes it. A value that several branches write has the last."""
    users: dict[str, list[int]] = field(default_factory=dict)
    carried: dict[str, str] = field(default_factory=dict)
    """Output of a loop's body → the body's input that it is in the next turn."""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def floats(self, names: tuple[str, ...]) -> list[str]:
        """Those of some names that are float32 values."""
        return [name for name in names if name and self.types.get(name) == F32]

    def feeders(self, step: Step) -> Iterator[str]:
        """The float32 values that a step reads, each once, weights included."""
        yield from dict.fromkeys(self.floats(step.inputs))


def prepared(model: ModelProto) -> ModelProto:
    """A copy of a model that a forecast can read: functions inlined, nodes named, every value named once.

    Constants are weights then, and nodes whose type ONNX Runtime lacks a kernel for have casts around them.
    """
    made = inline_local_functions(model) if model.functions else ModelProto.FromString(model.SerializeToString())
    # Before IR 4 every weight had to be an input, too, and probes bring weights of their own.
    made.ir_version = max(made.ir_version, 4)
    make_runnable(made)
    constants_to_weights(made.graph)
    sort_nodes(made.graph)
    names = Names(made.graph)
    _unique(made.graph, set(), names)
    for graph in graphs_in(made.graph):
        for node in graph.node:
            if not node.name:
                node.name = names.fresh(f"{node.op_type}_{next(filter(None, node.output), 'node')}")
    return made


def _unique(graph: GraphProto, taken: set[str], names: Names) -> None:
    """Give values of bodies new names where another graph has the same."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output if name}
    clash = {name: names.fresh(name) for name in sorted(own & taken)}
    if clash:
        _renamed(graph, clash)
    taken |= own | set(clash.values())
    for node in graph.node:
        for body in subgraphs(node):
            _unique(body, taken, names)


def _renamed(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Rename values of a graph wherever they stand, in bodies too."""
    for thing in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        thing.name = names.get(thing.name, thing.name)
    for node in graph.node:
        for listed in (node.input, node.output):
            for place, name in enumerate(listed):
                if name in names:
                    listed[place] = names[name]
        for body in subgraphs(node):
            _renamed(body, names)


def flow_of(model: ModelProto) -> Flow:
    """The flow of a prepared model."""
    flow = Flow(
        inputs=tuple(value.name for value in model.graph.input),
        outputs=tuple(value.name for value in model.graph.output),
    )
    opsets = {plain_domain(entry.domain): entry.version for entry in model.opset_import}
    _Walk(flow, opsets, Names(model.graph)).graph(model.graph, None)
    for number, step in enumerate(flow.steps):
        for name in step.outputs:
            flow.makers[name] = number
        for name in dict.fromkeys(step.inputs):
            if name:
                flow.users.setdefault(name, []).append(number)
    return flow


class _Walk:
    """Collects the steps and types of a graph and its bodies."""

    def __init__(self, flow: Flow, opsets: Mapping[str, int], names: Names) -> None:
        self.flow = flow
        self.opsets = opsets
        self.names = names

    def graph(self, graph: GraphProto, parent: Scope | None) -> Scope:
        scope = Scope(graph, parent, self.names)
        self.flow.weights.update((tensor.name, tensor) for tensor in graph.initializer)
        for value in graph.input:
            self.flow.types[value.name] = type_text(value.type.tensor_type.elem_type)
        for tensor in graph.initializer:
            self.flow.types[tensor.name] = type_text(tensor.data_type)
        for node in graph.node:
            self._node(node, scope)
        return scope

    def _node(self, node: NodeProto, scope: Scope) -> None:
        bodies = subgraphs(node)
        if bodies:
            self._control(node, bodies, scope)
            return
        for name, kind in _output_types(node, scope, self.opsets):
            scope.define(name, kind)
            self.flow.types[name] = kind
        self.flow.steps.append(_step(node, tuple(node.input), tuple(node.output), inside=scope.parent is not None))

    def _control(self, node: NodeProto, bodies: list[GraphProto], scope: Scope) -> None:
        skipped = {"Loop": 2}.get(node.op_type, 0)
        feeds = list(node.input[skipped:]) if node.op_type != "If" else []
        given = [value.name for value in bodies[0].input][skipped:] if feeds else []
        for inside, outside in zip(given, feeds, strict=False):
            if outside:
                self.flow.types.setdefault(inside, scope.type_of(outside))
                self._link(node, [outside], inside, scope)
        inner = [self.graph(body, scope) for body in bodies]
        self.flow.carried.update(_carried(node, bodies[0]))
        first = 1 if node.op_type == "Loop" else 0
        for place, name in enumerate(node.output):
            if not name:
                continue
            made = [body.output[place + first].name for body in bodies if len(body.output) > place + first]
            kind = next((found for one, body in zip(made, inner, strict=False) if (found := body.type_of(one))), "")
            scope.define(name, scope.declared.get(name, "") or kind)
            self.flow.types[name] = scope.type_of(name)
            self._link(node, made, name, scope)

    def _link(self, node: NodeProto, sources: Sequence[str], target: str, scope: Scope) -> None:
        inside = scope.parent is not None
        self.flow.steps.append(_step(node, tuple(sources), (target,), inside=inside, link=True))


def _carried(node: NodeProto, body: GraphProto) -> Iterator[tuple[str, str]]:
    """The state of a Loop or Scan: what the body gives, and which of its inputs that is in the next turn."""
    if node.op_type == "Loop":
        given, taken = body.output[1:], body.input[2:]
    elif node.op_type == "Scan":
        count = next(attribute.i for attribute in node.attribute if attribute.name == "num_scan_inputs")
        given, taken = body.output, body.input[: len(body.input) - count]
    else:
        return
    yield from ((output.name, value.name) for output, value in zip(given, taken, strict=False))


def _step(
    node: NodeProto, inputs: tuple[str, ...], outputs: tuple[str, ...], *, inside: bool, link: bool = False
) -> Step:
    return Step(node.name, node.op_type, module_path(node), inputs, outputs, link=link, inside=inside)


def _output_types(node: NodeProto, scope: Scope, opsets: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    domain = plain_domain(node.domain)
    schema = schema_of(node.op_type, domain, opsets.get(domain, 0))
    if schema is None:
        yield from output_types_elsewhere(node, scope).items()
        return
    bound = bound_types(node, schema, scope)
    for name, formal in formals(node.output, [output.type_str for output in schema.outputs]):
        if name:
            yield name, bound.get(formal) or (formal if formal.startswith("tensor(") else scope.declared.get(name, ""))
