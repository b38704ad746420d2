"""What the rewrites of quantized graphs share: a DequantizeLinear, and the QuantizeLinear that it undoes."""

from __future__ import annotations

from onnx import NodeProto, TensorProto

from convert.lowering.rules.quantization import dequantize_by_arithmetic
from convert.lowering.site import Refuse, Site

STORED = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16, TensorProto.INT32)


def is_dequantize(site: Site) -> bool:
    """Whether a node is a DequantizeLinear of plain integers, by one scale or one per channel."""
    return site.node.op_type == "DequantizeLinear" and site.scope.dtype(site.inp(0)) in STORED


def quantize_before(site: Site) -> NodeProto | None:
    """The QuantizeLinear of the same scale and zero point that a DequantizeLinear undoes; None for a stored value.

    Refuses what is neither: integers that a node computes.
    """
    owner = site.scope.defines(site.inp(0))
    maker = owner.makers.get(site.inp(0)) if owner is not None else None
    if maker is None or maker.op_type in ("Constant", "Identity"):
        if owner is None or site.inp(0) in owner.inputs:
            raise Refuse("the integers come from outside")
        return None
    same = maker.op_type == "QuantizeLinear" and list(maker.input[1:]) == list(site.node.input[1:])
    if not same or _attribute(maker, "axis", 1) != site.attr("axis", 1) or _attribute(maker, "block_size", 0):
        raise Refuse("it does not undo a QuantizeLinear of the same scale")
    return maker


def _attribute(node: NodeProto, name: str, default: int) -> int:
    return next((int(found.i) for found in node.attribute if found.name == name), default)


def stored_as_float(site: Site) -> None:
    """Stored integers (weights) as the floats that they stand for."""
    if site.attr("block_size", 0) or site.dtype(site.inp(1)) != TensorProto.FLOAT:
        raise Refuse("blocks, and scales that are not float32")
    dequantize_by_arithmetic(site)
