"""A detector cut in two in front of its NonMaxSuppression: what a card runs, and what the host does afterwards.

Compilers often lack NonMaxSuppression, or run it slowly, and its output has a size that depends on the data. The cut is
for those who ask for it: the artifact then has other outputs than the model, and the second graph must be run on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from convert.errors import ExportError
from convert.lowering.facts import scope_of
from convert.lowering.inference import infer
from convert.walking import subgraphs

SUPPRESSION = ("NonMaxSuppression",)


@dataclass(frozen=True)
class Split:
    """The two graphs. ``cut``: the values that ``main`` gives out and ``post`` takes in, in the order of both."""

    main: ModelProto
    post: ModelProto
    cut: tuple[str, ...]


def split_suppression(model: ModelProto) -> Split:
    """Cut a model in front of the NonMaxSuppressions of its main graph; the given model is left as it is.

    ``main`` gives out what the model gives out already in front of the cut, then the cut values. ``post`` takes the cut
    values (and inputs of the model that it reads) and gives out the rest. Raises CNV-4113 where nothing is to cut.
    """
    later = _after(model.graph)
    if not later:
        raise ExportError(
            "CNV-4113",
            "there is no NonMaxSuppression to cut in front of",
            hint="only nodes of the main graph are looked at, not those of the bodies of If and Loop",
        )
    nodes = list(model.graph.node)
    early = [node for index, node in enumerate(nodes) if index not in later]
    late = [nodes[index] for index in sorted(later)]
    made = {name for node in early for name in node.output if name}
    inputs = {info.name: info for info in model.graph.input}
    read = dict.fromkeys(name for node in late for name in _reads(node))
    cut = tuple(name for name in read if name in made)
    infos = _infos(model, cut)
    late_made = {name for node in late for name in node.output}
    first = [info for info in model.graph.output if info.name not in late_made]
    known = {info.name for info in first}
    main = _part(model, early, list(inputs.values()), [*first, *(infos[n] for n in cut if n not in known)])
    taken = [*(infos[name] for name in cut), *(inputs[name] for name in read if name in inputs)]
    post = _part(model, late, taken, [info for info in model.graph.output if info.name in late_made])
    return Split(main, post, cut)


def joined(model: ModelProto, split: Split) -> ModelProto:
    """The halves one after the other as one model with the signature of ``model``, to prove them against it."""
    whole = ModelProto()
    whole.CopyFrom(model)
    del whole.graph.node[:]
    whole.graph.node.extend([*split.main.graph.node, *split.post.graph.node])
    return whole


def _after(graph: GraphProto) -> set[int]:
    """The numbers of the suppressions and of all nodes that read what they make."""
    reached: set[str] = set()
    found: set[int] = set()
    for index, node in enumerate(graph.node):
        if node.op_type in SUPPRESSION or reached.intersection(_reads(node)):
            found.add(index)
            reached.update(name for name in node.output if name)
    return found


def _reads(node: NodeProto) -> list[str]:
    names = [name for name in node.input if name]
    for graph in subgraphs(node):
        for inner in graph.node:
            names.extend(_reads(inner))
        names.extend(info.name for info in graph.output)
    return names


def _infos(model: ModelProto, names: Iterable[str]) -> dict[str, ValueInfoProto]:
    scope = scope_of(infer(model).graph)
    infos = {}
    for name in names:
        found = scope.type_of(name)
        infos[name] = ValueInfoProto(name=name) if found is None else helper.make_value_info(name, found)
    return infos


def _part(
    model: ModelProto, nodes: list[NodeProto], inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]
) -> ModelProto:
    """Some of a model's nodes as a model, with the weights that they read."""
    read = {name for node in nodes for name in _reads(node)} | {info.name for info in outputs}
    taken = {info.name for info in inputs}
    weights = [t for t in model.graph.initializer if t.name in read or t.name in taken]
    graph = helper.make_graph(nodes, model.graph.name, inputs, outputs, weights)
    part = helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
    part.functions.extend(model.functions)
    part.metadata_props.extend(model.metadata_props)
    return part
