"""For every rewrite: a graph where it applies, one where it must not, and a way to draw graphs at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper, parser

Draw = Callable[..., int]
DIM = st.integers(1, 5)


class Case(NamedTuple):
    """``name`` may carry an argument. ``draw`` makes a graph on which the rewrite must apply."""

    name: str
    applies: str
    not_there: str
    draw: Callable[[Draw], str]


def graph(text: str, opset: int = 20) -> onnx.ModelProto:
    """A model from the text of a graph."""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> agraph {text}')


def one_input(op: str, shape: str = "N,4") -> str:
    return f"(float[{shape}] x) => (float[{shape}] y) {{ y = {op}(x) }}"


def drawn_shape(draw: Draw) -> str:
    return ",".join(str(draw(DIM)) for _ in range(draw(st.integers(1, 4))))


def unary(op: str) -> Callable[[Draw], str]:
    return lambda draw: one_input(op, drawn_shape(draw))


def layer_norm(draw: Draw) -> str:
    rank = draw(st.integers(1, 4))
    dims = [draw(DIM) for _ in range(rank)]
    axis = draw(st.integers(0, rank - 1))
    scale = ",".join(str(d) for d in dims[axis:])
    sign = draw(st.sampled_from([0, rank]))
    shape = ",".join(map(str, dims))
    return (
        f"(float[{shape}] x, float[{scale}] w, float[{scale}] b) => (float[{shape}] y) "
        f"{{ y = LayerNormalization<axis = {axis - sign}, epsilon = 0.001>(x, w, b) }}"
    )


def rms_norm(draw: Draw) -> str:
    width, rows = draw(DIM), draw(DIM)
    return f"(float[{rows},{width}] x, float[{width}] w) => (float[{rows},{width}] y) {{ y = RMSNormalization(x, w) }}"


def group_norm(draw: Draw) -> str:
    groups, each, size = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(2, 4))
    count = groups * each
    return (
        f"(float[2,{count},{size},{size}] x, float[{count}] w, float[{count}] b) => (float[2,{count},{size},{size}] y) "
        f"{{ y = GroupNormalization<num_groups = {groups}>(x, w, b) }}"
    )


def einsum(draw: Draw) -> str:
    sizes = {letter: draw(DIM) for letter in "bijk"}
    left, right, out = draw(
        st.sampled_from(
            [("ij", "jk", "ik"), ("bij", "bjk", "bik"), ("ij", "kj", "ki"), ("i", "j", "ij"), ("bij", "kj", "bk")]
        )
    )
    shapes = [",".join(str(sizes[letter]) for letter in term) for term in (left, right, out)]
    return (
        f"(float[{shapes[0]}] x, float[{shapes[1]}] z) => (float[{shapes[2]}] y) "
        f'{{ y = Einsum<equation = "{left},{right}->{out}">(x, z) }}'
    )


def trilu(draw: Draw) -> str:
    rows, columns, upper = draw(DIM), draw(DIM), draw(st.integers(0, 1))
    offset = draw(st.integers(-3, 3))
    return (
        f"(float[2,{rows},{columns}] x) => (float[2,{rows},{columns}] y) <int64 k = {{{offset}}}> "
        f"{{ y = Trilu<upper = {upper}>(x, k) }}"
    )


def grid_sample(draw: Draw) -> str:
    mode = draw(st.sampled_from(["linear", "nearest", "cubic"]))
    padding = draw(st.sampled_from(["zeros", "border", "reflection"]))
    align, size = draw(st.integers(0, 1)), draw(st.integers(2, 5))
    return (
        f"(float[2,3,{size},4] x, float[2,3,2,2] g) => (float[2,3,3,2] y) "
        f'{{ y = GridSample<mode = "{mode}", padding_mode = "{padding}", align_corners = {align}>(x, g) }}'
    )


def pooled(draw: Draw) -> str:
    op = draw(st.sampled_from(["AveragePool", "MaxPool", "LpPool"]))
    mode = draw(st.sampled_from(["SAME_LOWER", "SAME_UPPER", "VALID"]))
    kernel, stride, size = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(3, 7))
    return (
        f"(float[1,2,{size},{size}] x) => (float[1,2,H,W] y) "
        f'{{ y = {op}<auto_pad = "{mode}", kernel_shape = [{kernel}, {kernel}], strides = [{stride}, {stride}]>(x) }}'
    )


def padded(draw: Draw) -> str:
    mode = draw(st.sampled_from(["reflect", "edge", "wrap"]))
    pads = [draw(st.integers(0, 2)) for _ in range(4)]
    rows, columns = draw(st.integers(3, 5)), draw(st.integers(3, 5))
    numbers = ",".join(map(str, pads))
    return (
        f"(float[{rows},{columns}] x) => (float[A,B] y) <int64[4] p = {{{numbers}}}> "
        f'{{ y = Pad<mode = "{mode}">(x, p) }}'
    )


def resized(draw: Draw) -> str:
    size, factor = draw(st.integers(2, 4)), draw(st.integers(2, 3))
    mode = draw(st.sampled_from(["linear", "nearest", "cubic"]))
    symmetric = draw(st.sampled_from(["pytorch_half_pixel", "half_pixel_symmetric"]))
    return (
        f"(float[1,1,{size},{size}] x) => (float[1,1,{size * factor},{size * factor}] y) "
        f"<float[4] s = {{1,1,{factor},{factor}}}> "
        f'{{ y = Resize<mode = "{mode}", coordinate_transformation_mode = "{symmetric}">(x, , s) }}'
    )


def gathered(draw: Draw) -> str:
    size, count = draw(DIM), draw(DIM)
    places = [str(draw(st.integers(-size, size - 1))) for _ in range(count)]
    numbers = ",".join(places)
    return f"(float[{size},3] x) => (float[{count},3] y) <int64[{count}] i = {{{numbers}}}> {{ y = Gather(x, i) }}"


def looped(draw: Draw) -> str:
    rounds, width = draw(st.integers(1, 5)), draw(DIM)
    op = draw(st.sampled_from(["Add", "Mul", "Max"]))
    return (
        f"(float[{width}] x) => (float[{width}] y, float[{rounds},{width}] z) <int64 n = {{{rounds}}}, bool c = {{1}}> "
        f"{{ y, z = Loop(n, c, x) <body = b (int64 i, bool g, float[{width}] s) => (bool h, float[{width}] t, "
        f"float[{width}] u) {{ h = Identity(g) f = Cast<to = 1>(i) t = {op}(s, f) u = Neg(s) }}> }}"
    )


def masked(draw: Draw) -> str:
    rows, columns = draw(DIM), draw(st.integers(2, 5))
    value = draw(st.sampled_from(["-1e9", "-3.4e38", "-100000.0"]))
    return (
        f"(float[{rows},{columns}] x, bool[{rows},{columns}] k) => (float[{rows},{columns}] y) <float n = {{{value}}}> "
        f"{{ m = Where(k, x, n) y = Softmax<axis = -1>(m) }}"
    )


def recurrent(draw: Draw) -> str:
    op, gates = draw(st.sampled_from([("RNN", 1), ("GRU", 3), ("LSTM", 4)]))
    batch, steps, width, hidden = (draw(st.integers(1, 3)) for _ in range(4))
    return (
        f"(float[{batch},{steps},{width}] x, "
        f"float[1,{gates * hidden},{width}] w, float[1,{gates * hidden},{hidden}] r) "
        f"=> (float[{batch},{steps},1,{hidden}] y, float[{batch},1,{hidden}] h) "
        f"{{ y, h = {op}<hidden_size = {hidden}, layout = 1>(x, w, r) }}"
    )


def attention(draw: Draw) -> str:
    heads, width, queries, keys = (draw(st.integers(1, 3)) for _ in range(4))
    causal = draw(st.integers(0, 1))
    return (
        f"(float[2,{heads},{queries},{width}] q, float[2,{heads},{keys},{width}] k, float[2,{heads},{keys},{width}] v) "
        f"=> (float[2,{heads},{queries},{width}] y) {{ y = Attention<is_causal = {causal}>(q, k, v) }}"
    )


def fused_gelu(draw: Draw) -> str:
    shape = drawn_shape(draw)
    body = draw(
        st.sampled_from(["m = Mul(x, f) y = Mul(m, h)", "m = Mul(x, h) y = Mul(m, f)", "m = Mul(h, x) y = Mul(f, m)"])
    )
    return (
        f"(float[{shape}] x) => (float[{shape}] y) <float r = {{1.41421354}}, float h = {{0.5}}, float o = {{1.0}}> "
        f"{{ d = Div(x, r) e = Erf(d) f = Add(e, o) {body} }}"
    )


def fused_layer_norm(draw: Draw) -> str:
    rows, width = draw(DIM), draw(st.integers(2, 5))
    square = draw(st.sampled_from(["s = Mul(c, c)", "s = Pow(c, two)"]))
    return (
        f"(float[{rows},{width}] x, float[{width}] w, float[{width}] b) => (float[{rows},{width}] y) "
        f"<float e = {{0.001}}, float two = {{2.0}}, int64[1] a = {{-1}}> "
        f"{{ m = ReduceMean(x, a) c = Sub(x, m) {square} v = ReduceMean(s, a) t = Add(v, e) q = Sqrt(t) "
        f"n = Div(c, q) k = Mul(n, w) y = Add(k, b) }}"
    )


def chained(draw: Draw) -> str:
    """Nodes in a shuffled order."""
    count = draw(st.integers(2, 5))
    lines = [f"v{i + 1} = Neg(v{i})" for i in range(count)]
    order = draw(st.permutations(range(count)))
    if list(order) == list(range(count)):
        order = list(reversed(order))
    return f"(float[2] v0) => (float[2] v{count}) {{ {' '.join(lines[i] for i in order)} }}"


def named(draw: Draw) -> str:
    bad = draw(st.sampled_from(["a b", "été", "a:b", "n"]))
    return f'(float[2] x) => (float[2] y) {{ ["{bad}"] h = Neg(x) ["{bad}"] y = Abs(h) }}'


def handed_on(draw: Draw) -> str:
    op = draw(st.sampled_from(["Identity", "Dropout", "Cast<to = 1>"]))
    return f"(float[{drawn_shape(draw)}] x) => (float y) {{ h = {op}(x) y = ReduceSum<keepdims = 0>(h) }}"


def narrowed(draw: Draw) -> str:
    """Indices that a node computes, into a table whose length is known, or is not and need not be."""
    rows = draw(DIM)
    # An open table is drawn with two rows at least.
    width, length = draw(st.sampled_from([(2, "M"), (2, "2"), (3, "3"), (5, "5")]))
    chain = draw(
        st.sampled_from(
            [
                "i = ArgMax<axis = 1, keepdims = 0>(x)",
                "j = ArgMin<axis = 1, keepdims = 0>(x) n = Neg(j) i = Sub(n, one)",
                "j = ArgMax<axis = 1, keepdims = 0>(x) k = Mul(j, big) i = Mod(k, two)",
                "v, t = TopK<axis = 1>(x, one_) i = Squeeze(t, one_)",
                "j = ArgMax<axis = 1, keepdims = 0>(x) c = Cast<to = 6>(j) i = Cast<to = 7>(c)",
                "j = ArgMax<axis = 1, keepdims = 0>(x) k = Mul(j, big) i = Clip(k, zero, one)",
            ]
        )
    )
    return (
        f"(float[{rows},{width}] x, float[{length}] w) => (float[{rows}] y) "
        f"<int64 one = {{1}}, int64 two = {{2}}, int64 zero = {{0}}, int64[1] one_ = {{1}}, int64 big = {{1000}}> "
        f"{{ {chain} y = Gather(w, i) }}"
    )


def quantized(draw: Draw) -> str:
    rows, width = draw(DIM), draw(st.integers(1, 4))
    kind, zero = draw(st.sampled_from([("int8", 0), ("int8", -3), ("uint8", 128)]))
    scales = draw(st.sampled_from([("", "0.05", str(zero)), (f"[{width}]", None, None)]))
    shape, scale, point = scales
    if scale is None:
        scale = ",".join(str(0.02 * (number + 1)) for number in range(width))
        point = ",".join([str(zero)] * width)
    return (
        f"(float[{rows},{width}] x) => (float[{rows},{width}] y) "
        f"<float{shape} s = {{{scale}}}, {kind}{shape} z = {{{point}}}> "
        f"{{ q = QuantizeLinear<axis = 1>(x, s, z) d = DequantizeLinear<axis = 1>(q, s, z) y = Tanh(d) }}"
    )


PAIR = (
    "(float[N,4] x) => (float[N,2] y) <float s = {0.03}, int8 z = {2}, int8[4,2] w = {1,2,3,4,-5,-6,-7,-8}, "
    "float[2] t = {0.01,0.02}, int8[2] o = {0,0}> "
    "{ q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) "
    "v = DequantizeLinear<axis = 1>(w, t, o) y = MatMul(d, v) }"
)
OTHER_SCALE = (
    "(float[4] x) => (float[4] y) <float s = {0.03}, float t = {0.05}, int8 z = {2}> "
    "{ q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, t, z) }"
)
RELU = one_input("Relu")
SMALL_LOOP = (
    "(float[2] x, bool c) => (float[2] y) <int64 n = {2}> "
    "{ y = Loop(n, c, x) <body = b (int64 i, bool g, float[2] s) => (bool h, float[2] t) "
    "{ h = Not(g) t = Add(s, s) }> }"
)


def deformed(draw: Draw) -> str:
    groups, sets, size = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(3, 5))
    out = size - 1
    return (
        f"(float[2,4,{size},{size}] x, float[2,{4 // groups},2,2] w, float[2,{sets * 8},{out},{out}] o) "
        f"=> (float[2,2,{out},{out}] y) "
        f"{{ y = DeformConv<kernel_shape = [2, 2], group = {groups}, offset_group = {sets}>(x, w, o) }}"
    )


def scattered(draw: Draw) -> str:
    reduction = draw(st.sampled_from(["add", "mul", "max", "min"]))
    places = ",".join(str(draw(st.integers(0, 3))) for _ in range(3))
    op = draw(st.sampled_from(["ScatterND", "ScatterElements"]))
    shape = "3,1" if op == "ScatterND" else "3"
    return (
        f"(float[4] x, float[3] u) => (float[4] y) <int64[{shape}] i = {{{places}}}> "
        f'{{ y = {op}<reduction = "{reduction}">(x, i, u) }}'
    )


def smoothed(draw: Draw) -> str:
    size, mode = draw(st.integers(4, 8)), draw(st.sampled_from(["linear", "cubic"]))
    output = draw(st.integers(2, size - 1))
    return (
        f"(float[1,2,{size},{size}] x) => (float[1,2,{output},{output}] y) <int64[4] s = {{1,2,{output},{output}}}> "
        f'{{ y = Resize<mode = "{mode}", antialias = 1>(x, , , s) }}'
    )


def backwards(draw: Draw) -> str:
    op, gates = draw(st.sampled_from([("RNN", 1), ("GRU", 3), ("LSTM", 4)]))
    batch, steps, width, hidden = (draw(st.integers(1, 3)) for _ in range(4))
    return (
        f"(float[{steps},{batch},{width}] x, "
        f"float[1,{gates * hidden},{width}] w, float[1,{gates * hidden},{hidden}] r) "
        f"=> (float[{steps},1,{batch},{hidden}] y, float[1,{batch},{hidden}] h) "
        f'{{ y, h = {op}<hidden_size = {hidden}, direction = "reverse">(x, w, r) }}'
    )


def scanned(draw: Draw) -> str:
    steps, width, way, out_way = draw(DIM), draw(DIM), draw(st.integers(0, 1)), draw(st.integers(0, 1))
    return (
        f"(float[{width}] s, float[{width},{steps}] x) => (float[{width}] l, float[{steps},{width}] y) "
        f"{{ l, y = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [{way}], "
        f"scan_output_directions = [{out_way}], body = b (float[{width}] a, float[{width}] i) => "
        f"(float[{width}] n, float[{width}] o) {{ n = Add(a, i) o = Sub(a, i) }}>(s, x) }}"
    )


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
