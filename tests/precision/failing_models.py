"""Models built to fail in fp16, each with the node that is to blame and the least nodes that mend it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

RNG = np.random.default_rng(7)
ROWS = RNG.standard_normal((4, 16)).astype(np.float32)
MASK = (RNG.random((4, 16)) > 0.3).astype(np.float32)
MASK[:, 0] = 1.0
FLAT = np.concatenate([np.ones((2, 16)), ROWS[:2]]).astype(np.float32)


class Failing(NamedTuple):
    text: str
    feed: dict[str, Any]
    guilty: str
    least: int


NORM = """
    [mean] m = ReduceMean<axes=[1]>({x}) [centre] d = Sub({x}, m) [square] q = Mul(d, d)
    [variance] v = ReduceMean<axes=[1]>(q) [eps] e = Add(v, tiny) [root] r = Sqrt(e) [norm] y = Div(d, r)
"""
FAILING = {
    "overflow in a residual stream": Failing(
        "g (float[4,16] x) => (float[4,16] y) <float big = {300}, float half = {0.5}, float tiny = {0.00001}> {"
        " [first] a = Mul(x, big) [blow] b = Mul(a, big) [add1] c = Add(b, x) [relu] f = Relu(c) [add2] h = Add(c, f)"
        + NORM.format(x="h")
        + "}",
        {"x": ROWS},
        "blow",
        # blow, add1, relu, add2, and the norm: every value between them is beyond 65504.
        11,
    ),
    "a mask of -1e9": Failing(
        "g (float[4,16] x, float[4,16] keep) => (float[4,16] y) <float one = {1}, float low = {-1e9}> {"
        " [invert] i = Sub(one, keep) [mask] m = Mul(i, low) [masked] s = Add(x, m) [softmax] y = Softmax(s) }",
        {"x": ROWS, "keep": MASK},
        "mask",
        1,
    ),
    "a large reduction": Failing(
        "g (float[4,4096] x) => (float[4,1] y) { [size] a = Abs(x) [reduce] m = ReduceMean<axes=[1]>(a)"
        " [root] y = Sqrt(m) }",
        {"x": (100 * RNG.standard_normal((4, 4096))).astype(np.float32)},
        "reduce",
        1,
    ),
    "a scale that collapses": Failing(
        "g (float[4,16] x) => (float[4,16] y) <float down = {0.0001}, float up = {10000}> {"
        " [relu] t = Relu(x) [down1] a = Mul(t, down) [down2] b = Mul(a, down) [up1] c = Mul(b, up)"
        " [up2] d = Mul(c, up) [sum] y = Add(d, x) }",
        {"x": ROWS},
        "down2",
        2,
    ),
    "a tiny epsilon in a norm": Failing(
        "g (float[4,16] x) => (float[4,16] y) <float tiny = {1e-12}> {" + NORM.format(x="x") + "}",
        {"x": FLAT},
        "eps",
        2,
    ),
}
