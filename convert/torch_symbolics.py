"""Operators that torch's TorchScript exporter can't write, or writes without what it needs later on (worker only).

It forgets the rank of an ``aten::unflatten`` whose sizes are computed, and then refuses the transpose behind it:
"ONNX export of transpose for tensor of unknown rank". Every traced ``torch.nn.MultiheadAttention`` has that. And a
model traced without gradients holds the fused operators of attention's fast path, for which torch has no ONNX form:
``aten::_native_multi_head_attention`` and ``aten::_transformer_encoder_layer_fwd`` (semantics:
https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/transformers/attention.cpp and transformer.cpp), and
with padding a nested tensor between them, which becomes a plain one whose mask is remembered here.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.onnx import symbolic_helper

_helper: Any = symbolic_helper
_onnx: Any = torch.onnx
FROM_OPSET = 13
FUSED_NORM_FROM = 17
"""The opset that LayerNormalization came with."""
SQUARE, PADDING = 0, 1
"""What a mask of the fast path is: one row for each query, or one for each sample; else it is whole."""


@contextlib.contextmanager
def mended_symbolics() -> Iterator[None]:
    """While the block runs, the exporter writes these operators as the functions below do."""
    nested = _Nested()
    symbolics = {
        "aten::unflatten": unflatten,
        "aten::_native_multi_head_attention": native_attention,
        "aten::_transformer_encoder_layer_fwd": nested.encoder_layer,
        "aten::_nested_tensor_from_mask": nested.from_mask,
        "aten::to_padded_tensor": nested.to_padded,
    }
    for name, symbolic in symbolics.items():
        _onnx.register_custom_op_symbolic(name, symbolic, FROM_OPSET)
    try:
        yield
    finally:
        for name in symbolics:
            _onnx.unregister_custom_op_symbolic(name, FROM_OPSET)


class _Nested:
    """Nested tensors of one export: plain ones [N, L, width], and which of their rows are real."""

    def __init__(self) -> None:
        self._real: dict[int, Any] = {}

    def from_mask(self, graph: Any, tensor: Any, mask: Any, check: Any) -> Any:
        """The tensor itself; ``mask`` [N, L] is true where a row is real."""
        made = graph.op("Identity", tensor)
        made.setType(tensor.type())
        self._real[made.unique()] = mask
        return made

    def encoder_layer(self, graph: Any, src: Any, *more: Any) -> Any:
        """As :func:`encoder_layer`; rows that are not real are hidden from all others."""
        real = self._real.get(src.unique())
        if real is None:
            return encoder_layer(graph, src, *more)
        hidden = graph.op("Not", graph.op("Cast", real, to_i=_onnx.TensorProtoDataType.BOOL))
        made = encoder_layer(graph, src, *(*more[:-2], hidden, PADDING))
        self._real[made.unique()] = real
        return made

    def to_padded(self, graph: Any, tensor: Any, padding: Any, size: Any) -> Any:
        """Rows that are not real become the padding; the size stays that of the mask."""
        real = self._real.get(tensor.unique())
        if real is None:
            return _helper._unimplemented("to_padded_tensor", "of a nested tensor that no mask made", tensor)
        rows = graph.op("Unsqueeze", graph.op("Cast", real, to_i=_onnx.TensorProtoDataType.BOOL), _ints(graph, -1))
        filling = _number(graph, _helper._get_const(padding, "f", "padding"), tensor)
        made = graph.op("Where", rows, tensor, filling)
        made.setType(tensor.type())
        return made


def unflatten(graph: Any, tensor: Any, dim: Any, sizes: Any) -> Any:
    """A Reshape of one dimension into several, whose result has a known rank; refused where that can't be known."""
    rank = _helper._get_tensor_rank(tensor)
    if rank is None or not (_helper._is_packed_list(sizes) or _helper._is_constant(sizes)):
        return _helper._unimplemented("unflatten", "the rank of its result must be known", tensor)
    at = _helper._get_const(dim, "i", "dim") % rank
    parts = _parts(graph, sizes)
    shape = graph.op("Shape", tensor)
    head = [graph.op("Slice", shape, _ints(graph, 0), _ints(graph, at))] if at else []
    tail = [graph.op("Slice", shape, _ints(graph, at + 1), _ints(graph, rank))] if at + 1 < rank else []
    made = graph.op("Reshape", tensor, graph.op("Concat", *head, *parts, *tail, axis_i=0))
    made.setType(tensor.type().with_sizes([None] * (rank - 1 + len(parts))))
    return made


def _parts(graph: Any, sizes: Any) -> list[Any]:
    """Each new size as a tensor int64[1]."""
    if _helper._is_packed_list(sizes):
        return [graph.op("Reshape", part, _ints(graph, 1)) for part in _helper._unpack_list(sizes)]
    return [_ints(graph, size) for size in _helper._get_const(sizes, "is", "sizes")]


class _Attention(NamedTuple):
    """The weights of self-attention, and what hides keys. ``mask`` is None where nothing does."""

    heads: int
    width: int
    qkv: tuple[Any, Any]
    out: tuple[Any, Any]
    mask: Any
    kind: int


def native_attention(
    graph: Any, query: Any, key: Any, value: Any, embed_dim: Any, num_head: Any, qkv_weight: Any, qkv_bias: Any,
    proj_weight: Any, proj_bias: Any, mask: Any, need_weights: Any, average: Any, mask_type: Any,
) -> Any:  # fmt: skip
    """Self-attention of one tensor, and its weights where they are asked for."""
    if not query.debugName() == key.debugName() == value.debugName():
        return _helper._unimplemented("_native_multi_head_attention", "attention to another tensor", query)
    heads, width = _helper._get_const(num_head, "i", "num_head"), _helper._get_const(embed_dim, "i", "embed_dim")
    how = _Attention(heads, width, (qkv_weight, qkv_bias), (proj_weight, proj_bias), *_mask(mask, mask_type))
    made, weights = _attention(graph, query, how)
    if _helper._get_const(need_weights, "b", "need_weights"):
        if _helper._get_const(average, "b", "average_attn_weights"):
            parts = _number(graph, heads, query)
            weights = graph.op("Div", _sum(graph, weights, 1), parts)
        return made, weights
    return made, graph.op("Constant", value_t=torch.zeros(0))


def encoder_layer(
    graph: Any, src: Any, embed_dim: Any, num_heads: Any, qkv_weight: Any, qkv_bias: Any, proj_weight: Any,
    proj_bias: Any, use_gelu: Any, norm_first: Any, eps: Any, norm_weight_1: Any, norm_bias_1: Any,
    norm_weight_2: Any, norm_bias_2: Any, ffn_weight_1: Any, ffn_bias_1: Any, ffn_weight_2: Any, ffn_bias_2: Any,
    mask: Any, mask_type: Any,
) -> Any:  # fmt: skip
    """A layer of ``torch.nn.TransformerEncoder``: attention and two linear layers, each with a norm and a shortcut."""
    heads, width = _helper._get_const(num_heads, "i", "num_heads"), _helper._get_const(embed_dim, "i", "embed_dim")
    how = _Attention(heads, width, (qkv_weight, qkv_bias), (proj_weight, proj_bias), *_mask(mask, mask_type))
    first = _helper._get_const(norm_first, "b", "norm_first")
    epsilon = _helper._get_const(eps, "f", "eps")
    activate = _gelu if _helper._get_const(use_gelu, "b", "use_gelu") else _relu

    def attend(tensor: Any) -> Any:
        return _attention(graph, tensor, how)[0]

    def feed_forward(tensor: Any) -> Any:
        wide = activate(graph, _linear(graph, tensor, ffn_weight_1, ffn_bias_1))
        return _linear(graph, wide, ffn_weight_2, ffn_bias_2)

    tensor = src
    for step, norm in ((attend, (norm_weight_1, norm_bias_1)), (feed_forward, (norm_weight_2, norm_bias_2))):
        if first:
            tensor = graph.op("Add", tensor, step(_norm(graph, tensor, norm, epsilon)))
        else:
            tensor = _norm(graph, graph.op("Add", tensor, step(tensor)), norm, epsilon)
    tensor.setType(src.type())
    return tensor


def _mask(mask: Any, mask_type: Any) -> tuple[Any, int]:
    """The mask, None for none, and what it is."""
    if isinstance(mask_type, int):
        return mask, mask_type
    if _helper._is_none(mask):
        return None, -1
    return mask, -1 if _helper._is_none(mask_type) else _helper._get_const(mask_type, "i", "mask_type")


def _attention(graph: Any, tensor: Any, how: _Attention) -> tuple[Any, Any]:
    """Scaled dot product attention of [N, L, width] to itself; its result and its weights [N, heads, L, L]."""
    size = how.width // how.heads
    packed = graph.op("Reshape", _linear(graph, tensor, *how.qkv), _ints(graph, 0, -1, 3, how.heads, size))
    apart = graph.op("Transpose", packed, perm_i=[2, 0, 3, 1, 4])
    query, key, value = (
        graph.op("Gather", apart, graph.op("Constant", value_t=torch.tensor(index)), axis_i=0) for index in range(3)
    )
    scaled = graph.op("Mul", query, _number(graph, 1 / math.sqrt(size), tensor))
    scores = graph.op("MatMul", scaled, graph.op("Transpose", key, perm_i=[0, 1, 3, 2]))
    if how.mask is not None:
        # What is not zero hides, whether it is True or a number (masked_softmax casts to bool).
        hidden = graph.op("Cast", how.mask, to_i=_onnx.TensorProtoDataType.BOOL)
        axes = {SQUARE: (0, 1), PADDING: (1, 2)}.get(how.kind)
        if axes is not None:
            hidden = graph.op("Unsqueeze", hidden, _ints(graph, *axes))
        scores = graph.op("Where", hidden, _number(graph, -math.inf, tensor), scores)
    weights = graph.op("Softmax", scores, axis_i=-1)
    mixed = graph.op("Transpose", graph.op("MatMul", weights, value), perm_i=[0, 2, 1, 3])
    made = _linear(graph, graph.op("Reshape", mixed, _ints(graph, 0, -1, how.width)), *how.out)
    made.setType(tensor.type())
    return made, weights


def _linear(graph: Any, tensor: Any, weight: Any, bias: Any) -> Any:
    return graph.op("Add", graph.op("MatMul", tensor, graph.op("Transpose", weight, perm_i=[1, 0])), bias)


def _norm(graph: Any, tensor: Any, weights: tuple[Any, Any], epsilon: float) -> Any:
    """A layer norm over the last dimension."""
    if graph.opset >= FUSED_NORM_FROM:
        return graph.op("LayerNormalization", tensor, *weights, axis_i=-1, epsilon_f=epsilon)
    centred = graph.op("Sub", tensor, graph.op("ReduceMean", tensor, axes_i=[-1]))
    variance = graph.op("ReduceMean", graph.op("Mul", centred, centred), axes_i=[-1])
    spread = graph.op("Sqrt", graph.op("Add", variance, _number(graph, epsilon, tensor)))
    return graph.op("Add", graph.op("Mul", graph.op("Div", centred, spread), weights[0]), weights[1])


def _gelu(graph: Any, tensor: Any) -> Any:
    erf = graph.op("Erf", graph.op("Mul", tensor, _number(graph, math.sqrt(0.5), tensor)))
    half = graph.op("Mul", tensor, _number(graph, 0.5, tensor))
    return graph.op("Mul", half, graph.op("Add", erf, _number(graph, 1.0, tensor)))


def _relu(graph: Any, tensor: Any) -> Any:
    return graph.op("Relu", tensor)


def _sum(graph: Any, tensor: Any, axis: int) -> Any:
    return graph.op("ReduceSum", tensor, _ints(graph, axis), keepdims_i=0)


def _number(graph: Any, value: float, like: Any) -> Any:
    """A scalar of a tensor's dtype."""
    kind = like.type()
    dtype = kind.dtype() if hasattr(kind, "dtype") else None
    return graph.op("Constant", value_t=torch.tensor(value, dtype=dtype or torch.float32))


def _ints(graph: Any, *values: int) -> Any:
    return graph.op("Constant", value_t=torch.tensor(values, dtype=torch.int64))
