"""int8 as pairs of QuantizeLinear and DequantizeLinear around products, by ONNX Runtime's own quantizer.

Products alone are quantized: convolutions and products of matrices, with what they take and give. Weights have a scale
for each channel, activations one for each tensor; both are symmetric int8, which every toolchain that reads such pairs
takes.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper
from onnxruntime.quantization.calibrate import CalibrationMethod as Method
from onnxruntime.quantization.calibrate import TensorsData
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import QuantType

from convert.bigmodel import external_tensors, nbytes, tensor_array
from convert.errors import UsageError
from convert.ladder import QUANTIZED_OPS
from convert.precision.calibrate import Range
from convert.precision.scope import Names

PRODUCTS = QUANTIZED_OPS
MOST_BYTES = (2 << 30) - (128 << 20)
"""Quantizing holds the weights in the proto, which may have 2 GiB."""
OPTIONS = {"ActivationSymmetric": True, "WeightSymmetric": True}


def products(model: ModelProto) -> dict[str, tuple[str, ...]]:
    """The nodes of the main graph that can be quantized: name → the values that they take and give.

    Only of float32: below opset 19 a pair takes nothing else.
    """
    graph = model.graph
    kinds = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.output, *graph.value_info)}
    kinds |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    return {
        node.name: tuple(name for name in (*node.input[:2], node.output[0]) if name)
        for node in model.graph.node
        if node.op_type in PRODUCTS
        and all(kinds.get(name, 0) in (0, TensorProto.FLOAT) for name in (*node.input[:2], node.output[0]))
    }


def quantized_model(
    model: ModelProto, ranges: Mapping[str, Range], keep: Collection[str], *, weights: Path
) -> ModelProto:
    """A copy of a prepared model with its products in int8, but for those of ``keep``. ``weights``: of external ones.

    A value without a range, or with an empty one, leaves its product in float. Raises UsageError CNV-2322 where the
    weights are too big to be quantized.
    """
    copy: ModelProto = ModelProto.FromString(model.SerializeToString())
    _inline(copy, weights)
    _own_biases(copy)
    known = {tensor.name for tensor in copy.graph.initializer}
    unknown = {
        name for name, values in products(copy).items() if any(v not in known and not _wide(ranges, v) for v in values)
    }
    taken = [name for name in products(copy) if name not in unknown and name not in set(keep)]
    if not taken:
        return copy
    data: dict[str, Any] = {name: (np.float32(low), np.float32(high)) for name, (low, high) in ranges.items()}
    with _quiet():
        make: Any = QDQQuantizer
        quantizer = make(
            copy,
            per_channel=True,
            reduce_range=False,
            weight_qType=QuantType.QInt8,
            activation_qType=QuantType.QInt8,
            tensors_range=TensorsData(Method.MinMax, data),
            nodes_to_quantize=taken,
            nodes_to_exclude=[],
            op_types_to_quantize=sorted(PRODUCTS),
            extra_options=OPTIONS,
        )
        quantizer.quantize_model()
    made: ModelProto = quantizer.model.model
    return made


def _wide(ranges: Mapping[str, Range], name: str) -> bool:
    return name in ranges and ranges[name][1] > ranges[name][0]


def _inline(model: ModelProto, weights: Path) -> None:
    """Bring external weights into the proto (in place): the quantizer reads them there."""
    external = external_tensors(model)
    if sum(nbytes(tensor) for tensor in external) > MOST_BYTES:
        raise UsageError(
            "CNV-2322",
            f"the weights have {sum(map(nbytes, external)):,} bytes, too many to be quantized in one file",
            hint="fp16, bf16 and mixed have no such limit; or quantize the model before it is exported",
        )
    for tensor in external:
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(tensor_array(tensor, weights)), tensor.name))


def _own_biases(model: ModelProto) -> None:
    """Give each product a bias of its own (in place).

    The quantizer copies a shared one under its name with a number behind it, which may be another value's name.
    """
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    names, taken = Names(model.graph), set()
    for node in model.graph.node:
        bias = node.input[2] if node.op_type in PRODUCTS and len(node.input) > 2 else ""
        if bias in taken and bias in held:
            node.input[2] = names.fresh(f"{bias}_own")
            copied = model.graph.initializer.add()
            copied.CopyFrom(held[bias])
            copied.name = node.input[2]
        taken.add(bias)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The quantizer talks to the root logger of each node that it leaves alone."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def scales_of(model: ModelProto) -> dict[str, tuple[float, int]]:
    """The scale and zero point of each value that a quantized model rounds as one tensor."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    found: dict[str, tuple[float, int]] = {}
    for node in model.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[1] not in held:
            continue
        scale = numpy_helper.to_array(held[node.input[1]])
        zero = numpy_helper.to_array(held[node.input[2]]) if len(node.input) > 2 else np.zeros((), np.int8)
        if scale.size == 1:
            name = node.input[0].removesuffix("_QuantizeInput")
            found[name] = float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0])
    return found


def is_quantized(model: ModelProto) -> bool:
    """Whether a model brings its own pairs."""
    return any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in model.graph.node)


def axis_of(op: str, tensor: TensorProto) -> int | None:
    """The axis of a weight whose channels have scales of their own."""
    if len(tensor.dims) < 2:
        return None
    return {"Conv": 0, "ConvTranspose": 1, "Gemm": len(tensor.dims) - 1}.get(op, len(tensor.dims) - 1)
