"""``lower_model``: a model to another opset, one version at a time.

Every step is a whole valid model again, so a rule needs to know only two versions of one operator, what it writes is
taken further down by the rules of the operators it wrote, and types and shapes come from ONNX's own inference at each
step. Nodes without an equivalent stay where they are until the end, so that all are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from artifacts.errors import first_line
from convert.errors import ExportError
from convert.lowering import functions, narrow, schemas, table
from convert.lowering.facts import Scope, function_scope, scope_of
from convert.lowering.held import Held, drop_unused, hold, release
from convert.lowering.inference import INFERENCE_FAILURES, infer
from convert.lowering.refusal import LoweringRefused, Refusal
from convert.lowering.site import Names, Refuse, Site, as_defined
from convert.walking import subgraphs, walk

Treat = Callable[[NodeProto, Scope], list[NodeProto]]
MAX_ROUNDS = 8


def lower_model(model: ModelProto, opset: int) -> ModelProto:
    """See ``convert.lowering.lower``."""
    if not schemas.OLDEST_TARGET <= opset <= schemas.NEWEST:
        raise ExportError(
            "CNV-4102",
            f"opset {opset} can't be asked for: it must lie between {schemas.OLDEST_TARGET} and {schemas.NEWEST}",
            hint=f"the installed onnx {onnx.__version__} knows opsets up to {schemas.NEWEST}",
        )
    table.load()
    held = hold(model)
    source = opset_of(held.model)
    if not source and any(_main(node) for node in walk(held.model.graph)):
        raise LoweringRefused(opset, [_whole(0, opset, "it imports no version of ONNX's operators")])
    if source and source != opset:
        if source > schemas.NEWEST:
            raise LoweringRefused(opset, [_whole(source, opset, f"opset {source} is newer than the installed onnx")])
        held = Held(_from_ancient(held.model, source, opset), held.payload) if source < 7 else held
        Lowering(held.model, opset).run()
    return release(held)


def opset_of(model: ModelProto | FunctionProto) -> int:
    """The version of the default operator set that a model or function imports; 0 where it imports none."""
    return next((entry.version for entry in model.opset_import if schemas.main_domain(entry.domain)), 0)


def set_opset(model: ModelProto | FunctionProto, opset: int) -> None:
    """Write the version of the default operator set."""
    for entry in model.opset_import:
        if schemas.main_domain(entry.domain):
            entry.version = opset


def _whole(source: int, opset: int, reason: str) -> Refusal:
    return Refusal(op="(model)", node="(model)", from_opset=source, to_opset=opset, reason=reason)


def _from_ancient(model: ModelProto, source: int, opset: int) -> ModelProto:
    """Bring a model from before opset 7, whose broadcasting was another, to opset 7 with ONNX's own converter."""
    # The converter is from the days when every weight was an input, too.
    inputs = {value.name for value in model.graph.input}
    model.graph.input.extend(
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        for tensor in model.graph.initializer
        if tensor.name not in inputs
    )
    try:
        return onnx.version_converter.convert_version(model, 7)
    except (*INFERENCE_FAILURES, onnx.version_converter.ConvertError) as error:
        raise LoweringRefused(opset, [_whole(source, opset, first_line(error))]) from error


class Lowering:
    """One model on its way to an opset; works on the given model in place."""

    def __init__(self, model: ModelProto, opset: int) -> None:
        self.model = model
        self.opset = opset
        self.names = Names(all_names(model))
        self.infos = info_names(model.graph)
        self.refused: dict[str, Refusal] = {}
        self.version = opset_of(model)

    def run(self) -> None:
        """Take the model all the way, or raise ``LoweringRefused``."""
        self._local_functions()
        while self.version != self.opset:
            self._step(self.version + (1 if self.opset > self.version else -1))
        if self.refused:
            raise LoweringRefused(self.opset, tuple(self.refused.values()))
        forget_types(self.model.graph, self.infos)
        drop_unused(self.model)
        functions.drop_preview_import(self.model)
        lowest = schemas.ir_version(self.opset)
        if self.model.functions:
            lowest = max(lowest, 10 if any(f.overload for f in self.model.functions) else 8)
        self.model.ir_version = min(self.model.ir_version, lowest) if self.model.ir_version > lowest else lowest

    # ---------------------------------------------------------------------------------------------- local functions

    def _local_functions(self) -> None:
        """Lower functions where that needs no types; put the others in the place of their calls."""
        for function in self.model.functions:
            if opset_of(function) not in (0, self.version) and not self._lower_function(function, self.version):
                reason = f"local function {function.name} imports opset {opset_of(function)}, and the model another"
                raise LoweringRefused(self.opset, [_whole(self.version, self.opset, reason)])
        while True:
            copies, inline = list[FunctionProto](), list[FunctionProto]()
            for function in self.model.functions:
                copy = FunctionProto()
                copy.CopyFrom(function)
                (copies if self._lower_function(copy, self.opset) else inline).append(copy)
            if not inline:
                break
            before = len(self.model.functions)
            try:
                self.model.CopyFrom(functions.inlined(self.model, inline))
            except INFERENCE_FAILURES as error:
                reason = f"local function {inline[0].name} can't be put in the place of its calls: {error}"
                raise LoweringRefused(self.opset, [_whole(self.version, self.opset, reason)]) from error
            if len(self.model.functions) >= before:
                reason = f"local function {inline[0].name} can't be put in the place of its calls"
                raise LoweringRefused(self.opset, [_whole(self.version, self.opset, reason)])
            self.names = Names(all_names(self.model))
        del self.model.functions[:]
        self.model.functions.extend(copies)

    def _lower_function(self, function: FunctionProto, opset: int) -> bool:
        """Take a function to an opset in place; False where a rule needs types, which a function does not have."""
        version = opset_of(function)
        if not version:
            return True
        while version != opset:
            target = version + (1 if opset > version else -1)
            scope = function_scope(function)
            try:
                nodes = convert_nodes(function.node, scope, partial(self._in_function, version=version, target=target))
                narrow.require_same_types(nodes, version, target)
            except Refuse:
                return False
            copies = [_copied(node) for node in nodes]
            del function.node[:]
            function.node.extend(copies)
            version = target
            set_opset(function, version)
        return True

    def _in_function(self, node: NodeProto, scope: Scope, version: int, target: int) -> list[NodeProto]:
        with as_defined(node):
            return self._treat(node, scope, version, target)

    # -------------------------------------------------------------------------------------------------------- steps

    def _step(self, target: int) -> None:
        """One version down or up."""
        changed = max(self.version, target)
        if any(self._concerned(node, changed, target) for node in walk(self.model.graph)):
            self._expand(target)
            self._convert(partial(self._treat, version=self.version, target=target))
            set_opset(self.model, target)
            self._narrow(target)
        self.version = target
        set_opset(self.model, target)

    def _concerned(self, node: NodeProto, changed: int, target: int) -> bool:
        """Whether a step changes a node's operator."""
        if not _main(node):
            return functions.must_expand(node, self.version, target)
        return schemas.since(node.op_type, changed) == changed

    def _convert(self, treat: Treat) -> None:
        """Run over all nodes of the model, subgraphs first, noting refusals."""
        inferred = infer(self.model)
        scope = scope_of(inferred.graph, old_ir=self.model.ir_version < 4)
        convert_graph(self.model.graph, inferred.graph, scope, self._guarded(treat))

    def _guarded(self, treat: Treat) -> Treat:
        def guarded(node: NodeProto, scope: Scope) -> list[NodeProto]:
            key = node.output[0] if node.output else node.name
            if key in self.refused:
                return [node]
            try:
                with as_defined(node):
                    return treat(node, scope)
            except Refuse as reason:
                self.refused[key] = Refusal(
                    op=f"{node.domain}::{node.op_type}" if node.domain else node.op_type,
                    node=node.name or key,
                    from_opset=self.version,
                    to_opset=self.opset,
                    reason=str(reason),
                )
                return [node]

        return guarded

    def _expand(self, target: int) -> None:
        """Put ONNX's own function bodies in the place of operators that have no rule and are gone at the target."""
        for _ in range(MAX_ROUNDS):
            if not any(functions.must_expand(n, self.version, target) for n in walk(self.model.graph)):
                return
            changes = 0

            def treat(node: NodeProto, scope: Scope) -> list[NodeProto]:
                nonlocal changes
                result = functions.expand(node, scope, self.names, self.version, target)
                changes += result is not None
                return [node] if result is None else result

            self._convert(treat)
            if not changes:
                return

    def _treat(self, node: NodeProto, scope: Scope, version: int, target: int) -> list[NodeProto]:
        """What stands for a node of one version at the neighbouring version."""
        step = max(version, target)
        if not _main(node) or schemas.since(node.op_type, step) != step:
            return [node]
        going_down = step != target
        rule = (table.DOWN if going_down else table.UP).get((node.op_type, step))
        if rule is not None:
            site = Site(node, scope, self.names, target, schemas.since(node.op_type, version))
            rule(site)
            return site.nodes
        if not schemas.since(node.op_type, step - 1):
            if not going_down:
                return [node]
            raise Refuse(f"{node.op_type} came with opset {step}, and nothing before has its meaning")
        if step not in table.SAME.get(node.op_type, ()):
            raise Refuse(f"there is no rule from version {step} to the one before")
        return [without_defaults(node, step)] if going_down else [node]

    def _narrow(self, target: int) -> None:
        """Bring values whose type an operator does not take at the target into one that it takes, and back."""
        for _ in range(MAX_ROUNDS):
            changes = 0

            def treat(node: NodeProto, scope: Scope) -> list[NodeProto]:
                nonlocal changes
                result = narrow.narrowed(node, scope, self.names, target)
                changes += result is not None
                return [node] if result is None else result

            self._convert(treat)
            if not changes:
                return


def _main(node: NodeProto) -> bool:
    return schemas.main_domain(node.domain)


def without_defaults(node: NodeProto, version: int) -> NodeProto:
    """The node without attributes that its version brought, where they have their neutral default; else refuses."""
    new, old = schemas.schema(node.op_type, version), schemas.schema(node.op_type, version - 1)
    if new is None or old is None:
        raise Refuse(f"{node.op_type} is deprecated at opset {version - 1}")
    result = NodeProto()
    result.CopyFrom(node)
    del result.attribute[:]
    for attribute in node.attribute:
        if attribute.name in old.attributes:
            result.attribute.append(attribute)
            continue
        default = new.attributes[attribute.name].default_value if attribute.name in new.attributes else None
        if default is None or attribute.ref_attr_name or not _equal(attribute, default):
            raise Refuse(f"attribute {attribute.name} came with version {version} and is not at its default")
    if len(node.input) > old.max_input or len(node.output) > old.max_output:
        raise Refuse(f"version {version} brought inputs or outputs that the version before does not have")
    return result


def _equal(one: onnx.AttributeProto, other: onnx.AttributeProto) -> bool:
    if one.type != other.type:
        return False
    return bool(onnx.helper.get_attribute_value(one) == onnx.helper.get_attribute_value(other))


# -------------------------------------------------------------------------------------------------------------- walking


def convert_nodes(nodes: Iterable[NodeProto], scope: Scope, treat: Treat) -> list[NodeProto]:
    """Every node's replacement in order, its subgraphs converted first (without facts of their own)."""
    result: list[NodeProto] = []
    for node in nodes:
        for graph in subgraphs(node):
            convert_graph(graph, graph, scope_of(graph, scope), treat)
        result.extend(treat(node, scope))
    return result


def convert_graph(graph: GraphProto, inferred: GraphProto, scope: Scope, treat: Treat) -> None:
    """Convert a graph in place. ``inferred`` is the same graph with inferred types; ``scope`` is of it."""
    result: list[NodeProto] = []
    for node, twin in zip(graph.node, inferred.node, strict=True):
        for inner, inner_twin in zip(subgraphs(node), subgraphs(twin), strict=True):
            inner_scope = scope_of(inner_twin, scope)
            convert_graph(inner, inner_twin, inner_scope, treat)
        result.extend(treat(node, scope))
    result = [_copied(node) for node in result]
    del graph.node[:]
    graph.node.extend(result)
    remember_types(graph, inferred)


def _copied(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def remember_types(graph: GraphProto, inferred: GraphProto) -> None:
    """Write down what inference found: a value keeps its type and shape, even where its new makers hide them."""
    if len(inferred.value_info) == 0 or inferred is graph:
        return
    del graph.value_info[:]
    graph.value_info.extend(inferred.value_info)
    for info in graph.value_info:
        for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
            if dim.dim_param.startswith("unk__"):
                dim.ClearField("dim_param")


def info_names(graph: GraphProto) -> set[str]:
    """The names of all value infos of a graph, subgraphs included."""
    names = {info.name for info in graph.value_info}
    return names.union(*(info_names(inner) for node in graph.node for inner in subgraphs(node)))


def forget_types(graph: GraphProto, kept: set[str]) -> None:
    """Drop the value infos that the given model did not have."""
    infos = [info for info in graph.value_info if info.name in kept]
    del graph.value_info[:]
    graph.value_info.extend(infos)
    for node in graph.node:
        for inner in subgraphs(node):
            forget_types(inner, kept)


def all_names(model: ModelProto) -> set[str]:
    """Every value and node name of a model."""
    names: set[str] = set()
    graphs = [model.graph, *(inner for node in walk(model.graph) for inner in subgraphs(node))]
    for graph in graphs:
        names.update(info.name for info in (*graph.input, *graph.output, *graph.value_info))
        names.update(tensor.name for tensor in graph.initializer)
    nodes = [*walk(model.graph), *(node for function in model.functions for node in function.node)]
    for node in nodes:
        names.update((node.name, *node.input, *node.output))
    return names
