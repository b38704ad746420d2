"""Shapes of a graph's tensors for given inputs, by ONNX's shape inference."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from convert.bigmodel import nbytes
from convert.lowering.inference import infer

SHAPES_FROM = 1 << 10
"""Initializers up to this many bytes go into shape inference, which reads shapes and axes of them."""
Shape = tuple[int, ...]


def shapes_of(model: ModelProto, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Shapes of the main graph's tensors where shape inference knows them. ``shapes``: of the inputs."""
    outline = _outline(model, shapes)
    inferred = infer(outline).graph
    found = {}
    for value in (*inferred.value_info, *inferred.output):
        dims = tuple(dim.dim_value if dim.HasField("dim_value") else 0 for dim in value.type.tensor_type.shape.dim)
        if value.type.tensor_type.HasField("shape") and all(dims):
            found[value.name] = dims
    return found


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
