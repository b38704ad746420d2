"""Models whose fault hides in a body, a loop, a function or a formula: the guilty node, and the least that mends it.

The least was found by trying all sets of nodes, the smallest first.
"""

from __future__ import annotations

import numpy as np
from failing_models import Failing

RNG = np.random.default_rng(3)
ROWS = RNG.standard_normal((4, 16)).astype(np.float32)
SOME = (RNG.random((4, 16)) > 0.3).astype(np.float32)
ON = {"c": np.array(True)}
NO_ROW = np.concatenate([np.zeros((1, 16)), ROWS[1:]]).astype(np.float32)
HIDDEN = {
    "overflow in a branch": Failing(
        "g (bool c, float[4,16] x) => (float[4,16] y) <float big = {400}, float low = {0.0000125}> {"
        " [pre] a = Mul(x, big) [if] b = If(c) <"
        " then_branch = t () => (float[4,16] tb) { [up] u = Mul(a, big) [add] v = Add(u, a) [down] tb = Mul(v, low) },"
        " else_branch = e () => (float[4,16] eb) { [other] eb = Mul(a, low) }> [post] y = Add(b, x) }",
        {**ON, "x": ROWS},
        "up",
        3,
    ),
    "a scale that collapses turn by turn": Failing(
        "g (int64 n, bool c, float[4,16] x) => (float[4,16] y) <float down = {0.01}, float up = {1000}> {"
        " [first] h0 = Relu(x) [loop] h = Loop(n, c, h0) <"
        " body = b (int64 i, bool on, float[4,16] s) => (bool more, float[4,16] t) {"
        " [go] more = Identity(on) [shrink] t = Mul(s, down) }>"
        " [root] r = Sqrt(h) [grow] w = Mul(r, up) [post] y = Add(w, x) }",
        {**ON, "n": np.array(4), "x": ROWS},
        "shrink",
        2,
    ),
    "a scale that one node of a loop hands to another": Failing(
        "g (int64 n, bool c, float[4,16] x) => (float[4,16] y)"
        " <float a = {0.1}, float b = {0.001}, float up = {999}> {"
        " [first] h0 = Relu(x) [loop] h = Loop(n, c, h0) <"
        " body = b (int64 i, bool on, float[4,16] s) => (bool more, float[4,16] t) {"
        " [go] more = Identity(on) [less] u = Mul(s, a) [shrink] t = Mul(u, b) }>"
        " [root] r = Sqrt(h) [grow] w = Mul(r, up) [post] y = Add(w, x) }",
        {**ON, "n": np.array(2), "x": ROWS},
        "shrink",
        2,
    ),
    "a state of a Scan that overflows": Failing(
        "g (float[300,8] x) => (float[8] y, float[300,8] z) <float[8] h0 = {0,0,0,0,0,0,0,0}, float k = {0.001}> {"
        " [pre] u = Abs(x) [scan] t, z = Scan<num_scan_inputs = 1,"
        " body = b (float[8] s, float[8] v) => (float[8] o, float[8] w) { [sum] o = Add(s, v) [copy] w = Mul(o, k) }>"
        "(h0, u) [down] y = Mul(t, k) }",
        {"x": (600 * RNG.standard_normal((300, 8))).astype(np.float32)},
        "sum",
        3,
    ),
    "a logarithm of a sum of 100,000": Failing(
        "g (float[2,100000] x) => (float[2,1] y) { [max] m = ReduceMax<axes=[1]>(x) [centre] d = Sub(x, m)"
        " [exp] e = Exp(d) [sum] s = ReduceSum(e, ax) [log] l = Log(s) [back] y = Add(l, m) }",
        {"x": (0.01 * RNG.standard_normal((2, 100_000))).astype(np.float32)},
        "sum",
        2,
    ),
    "the same in one node": Failing(
        "g (float[2,100000] x) => (float[2,1] y) { [square] z = Mul(x, x) [lse] y = ReduceLogSumExp<axes=[1]>(z) }",
        {"x": (0.01 * RNG.standard_normal((2, 100_000))).astype(np.float32)},
        "lse",
        1,
    ),
    "a tiny epsilon in a norm of root mean squares": Failing(
        "g (float[4,16] x) => (float[4,16] y) <float two = {2}, float tiny = {1e-9}> {"
        " [pow] p = Pow(x, two) [mean] m = ReduceMean<axes=[1]>(p) [eps] e = Add(m, tiny) [root] q = Sqrt(e)"
        " [inverse] i = Reciprocal(q) [norm] y = Mul(x, i) }",
        {"x": NO_ROW},
        "eps",
        2,
    ),
    "a weight of -1e9 behind a Where": Failing(
        "g (float[4,16] x, bool[4,16] keep) => (float[4,16] y) <float low = {-1e9}> {"
        " [scale] s = Add(x, x) [mask] m = Where(keep, s, low) [soft] y = Softmax(m) }",
        {"x": ROWS, "keep": np.concatenate([np.zeros((1, 16), bool), SOME[1:] > 0])},
        "mask",
        2,
    ),
    "a variance as a difference of squares": Failing(
        "g (float[4,64] x) => (float[4,64] y) <float eps = {0.00001}> {"
        " [square] p = Mul(x, x) [squares] a = ReduceMean<axes=[1]>(p) [mean] m = ReduceMean<axes=[1]>(x)"
        " [square_of_mean] b = Mul(m, m) [variance] v = Sub(a, b) [safe] e = Add(v, eps) [root] r = Sqrt(e)"
        " [centre] c = Sub(x, m) [norm] y = Div(c, r) }",
        {"x": (100 + RNG.standard_normal((4, 64))).astype(np.float32)},
        "squares",
        6,
    ),
}
FUNCTION = """<ir_version: 9, opset_import: ["" : 17, "my" : 1]>
g (float[4,16] x, float[4,16] keep) => (float[4,16] y) { [call] y = my.masked(x, keep) }
<domain: "my", opset_import: ["" : 17]>
masked (x, keep) => (y) { [one] k = Constant<value = float {1}>() [low] l = Constant<value = float {-3.4028235e38}>()
    [invert] i = Sub(k, keep) [mask] m = Mul(i, l) [masked] s = Add(x, m) [soft] y = Softmax(s) }"""
