"""What the rewrites build on: a rule applied to every node that wants it, with types, shapes and constants at hand.

A rule that lowers an operator also replaces it at the opset where it stands, so most rewrites of one operator are
a rule of ``convert/lowering/rules/`` and the question of which nodes want it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from onnx import ModelProto, NodeProto

from convert.lowering import functions, schemas
from convert.lowering.engine import all_names, convert_graph, forget_types, info_names, opset_of
from convert.lowering.facts import Scope, scope_of
from convert.lowering.held import drop_unused, hold, keep, release
from convert.lowering.inference import infer
from convert.lowering.site import Names, Refuse, Site, as_defined
from convert.walking import graphs_in, walk

Rule = Callable[[Site], None]
Wanted = Callable[[Site], bool]


def each_node(model: ModelProto, rule: Rule, wanted: Wanted) -> list[str]:
    """Replace every node that is wanted by what the rule writes; a node that the rule refuses stays. In place."""
    opset = opset_of(model)
    if not opset:
        return []

    def treat(node: NodeProto, scope: Scope) -> list[NodeProto] | None:
        site = Site(node, scope, names, opset, schemas.since(node.op_type, opset))
        if not schemas.main_domain(node.domain) or not wanted(site):
            return None
        rule(site)
        return site.nodes

    names = Names(all_names(model))
    return _run(model, treat)


def expand_each(model: ModelProto, op: str) -> list[str]:
    """Replace every node of an operator by ONNX's own definition of it. In place."""
    opset = opset_of(model)
    names = Names(all_names(model))

    def treat(node: NodeProto, scope: Scope) -> list[NodeProto] | None:
        if node.op_type != op or not schemas.main_domain(node.domain):
            return None
        return functions.definition(node, scope, names, opset)

    return _run(model, treat)


def _run(model: ModelProto, treat: Callable[[NodeProto, Scope], list[NodeProto] | None]) -> list[str]:
    done: list[str] = []

    def guarded(node: NodeProto, scope: Scope) -> list[NodeProto]:
        try:
            with as_defined(node):
                result = treat(node, scope)
        except Refuse:
            return [node]
        if result is None:
            return [node]
        done.append(node.name or next(iter(node.output), node.op_type))
        return result

    held = hold(model)
    infos = info_names(held.model.graph)
    inferred = infer(held.model)
    scope = scope_of(inferred.graph, old_ir=held.model.ir_version < 4)
    convert_graph(held.model.graph, inferred.graph, scope, guarded)
    forget_types(held.model.graph, infos)
    if done:
        drop_unused(held.model)
        model.CopyFrom(release(held))
    return done


def drop_idle(model: ModelProto, *ops: str) -> None:
    """Take out nodes of some operators whose outputs nothing reads any more, main graph and subgraphs. In place.

    What they alone read goes with them: one pass from the last node to the first, the innermost graphs before.
    """
    graphs = list(graphs_in(model.graph))
    reads = Counter(name for graph in graphs for node in graph.node for name in node.input)
    reads.update(info.name for graph in graphs for info in graph.output)
    for graph in reversed(graphs):
        stays = []
        for node in reversed(graph.node):
            idle = node.op_type in ops and schemas.main_domain(node.domain)
            stays.append(not idle or any(reads[name] for name in node.output))
            if not stays[-1]:
                reads.subtract(node.input)
        keep(graph.node, stays[::-1])
    drop_unused(model)


def has_op(model: ModelProto, *ops: str) -> bool:
    """Whether a graph has any of some operators, subgraphs included."""
    return any(node.op_type in ops and schemas.main_domain(node.domain) for node in walk(model.graph))
