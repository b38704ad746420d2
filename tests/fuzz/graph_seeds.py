"""Small graphs with what the rewrites' own cases lack: bodies, functions, several outputs, quantized weights."""

from __future__ import annotations

_HEAD = '<ir_version: 9, opset_import: ["": {opset}]> '

_BODIES = {
    "elementwise": (
        17,
        "g (float[N,4] x) => (float[N,4] y) { a = Relu(x) b = Sigmoid(a) c = Mul(a, b) y = Identity(c) }",
    ),
    "convolution": (
        17,
        "g (float[1,2,8,8] x, float[4,2,3,3] w) => (float[1,4,1,1] y) { a = Conv<pads = [1,1,1,1]>(x, w) "
        'b = MaxPool<kernel_shape = [2,2], auto_pad = "SAME_UPPER">(a) y = GlobalAveragePool(b) }',
    ),
    "resize": (
        19,
        "g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[4] s = {1.0, 1.0, 2.0, 2.0}, float[0] r = {}> "
        '{ y = Resize<mode = "linear", coordinate_transformation_mode = "half_pixel">(x, r, s) }',
    ),
    "if": (
        16,
        "g (float[2,3] x, bool c) => (float[2,3] y) { y = If(c) <then_branch = t () => (float[2,3] a) { a = Relu(x) }, "
        "else_branch = e () => (float[2,3] b) { b = Neg(x) }> }",
    ),
    "loop": (
        16,
        "g (float[2] x) => (float[2] y, float[3,2] s) <int64 n = {3}, bool c = {1}> { y, s = Loop(n, c, x) "
        "<body = b (int64 i, bool k, float[2] v) => (bool o, float[2] w, float[2] z) "
        "{ o = Identity(k) w = Add(v, v) z = Identity(w) }> }",
    ),
    "scan": (
        16,
        "g (float[2] x, float[3,2] z) => (float[2] y, float[3,2] s) { y, s = Scan<num_scan_inputs = 1, body = b "
        "(float[2] v, float[2] i) => (float[2] w, float[2] o) { w = Add(v, i) o = Identity(w) }>(x, z) }",
    ),
    "shapes": (
        18,
        "g (float[N,C,4] x) => (float[D,E] y) <int64[2] t = {0, -1}, int64[1] a = {0}> { s = Shape(x) "
        "r = Reshape(x, t) u = Unsqueeze(r, a) v = Squeeze(u, a) w = ReduceSum<keepdims = 1>(v, a) y = Expand(w, t) }",
    ),
    "quantized": (
        13,
        "g (float[2,4] x) => (float[2,4] y) <float s = {0.1}, uint8 z = {128}> { q = QuantizeLinear(x, s, z) "
        "y = DequantizeLinear(q, s, z) }",
    ),
    "indices": (
        17,
        "g (float[5,4] x, int64[2] i) => (float[2,4] y, int64[2,1] k) <int64[1] n = {1}> { y = Gather(x, i) "
        "v, k = TopK(y, n) z = NonZero(y) }",
    ),
    "recurrent": (
        14,
        "g (float[3,1,2] x, float[1,12,2] w, float[1,12,3] r) => (float[3,1,1,3] y, float[1,1,3] h, float[1,1,3] c) "
        "{ y, h, c = LSTM<hidden_size = 3>(x, w, r) }",
    ),
    "sequences": (
        17,
        "g (float[2] a, float[2] b) => (float[4] y) { s = SequenceConstruct(a, b) "
        "y = ConcatFromSequence<axis = 0>(s) }",
    ),
    "splits": (
        18,
        "g (float[6,2] x) => (float[2,2] a, float[2,2] b, float[2,2] c) "
        "{ a, b, c = Split<num_outputs = 3, axis = 0>(x) }",
    ),
    "normalized": (
        17,
        "g (float[1,3,4,4] x, float[3] w) => (float[1,3,4,4] y) "
        "{ y = BatchNormalization<epsilon = 0.001>(x, w, w, w, w) }",
    ),
    "attention": (
        23,
        "g (float[1,2,4,8] q, float[1,2,4,8] k, float[1,2,4,8] v) => (float[1,2,4,8] y) { y = Attention(q, k, v) }",
    ),
    "vision": (
        20,
        "g (float[1,1,4,4] x, float[1,3,3,2] r) => (float[1,1,3,3] y) "
        '{ y = GridSample<mode = "linear", padding_mode = "border">(x, r) }',
    ),
    "strings": (17, 'g (float[2] x) => (float[2] y) { s = Constant<value_string = "a">() y = Cast<to = 1>(x) }'),
}

_FUNCTION = """<ir_version: 9, opset_import: ["": 17, "local": 1]>
g (float[2] x) => (float[2] y) { y = local.twice(x) }
<domain: "local", opset_import: ["": 17]> twice (a) => (b) { b = Add(a, a) }
"""

GRAPHS = {name: _HEAD.format(opset=opset) + text for name, (opset, text) in _BODIES.items()} | {"function": _FUNCTION}
