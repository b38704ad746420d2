"""Graphs drawn at random, one function for each rewrite, on which it must apply."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from hypothesis import strategies as st
from onnx import parser

Draw = Callable[..., int]
DIM = st.integers(1, 5)


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
    if op != "LpPool" and draw(st.booleans()):
        return (
            f"(float[1,2,{size},{size}] x) => (float[1,2,H,W] y) {{ y = {op}<ceil_mode = 1, "
            f"kernel_shape = [{kernel + 1}, {kernel}], strides = [{stride}, {stride}], pads = [1, 0, 0, 0]>(x) }}"
        )
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
    if draw(st.booleans()):
        return (
            f"(float[1,1,{size},{size}] x) => (float[1,1,{size * factor},{size}] y) <float[4] s = {{1,1,{factor},1}}> "
            '{ y = Resize<coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(x, , s) }'
        )
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


def one_dimensional(draw: Draw) -> str:
    op, kernel = draw(st.sampled_from(["Conv", "ConvTranspose", "MaxPool", "AveragePool"])), draw(st.integers(1, 3))
    size, stride, before, after = draw(st.integers(3, 7)), *(draw(st.integers(0, 2)) for _ in range(3))
    shared = f"strides = [{stride + 1}], kernel_shape = [{kernel}], pads = [{min(before, kernel - 1)}, 0]"
    if "Pool" in op:
        return f"(float[2,3,{size}] x) => (float[2,3,L] y) {{ y = {op}<{shared}>(x) }}"
    return (
        f"(float[2,3,{size}] x, float[3,3,{kernel}] w, float[3] b) => (float[2,3,L] y) "
        f"{{ y = {op}<{shared}, dilations = [{after + 1 if size > 2 * kernel + 1 else 1}]>(x, w, b) }}"
    )


def listed(draw: Draw) -> str:
    op, count, shape = draw(st.sampled_from(["Max", "Min", "Sum"])), draw(st.sampled_from([1, 3, 4])), drawn_shape(draw)
    names = [f"x{number}" for number in range(count)]
    inputs = ", ".join(f"float[{shape}] {name}" for name in names)
    return f"({inputs}) => (float[{shape}] y) {{ y = {op}({', '.join(names)}) }}"


def reshaped(draw: Draw) -> str:
    rows, columns = draw(DIM), draw(DIM)
    sizes = draw(st.sampled_from([f"{columns}, {rows}", "1, -1", f"-1, {rows * columns}"]))
    shapes = f"(float[{rows},{columns}] x) => (float[A,B] y) <int64[2] s = {{{sizes}}}>"
    return f"{shapes} {{ y = Reshape<allowzero = 1>(x, s) }}"


def told_defaults(draw: Draw) -> str:
    op, gates, names = draw(
        st.sampled_from(
            [("RNN", 1, ["Tanh"]), ("GRU", 3, ["Sigmoid", "Tanh"]), ("LSTM", 4, ["Sigmoid", "Tanh", "Tanh"])]
        )
    )
    ways, hidden, width = draw(st.sampled_from([1, 2])), draw(DIM), draw(DIM)
    listed = ", ".join(f'"{name}"' for name in names * ways)
    return (
        f"(float[3,2,{width}] x, float[{ways},{gates * hidden},{width}] w, float[{ways},{gates * hidden},{hidden}] r) "
        f"=> (float[3,{ways},2,{hidden}] y) {{ y = {op}<hidden_size = {hidden}, activations = [{listed}], "
        f'direction = "{"forward" if ways == 1 else "bidirectional"}">(x, w, r) }}'
    )


def written_out(draw: Draw) -> str:
    """A recurrent node with whatever its operator can have."""
    op, gates = draw(st.sampled_from([("RNN", 1), ("GRU", 3), ("LSTM", 4)]))
    steps, batch, width, hidden = (draw(st.integers(1, 3)) for _ in range(4))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    ways = 2 if direction == "bidirectional" else 1
    own = {"RNN": [""], "GRU": ["", ", linear_before_reset = 1"], "LSTM": ["", ", input_forget = 1"]}[op]
    more = draw(st.sampled_from(own)) + draw(st.sampled_from(["", ", clip = 0.5"]))
    count = {"RNN": 1, "GRU": 2, "LSTM": 3}[op] * ways
    names = ", ".join(f'"{draw(st.sampled_from(["Sigmoid", "Tanh", "Relu"]))}"' for _ in range(count))
    more += draw(st.sampled_from(["", f", activations = [{names}]"]))
    given = [f"float[{steps},{batch},{width}] x", f"float[{ways},{gates * hidden},{width}] w"]
    given += [f"float[{ways},{gates * hidden},{hidden}] r"]
    bias, state = draw(st.booleans()), draw(st.booleans())
    given += [f"float[{ways},{2 * gates * hidden}] b"] if bias else []
    given += [f"float[{ways},{batch},{hidden}] h"] if state else []
    given += [f"float[{ways},{batch},{hidden}] c"] if state and op == "LSTM" else []
    names = f"x, w, r, {'b' if bias else ''}, , {'h' if state else ''}" + (", c" if state and op == "LSTM" else "")
    last = f", float[{ways},{batch},{hidden}] d" if op == "LSTM" else ""
    return (
        f"({', '.join(given)}) => (float[{steps},{ways},{batch},{hidden}] y, float[{ways},{batch},{hidden}] z{last}) "
        f'{{ y, z{", d" if last else ""} = {op}<hidden_size = {hidden}, direction = "{direction}"{more}>({names}) }}'
    )


def sized(draw: Draw) -> str:
    rank, start = draw(st.integers(1, 4)), draw(st.integers(-1, 0))
    dims = ",".join(str(draw(DIM)) for _ in range(rank))
    asked = draw(st.sampled_from(["Size", f"Shape<start = {start}>", "Shape<end = 1>"]))
    return f"(float[{dims}] x) => (int64 y) {{ s = {asked}(x) y = ReduceSum<keepdims = 0>(s) }}"


def told_by_arithmetic(draw: Draw) -> str:
    size, more = draw(st.integers(2, 5)), draw(st.integers(1, 3))
    use = draw(st.sampled_from(["y = Pad(x, p)", "y = Tile(x, q)", "y = Expand(x, e)", "y = Slice(x, b, q)"]))
    return (
        f"(float[1,{size}] x) => (float[A,B] y) <int64[2] k = {{{more}, 1}}, int64[2] b = {{0, 0}}> "
        f"{{ s = Shape(x) q = Add(b, k) p = Concat<axis = 0>(q, b) e = Mul(s, k) {use} }}"
    )


def sliced(draw: Draw) -> str:
    size, start = draw(st.integers(2, 5)), draw(st.integers(-2, 1))
    return (
        f"(float[{size},2] x) => (float[A,2] y) <int64[1] s = {{{start}}}, int64[1] e = {{9223372036854775807}}> "
        "{ y = Slice(x, s, e) }"
    )


def widely_pooled(draw: Draw) -> str:
    rows, columns, stride = draw(st.integers(16, 30)), draw(st.integers(16, 30)), draw(st.integers(1, 3))
    height, width, pad = draw(st.integers(0, 9)), draw(st.integers(0, 9)), draw(st.integers(0, 2))
    return (
        f"(float[1,2,{rows + height},{columns + width}] x) => (float[1,2,H,W] y) {{ y = MaxPool<kernel_shape = "
        f"[{rows}, {columns}], strides = [{stride}, {stride}], pads = [{pad}, 0, 0, {pad}]>(x) }}"
    )


def unsorted_top(draw: Draw) -> str:
    size = draw(st.integers(2, 6))
    count = draw(st.integers(1, size))
    return (
        f"(float[3,{size}] x) => (float[3,1] y) <int64[1] k = {{{count}}}, int64[1] a = {{1}}> "
        "{ v, i = TopK<sorted = 0>(x, k) y = ReduceMax(v, a) }"
    )


def left_open(draw: Draw) -> str:
    kernel = draw(st.integers(1, 3))
    if draw(st.booleans()):
        shape = drawn_shape(draw)
        turned = ",".join(reversed(shape.split(",")))
        return f"(float[{shape}] x) => (float[{turned}] y) {{ y = Transpose(x) }}"
    inputs = f"(float[1,2,5,5] x, float[3,2,{kernel},{kernel}] w)"
    return f"{inputs} => (float[1,3,H,W] y) {{ y = Conv<strides = [1, 1]>(x, w) }}"
