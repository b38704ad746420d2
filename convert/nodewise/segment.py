"""One piece of B run on A's exact numbers: what error it makes by itself, whatever arrives there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from convert.arrays import Array
from convert.bigmodel import is_external, tensor_array
from convert.nodewise.align import piece
from convert.ort import SessionFailed, SessionSettings, open_session, run_session
from convert.precision.flow import Flow
from convert.precision.scope import type_number


def run_piece(model: ModelProto, flow: Flow, value: str, exact: Mapping[str, Array], *, weights: Path) -> Array | None:
    """The value that B's nodes make of A's numbers; None where they can't be run alone (a body, a failing kernel).

    ``exact``: A's whole arrays by B's names.
    """
    steps, edge = piece(flow, value, exact)
    if any(flow.steps[number].link or flow.steps[number].inside for number in steps):
        return None
    names = {flow.steps[number].name for number in steps}
    made = {output for number in steps for output in flow.steps[number].outputs}
    nodes = [node for node in model.graph.node if node.name in names and set(node.output) & made]
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    inputs = [name for name in edge if name in exact and name not in held]
    if any(name not in held and name not in exact for name in edge):
        return None
    kinds = {name: type_number(flow.types.get(name, "")) if flow.types.get(name) else 0 for name in (*inputs, value)}
    if not all(kinds.values()):
        return None
    alone = _model(
        model,
        nodes,
        [held[name] for name in edge if name in held],
        inputs=inputs,
        value=value,
        kinds=kinds,
        weights=weights,
    )
    feeds = {name: exact[name].astype(helper.tensor_dtype_to_np_dtype(kinds[name])) for name in inputs}
    try:
        return run_session(open_session(alone.SerializeToString(), SessionSettings(level="off")), feeds)[0]
    except SessionFailed:
        return None


def _model(
    model: ModelProto,
    nodes: list[NodeProto],
    tensors: list[TensorProto],
    *,
    inputs: list[str],
    value: str,
    kinds: Mapping[str, int],
    weights: Path,
) -> ModelProto:
    inline = [
        numpy_helper.from_array(np.asarray(tensor_array(tensor, weights)), tensor.name)
        if is_external(tensor)
        else tensor
        for tensor in tensors
    ]
    graph = helper.make_graph(
        nodes,
        "piece",
        [helper.make_tensor_value_info(name, kinds[name], None) for name in inputs],
        [helper.make_tensor_value_info(value, kinds[value], None)],
        inline,
    )
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
