"""For every rewrite: a graph where it applies, one where it must not, and a way to draw graphs at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from rewrite_draws import (
    DIM,
    OTHER_SCALE,
    PAIR,
    RELU,
    SMALL_LOOP,
    Draw,
    attention,
    backwards,
    chained,
    deformed,
    drawn_shape,
    einsum,
    fused_gelu,
    fused_layer_norm,
    gathered,
    graph,
    grid_sample,
    group_norm,
    handed_on,
    layer_norm,
    left_open,
    listed,
    looped,
    masked,
    named,
    narrowed,
    one_dimensional,
    one_input,
    padded,
    pooled,
    quantized,
    recurrent,
    reshaped,
    resized,
    rms_norm,
    scanned,
    scattered,
    sized,
    sliced,
    smoothed,
    told_by_arithmetic,
    told_defaults,
    trilu,
    unary,
    unsorted_top,
    widely_pooled,
    written_out,
)


class Case(NamedTuple):
    """``name`` may carry an argument. ``draw`` makes a graph on which the rewrite must apply."""

    name: str
    applies: str
    not_there: str
    draw: Callable[[Draw], str]


SAME_POOL = 'MaxPool<auto_pad = "SAME_LOWER", kernel_shape = [2, 2], strides = [2, 2]>'
TORCH_RESIZE = 'Resize<mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel">'
LAYER_NORM = (
    "(float[N,4] x, float[4] w, float[4] b) => (float[N,4] y) <float e = {0.001}, int64[1] a = {-1}> "
    "{ m = ReduceMean(x, a) c = Sub(x, m) s = Mul(c, c) v = ReduceMean(s, a) t = Add(v, e) q = Sqrt(t) "
    "n = Div(c, q) k = Mul(n, w) y = Add(k, b) }"
)
SHRINK = "(float[1,1,4,4] x) => (float[1,1,2,2] y) <int64[4] s = {1,1,2,2}> "
CASES = (
    Case(
        "antialias-to-matmul",
        SHRINK + '{ y = Resize<mode = "linear", antialias = 1>(x, , , s) }',
        SHRINK + '{ y = Resize<mode = "linear">(x, , , s) }',
        smoothed,
    ),
    Case(
        "deformconv-to-gather",
        "(float[1,1,3,3] x, float[1,1,2,2] w, float[1,8,2,2] o) => (float[1,1,2,2] y) "
        "{ y = DeformConv<kernel_shape = [2, 2]>(x, w, o) }",
        "(float[1,1,3,3] x, float[1,1,2,2] w) => (float[1,1,2,2] y) { y = Conv(x, w) }",
        deformed,
    ),
    Case(
        "rnn-direction",
        "(float[3,2,4] x, float[1,5,4] w, float[1,5,5] r) => (float[3,1,2,5] y) "
        '{ y = RNN<hidden_size = 5, direction = "reverse">(x, w, r) }',
        "(float[3,2,4] x, float[1,5,4] w, float[1,5,5] r, int32[2] n) => (float[3,1,2,5] y) "
        '{ y = RNN<hidden_size = 5, direction = "reverse">(x, w, r, , n) }',
        backwards,
    ),
    Case(
        "scatter-to-loop",
        "(float[4] x, float[2] u) => (float[4] y) <int64[2,1] i = {1, 1}> "
        '{ y = ScatterND<reduction = "add">(x, i, u) }',
        "(float[4] x, float[2] u) => (float[4] y) <int64[2,1] i = {1, 2}> { y = ScatterND(x, i, u) }",
        scattered,
    ),
    Case("swish-to-sigmoid", one_input("Swish"), RELU, unary("Swish")),
    Case(
        "unroll-scan",
        "(float[2] s, float[3,2] x) => (float[2] l, float[3,2] y) { l, y = Scan<num_scan_inputs = 1, "
        "body = b (float[2] a, float[2] i) => (float[2] n, float[2] o) { n = Add(a, i) o = Neg(n) }>(s, x) }",
        "(float[2] s, float[N,2] x) => (float[2] l, float[N,2] y) { l, y = Scan<num_scan_inputs = 1, "
        "body = b (float[2] a, float[2] i) => (float[2] n, float[2] o) { n = Add(a, i) o = Neg(n) }>(s, x) }",
        scanned,
    ),
    Case(
        "attention-to-primitives",
        "(float[1,2,N,4] q, float[1,2,M,4] k, float[1,2,M,4] v) => (float[1,2,N,4] y) { y = Attention(q, k, v) }",
        RELU,
        attention,
    ),
    Case(
        "drop-identities",
        "(float[2] x) => (float[2] y) { h = Identity(x) y = Neg(h) }",
        one_input("Identity"),
        handed_on,
    ),
    Case(
        "einsum-to-matmul",
        '(float[N,3] x, float[3,M] z) => (float[N,M] y) { y = Einsum<equation = "ij,jk->ik">(x, z) }',
        RELU,
        einsum,
    ),
    Case(
        "explicit-pads",
        f"(float[1,1,5,5] x) => (float[1,1,3,3] y) {{ y = {SAME_POOL}(x) }}",
        f"(float[1,1,H,5] x) => (float[1,1,A,B] y) {{ y = {SAME_POOL}(x) }}",
        pooled,
    ),
    Case("fix-dims:N=1", RELU, one_input("Relu", "M,4"), lambda draw: one_input("Relu", f"N,{draw(DIM)}")),
    Case(
        "fp16-masks",
        "(float[2,4] x, bool[2,4] k) => (float[2,4] y) <float n = {-1e9}> { m = Where(k, x, n) y = Softmax(m) }",
        "(float[2,4] x, bool[2,4] k) => (float[2,4] y) <float n = {-1e9}> { m = Where(k, x, n) y = Neg(m) }",
        masked,
    ),
    Case(
        "fuse-gelu",
        "(float[N] x) => (float[N] y) <float r = {1.41421354}, float h = {0.5}, float o = {1.0}> "
        "{ d = Div(x, r) e = Erf(d) f = Add(e, o) m = Mul(x, f) y = Mul(m, h) }",
        "(float[N] x) => (float[N] y) <float r = {1.5}, float h = {0.5}, float o = {1.0}> "
        "{ d = Div(x, r) e = Erf(d) f = Add(e, o) m = Mul(x, f) y = Mul(m, h) }",
        fused_gelu,
    ),
    Case(
        "fuse-layernorm",
        LAYER_NORM,
        LAYER_NORM.replace("a = {-1}", "a = {0}"),
        fused_layer_norm,
    ),
    Case(
        "gelu-to-primitives",
        one_input("Gelu"),
        RELU,
        lambda draw: one_input(f'Gelu<approximate = "{draw(st.sampled_from(["none", "tanh"]))}">', drawn_shape(draw)),
    ),
    Case(
        "gridsample-to-gather",
        "(float[1,1,3,3] x, float[1,2,2,2] g) => (float[1,1,2,2] y) { y = GridSample(x, g) }",
        RELU,
        grid_sample,
    ),
    Case(
        "groupnorm-to-instancenorm",
        "(float[2,4,3,3] x, float[4] w, float[4] b) => (float[2,4,3,3] y) "
        "{ y = GroupNormalization<num_groups = 2>(x, w, b) }",
        RELU,
        group_norm,
    ),
    Case("hardswish-to-hardsigmoid", one_input("HardSwish"), RELU, unary("HardSwish")),
    Case("imports", RELU, RELU, lambda draw: one_input("Relu", drawn_shape(draw))),
    Case(
        "indices-to-int32",
        "(float[4] x) => (float[2] y) <int64[2] i = {1, 3}> { y = Gather(x, i) }",
        "(float[4] x, int64[2] i) => (float[2] y) { y = Gather(x, i) }",
        gathered,
    ),
    Case(
        "computed-indices-to-int32",
        "(float[N,3] x, float[3] w) => (float[N] y) { i = ArgMax<axis = 1, keepdims = 0>(x) y = Gather(w, i) }",
        "(float[M] x, int64[2] i) => (float[2] y) { j = Add(i, i) y = Gather(x, j) }",
        narrowed,
    ),
    Case("qdq-to-primitives", PAIR, OTHER_SCALE, quantized),
    Case("qdq-strip", PAIR, OTHER_SCALE, quantized),
    Case(
        "layernorm-to-primitives",
        "(float[N,4] x, float[4] w) => (float[N,4] y) { y = LayerNormalization(x, w) }",
        RELU,
        layer_norm,
    ),
    Case("mish-to-softplus", one_input("Mish"), RELU, unary("Mish")),
    Case(
        "node-names",
        '(float[2] x) => (float[2] y) { ["a b"] y = Neg(x) }',
        "(float[2] x) => (float[2] y) { [n] y = Neg(x) }",
        named,
    ),
    Case(
        "pad-to-gather",
        '(float[2,3] x) => (float[A,B] y) <int64[4] p = {0,1,1,2}> { y = Pad<mode = "reflect">(x, p) }',
        '(float[2,N] x) => (float[A,B] y) <int64[4] p = {0,1,1,2}> { y = Pad<mode = "reflect">(x, p) }',
        padded,
    ),
    Case(
        "resize-half-pixel",
        f"(float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {{1,1,2,2}}> {{ y = {TORCH_RESIZE}(x, , s) }}",
        f"(float[1,1,2,2] x) => (float[1,1,1,1] y) <float[4] s = {{1,1,0.5,0.5}}> {{ y = {TORCH_RESIZE}(x, , s) }}",
        resized,
    ),
    Case(
        "rmsnorm-to-primitives",
        "(float[N,4] x, float[4] w) => (float[N,4] y) { y = RMSNormalization(x, w) }",
        RELU,
        rms_norm,
    ),
    Case(
        "rnn-layout",
        "(float[2,3,4] x, float[1,5,4] w, float[1,5,5] r) => (float[2,3,1,5] y) "
        "{ y = RNN<hidden_size = 5, layout = 1>(x, w, r) }",
        "(float[3,2,4] x, float[1,5,4] w, float[1,5,5] r) => (float[3,1,2,5] y) { y = RNN<hidden_size = 5>(x, w, r) }",
        recurrent,
    ),
    Case("sort-nodes", "(float[2] x) => (float[2] y) { y = Neg(h) h = Abs(x) }", RELU, chained),
    Case("tie-weights", RELU, RELU, lambda draw: one_input("Relu", drawn_shape(draw))),
    Case("trilu-to-where", "(float[3,4] x) => (float[3,4] y) { y = Trilu(x) }", RELU, trilu),
    Case(
        "unroll-loop",
        "(float[2] x) => (float[2] y) <int64 n = {3}> { y = Loop(n, , x) <body = b (int64 i, bool g, float[2] s) => "
        "(bool h, float[2] t) { h = Identity(g) t = Add(s, s) }> }",
        SMALL_LOOP,
        looped,
    ),
    Case(
        "computed-constants",
        "(float[2,N] x) => (float[2,M] y) <int64[1] a = {0}, int64[1] one = {1}> "
        "{ s = Shape<start = 0, end = 1>(x) p = Concat<axis = 0>(a, one, a, s) y = Pad(x, p) }",
        "(float[2,N] x) => (float[2,M] y) <int64[1] a = {0}, int64[1] one = {1}> "
        "{ s = Shape<start = 1, end = 2>(x) p = Concat<axis = 0>(a, one, a, s) y = Pad(x, p) }",
        told_by_arithmetic,
    ),
    Case(
        "known-sizes",
        "(float[2,N] x, float[3] z) => (int64 y) { a = Size(x) b = Size(z) y = Add(a, b) }",
        "(float[N,3] x) => (int64[2] y) { y = Shape(x) }",
        sized,
    ),
    Case(
        "lift-1d",
        "(float[N,2,L] x, float[3,2,3] w) => (float[N,3,M] y) { y = Conv<pads = [1, 1]>(x, w) }",
        "(float[N,2,L,L] x, float[3,2,3,3] w) => (float[N,3,M,M] y) { y = Conv(x, w) }",
        one_dimensional,
    ),
    Case(
        "pairwise",
        "(float[N] x, float[N] z, float[1] w) => (float[N] y) { y = Max(x, z, w) }",
        "(float[N] x, float[N] z) => (float[N] y) { y = Max(x, z) }",
        listed,
    ),
    Case(
        "reshape-allowzero",
        "(float[2,3] x) => (float[3,2] y) <int64[2] s = {3, -1}> { y = Reshape<allowzero = 1>(x, s) }",
        "(float[0,3] x) => (float[0,2] y) <int64[2] s = {0, 2}> { y = Reshape<allowzero = 1>(x, s) }",
        reshaped,
    ),
    Case(
        "rnn-defaults",
        "(float[3,2,4] x, float[1,5,4] w, float[1,5,5] r) => (float[3,1,2,5] y) "
        '{ y = RNN<hidden_size = 5, activations = ["Tanh"]>(x, w, r) }',
        "(float[3,2,4] x, float[1,5,4] w, float[1,5,5] r) => (float[3,1,2,5] y) "
        '{ y = RNN<hidden_size = 5, activations = ["Relu"]>(x, w, r) }',
        told_defaults,
    ),
    Case(
        "rnn-to-primitives",
        "(float[3,N,4] x, float[1,15,4] w, float[1,15,5] r, float[1,30] b) => (float[3,1,N,5] y) "
        "{ y = GRU<hidden_size = 5, linear_before_reset = 1>(x, w, r, b) }",
        "(float[T,2,4] x, float[1,15,4] w, float[1,15,5] r, float[1,30] b) => (float[T,1,2,5] y) "
        "{ y = GRU<hidden_size = 5, linear_before_reset = 1>(x, w, r, b) }",
        written_out,
    ),
    Case(
        "slice-bounds",
        "(float[N,4] x) => (float[M,4] y) <int64[1] s = {1}, int64[1] e = {9223372036854775807}> "
        "{ y = Slice(x, s, e) }",
        "(int64[N] x) => (int64[N] y) <int64[1] e = {9223372036854775807}> { y = Min(x, e) }",
        sliced,
    ),
    Case(
        "split-maxpool",
        "(float[1,2,24,24] x) => (float[1,2,3,3] y) { y = MaxPool<kernel_shape = [20, 20], strides = [2, 2]>(x) }",
        "(float[1,2,24,24] x) => (float[1,2,12,12] y) { y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) }",
        widely_pooled,
    ),
    Case(
        "topk-sorted",
        "(float[N,4] x) => (float[N,1] y) <int64[1] k = {2}, int64[1] a = {1}> "
        "{ v, i = TopK<sorted = 0>(x, k) y = ReduceSum(v, a) }",
        "(float[N,4] x) => (float[N,2] y) <int64[1] k = {2}> { y, i = TopK(x, k) }",
        unsorted_top,
    ),
    Case(
        "write-defaults",
        "(float[N,2,5,5] x, float[3,2,3,3] w) => (float[N,3,3,3] y) { y = Conv(x, w) }",
        "(float[N,2,5,5] x, float[3,2,H,W] w) => (float[N,3,A,B] y) { y = Conv(x, w) }",
        left_open,
    ),
    Case("weights-not-inputs", RELU, RELU, lambda draw: one_input("Relu", drawn_shape(draw))),
)
NEWER = {
    "swish-to-sigmoid": 24,
    "attention-to-primitives": 23,
    "rmsnorm-to-primitives": 23,
    "groupnorm-to-instancenorm": 21,
}


def prepared(case: Case, text: str) -> onnx.ModelProto:
    """A case's graph as a model, with what text can't say added where the rewrite is about that."""
    name = case.name.partition(":")[0]
    model = graph(text, NEWER.get(name, 20))
    if name == "imports":
        model.opset_import.add(domain="com.unused", version=1)
    if name in ("tie-weights", "weights-not-inputs"):
        _add_weights(model, as_input=name == "weights-not-inputs")
    return model


def _add_weights(model: onnx.ModelProto, *, as_input: bool) -> None:
    """Two equal weights added to the output one after the other."""
    last = "x"
    del model.graph.node[:]
    for name in ("w1", "w2"):
        weight = numpy_helper.from_array(np.full(512, 2.0, np.float32), name)
        model.graph.initializer.append(weight)
        if as_input:
            model.graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [512]))
        target = "y" if name == "w2" else "h"
        model.graph.node.append(helper.make_node("ReduceSum", [name], [f"{name}_sum"], keepdims=0))
        model.graph.node.append(helper.make_node("Mul", [last, f"{name}_sum"], [target]))
        last = target
