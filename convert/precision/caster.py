"""The caster: rewrites a graph so that its values are stored, and its nodes compute, as a policy says.

Types are followed from the graph's inputs through ONNX's schemas. A value whose type is not known keeps it, so that
the result is valid also around operators that ONNX does not define. Inputs and outputs of the model, and of the bodies
of If, Loop and Scan, keep their types; inside of the bodies the same rules hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import GraphProto, NodeProto, helper, numpy_helper
from onnx.defs import OpSchema

from convert.bigmodel import nbytes
from convert.precision.kernels import has_kernel, schema_of
from convert.precision.policy import Choice, Choices, Policy, selects
from convert.precision.scope import Names, Scope, type_number
from convert.precision.sorting import in_order
from convert.precision.types import bound_types, formals, output_types_elsewhere, plain_domain
from convert.precision.weights import cast_weights, constants_to_weights
from convert.walking import subgraphs

SMALL_CONSTANT = 1 << 10
"""A constant up to this many bytes does not hide that a value comes from shapes alone."""
CONTROL = ("If", "Loop", "Scan")


class Caster:
    """Casts one model's graph in place; afterwards the counters say what was done."""

    def __init__(self, policy: Policy, opsets: Mapping[str, int], keep: frozenset[str] = frozenset()) -> None:
        self.policy = policy
        self.opsets = opsets
        self.keep = keep
        self.kept: set[str] = set()
        """Names of ``keep`` that were met."""
        self.switched: list[str] = []
        """Operators of the nodes that changed, one entry a node."""
        self.widened: list[str] = []
        """Of those, the ones that compute in float32 between casts."""
        self.borrowed: list[str] = []
        """Those that ONNX Runtime computes in float32 on its own, as it has no CPU kernel for the type."""
        self.shape_only = 0
        self.casts = 0
        self.weights = 0
        """How many weights were cast."""
        self.stored: dict[str, str] = {}
        """Values of the main graph that are stored in another type now."""

    def cast_graph(self, graph: GraphProto) -> None:
        """Cast the main graph and all inside it (in place)."""
        constants_to_weights(graph)
        self.stored = self._graph(graph, None, Names(graph), frozenset()).stored

    # ------------------------------------------------------------------------------------------------------- graphs

    def _graph(self, graph: GraphProto, parent: Scope | None, names: Names, shapes: frozenset[str]) -> Scope:
        scope = Scope(graph, parent, names)
        from_shapes = set(shapes)
        for node in in_order(graph):
            _note_shape_value(node, from_shapes, scope)
            self._node(node, scope, names, from_shapes)
        self._settle_outputs(graph, scope, names)
        self.weights += cast_weights(graph, scope.settled_weights())
        self.casts += scope.casts
        del graph.node[:]
        graph.node.extend(scope.nodes)
        for value in graph.value_info:
            if value.name in scope.stored:
                value.type.tensor_type.elem_type = type_number(scope.stored[value.name])
        return scope

    def _settle_outputs(self, graph: GraphProto, scope: Scope, names: Names) -> None:
        """Outputs that no node of this graph writes (a weight, an outer value) in the type that they had."""
        for value in graph.output:
            kind = scope.type_of(value.name)
            place = scope.get(value.name, Choice(kind, kind)) if kind else value.name
            if place != value.name and scope.parent is not None:
                value.name = names.fresh(f"{value.name}_out")
                scope.nodes.append(
                    helper.make_node("Identity", [place], [value.name], name=names.fresh("Identity_out"))
                )

    # -------------------------------------------------------------------------------------------------------- nodes

    def _node(self, node: NodeProto, scope: Scope, names: Names, from_shapes: set[str]) -> None:
        schema = schema_of(node.op_type, plain_domain(node.domain), self.opsets.get(plain_domain(node.domain), 0))
        bodies = subgraphs(node)
        if bodies or schema is None:
            self._unchanged(node, scope, names, bodies, frozenset(from_shapes))
            return
        bound = bound_types(node, schema, scope)
        choices = self._choices(node, schema, bound, from_shapes)
        taken = formals(node.input, [formal.type_str for formal in schema.inputs])
        for index, (name, formal) in enumerate(taken):
            kind = scope.type_of(name)
            if name and kind:
                node.input[index] = scope.get(name, choices.get(formal) or Choice(kind, kind))
        outputs = [(name, formal) for name, formal in formals(node.output, [o.type_str for o in schema.outputs])]
        self._retype(node, choices, schema)
        scope.nodes.append(node)
        for index, (name, formal) in enumerate(outputs):
            if name:
                kind = bound.get(formal) or (formal if formal.startswith("tensor(") else scope.declared.get(name, ""))
                choice = choices.get(formal)
                if choice is not None and self.policy.wide and choice.compute == kind and selects(node):
                    scope.define_rounded(name, kind, choice)
                else:
                    _define_output(node, index, kind, choice, scope)

    def _choices(self, node: NodeProto, schema: OpSchema, bound: Mapping[str, str], from_shapes: set[str]) -> Choices:
        if node.name and node.name in self.keep:
            self.kept.add(node.name)
            return {}
        choices = self.policy.choose(node, schema, bound)
        if choices and self.policy.storage and any(name in from_shapes for name in node.output):
            self.shape_only += 1
            return {}
        if choices:
            self.switched.append(node.op_type)
            if any(choice.storage != choice.compute for choice in choices.values()):
                self.widened.append(node.op_type)
            elif not has_kernel(schema, {**bound, **{name: choice.compute for name, choice in choices.items()}}):
                self.borrowed.append(node.op_type)
        return choices

    def _unchanged(
        self, node: NodeProto, scope: Scope, names: Names, bodies: Sequence[GraphProto], shapes: frozenset[str]
    ) -> None:
        for index, name in enumerate(node.input):
            kind = scope.type_of(name)
            if name and kind:
                node.input[index] = scope.get(name, Choice(kind, kind))
        inner = [self._graph(body, scope, names, shapes) for body in bodies]
        scope.nodes.append(node)
        skipped = 1 if node.op_type == "Loop" else 0
        told = output_types_elsewhere(node, scope)
        for index, name in enumerate(node.output):
            kind = told.get(name, "")
            if not kind and node.op_type in CONTROL and len(bodies[0].output) > index + skipped:
                kind = inner[0].type_of(bodies[0].output[index + skipped].name)
            if name:
                scope.define(name, kind)

    def _retype(self, node: NodeProto, choices: Choices, schema: OpSchema) -> None:
        """Let an attribute that says the output type say the new one."""
        choice = choices.get(schema.outputs[0].type_str) if schema.outputs else None
        if choice is None:
            return
        number = type_number(choice.compute)
        if node.op_type == "Cast":
            next(a for a in node.attribute if a.name == "to").i = number
        elif node.op_type == "ConstantOfShape":
            value = next((numpy_helper.to_array(a.t) for a in node.attribute if a.name == "value"), None)
            filled = [0.0] if value is None else value.astype("float32").reshape(-1)[:1]
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("value", helper.make_tensor("value", number, [1], filled)))


def _define_output(node: NodeProto, index: int, kind: str, choice: Choice | None, scope: Scope) -> None:
    """Name and define an output, with the casts that bring it from the computed to the stored and the old type."""
    name = node.output[index]
    if choice is None:
        scope.define(name, kind)
        return
    given_out = name in scope.outputs and choice.storage != kind
    place = scope.names.fresh(f"{name}_{choice.storage[7:-1]}") if given_out else name
    scope.define(name, kind, stored=choice.storage, place=place)
    if choice.compute == choice.storage:
        node.output[index] = place
    else:
        node.output[index] = scope.names.fresh(f"{name}_computed")
        scope.cast(node.output[index], choice.storage, name, to=place)
    if given_out:
        scope.cast(place, kind, name, to=name)
        scope.places[name][Choice(kind, kind)] = name


# ------------------------------------------------------------------------------------------------------- shape values


def _note_shape_value(node: NodeProto, from_shapes: set[str], scope: Scope) -> None:
    """Follow values that come from shapes and small constants alone: sizes must not be rounded to 11 bits."""
    if node.op_type in ("Shape", "Size"):
        from_shapes.update(node.output)
        return
    inputs = [name for name in node.input if name]
    held = [name for name in inputs if name in from_shapes]
    known = all(name in from_shapes or _small_constant(name, scope) for name in inputs)
    if held and known and not subgraphs(node):
        from_shapes.update(node.output)


def _small_constant(name: str, scope: Scope) -> bool:
    definer = scope.definer(name)
    return definer is not None and name in definer.weights and nbytes(definer.weights[name]) <= SMALL_CONSTANT
