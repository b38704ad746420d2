"""Nodes that hand on what they get: Identity, Dropout outside of training, and casts to the type that is there."""

from __future__ import annotations

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from convert.lowering.engine import opset_of
from convert.lowering.facts import Scope, scope_of
from convert.lowering.inference import infer
from convert.rewrites.base import Avoided, Rewrite
from convert.walking import subgraphs


def run(model: ModelProto, argument: str) -> list[str]:
    """Take them out of the main graph; a node that makes an output of the graph stays. Says which went."""
    opset = opset_of(model)
    light = infer(model) if model.ByteSize() < 1 << 30 else model
    scope = scope_of(light.graph)
    outputs = {info.name for info in model.graph.output}
    renamed: dict[str, str] = {}
    kept, gone = [], []
    for node in model.graph.node:
        _rename(node, renamed)
        if opset and _idle(node, scope) and node.output[0] not in outputs:
            renamed[node.output[0]] = node.input[0]
            gone.append(node.name or node.output[0])
        else:
            copy = NodeProto()
            copy.CopyFrom(node)
            kept.append(copy)
    if gone:
        del model.graph.node[:]
        model.graph.node.extend(kept)
        _forget(model.graph, set(renamed))
    return gone


def _idle(node: NodeProto, scope: Scope) -> bool:
    if node.domain not in ("", "ai.onnx") or len([name for name in node.output if name]) != 1:
        return False
    if node.op_type == "Identity":
        return True
    if node.op_type == "Cast":
        wanted = next((a.i for a in node.attribute if a.name == "to"), TensorProto.UNDEFINED)
        return wanted != TensorProto.UNDEFINED and scope.dtype(node.input[0]) == wanted
    if node.op_type != "Dropout":
        return False
    training = scope.const(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    return len(node.input) < 3 or not node.input[2] or (training is not None and not training.any())


def _rename(node: NodeProto, renamed: dict[str, str]) -> None:
    for index, name in enumerate(node.input):
        node.input[index] = renamed.get(name, name)
    for graph in subgraphs(node):
        own = {info.name for info in graph.input} | {name for inner in graph.node for name in inner.output}
        inside = {name: new for name, new in renamed.items() if name not in own}
        for inner in graph.node:
            _rename(inner, inside)
        for info in graph.output:
            info.name = inside.get(info.name, info.name)


def _forget(graph: GraphProto, names: set[str]) -> None:
    infos = [info for info in graph.value_info if info.name not in names]
    del graph.value_info[:]
    graph.value_info.extend(infos)


RULE = Rewrite(
    name="drop-identities",
    title="nodes that hand on their input",
    avoids=(Avoided(op="Identity"), Avoided(op="Dropout")),
    run=run,
)
