"""Other ways to fail than the five: norms over groups, hot scores, bodies of If and Loop, local functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

from convert.stages.forecast import forecast_graph
from convert.values import ForecastOptions

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((4, 16)).astype(np.float32)
LONG = np.abs(RNG.standard_normal((4, 4096))).astype(np.float32)

GROUP_NORM = """g (float[4,16] x) => (float[4,16] y)
    <float small = {0.001}, float tiny = {1e-12}, int64[3] groups = {4,2,8}, int64[2] back = {4,16}> {
    [scale] s = Mul(x, small) [split] g = Reshape(s, groups) [mean] m = ReduceMean<axes=[2]>(g) [centre] d = Sub(g, m)
    [square] q = Mul(d, d) [variance] v = ReduceMean<axes=[2]>(q) [eps] e = Add(v, tiny) [root] r = Sqrt(e)
    [norm] n = Div(d, r) [join] y = Reshape(n, back) }"""
HOT = """g (float[4,16] x) => (float[4,16] y) <float hot = {90000}> {
    [scores] s = Mul(x, hot) [top] t = ReduceMax<axes=[1]>(s) [below] b = Sub(s, t) [exp] e = Exp(b)
    [total] z = ReduceMean<axes=[1]>(e) [share] y = Div(e, z) }"""
IF_BODY = """g (float[4,16] x) => (float[4,16] y) <float big = {80000}, float inverse = {0.0000125}> {
    total = ReduceSum<keepdims=0>(x) zero = Sub(total, total) yes = Equal(zero, zero)
    [choose] t = If(yes)<
        then_branch = one () => (float[4,16] p) { [inner] u = Mul(x, big) [shrink] p = Mul(u, inverse) },
        else_branch = two () => (float[4,16] q) { q = Neg(x) }>
    [end] y = Tanh(t) }"""
LOOP_BODY = """g (float[4,16] x) => (float[4,16] y)
    <int64 n = {3}, bool go = {1}, float up = {400}, float down = {0.000001}> {
    [loop] l = Loop(n, go, x)<
        body = b (int64 i, bool c, float[4,16] v) => (bool co, float[4,16] w) {
            co = Identity(c) [grow] w = Mul(v, up) }>
    [back] m = Mul(l, down) [end] y = Tanh(m) }"""
FUNCTION = """<ir_version: 9, opset_import: ["" : 17, "own" : 1]>
    g (float[4,4096] x) => (float[4,4096] y) { [norm] y = own.Norm(x) }
    <domain: "own", opset_import: ["" : 17]>
    Norm (v) => (o) {
        h = Constant<value_float = 100.0>()
        [scale] b = Mul(v, h) [sum] m = ReduceMean<axes=[-1]>(b) [div] o = Div(b, m) }"""


@pytest.mark.parametrize(
    ("text", "rows", "guilty", "least"),
    [
        (GROUP_NORM, ROWS, ("eps", "square"), 3),
        (HOT, ROWS, ("scores",), 3),
        (IF_BODY, ROWS, ("inner",), 2),
        (LOOP_BODY, ROWS, ("grow",), 2),
        (FUNCTION, LONG, ("sum",), 1),
    ],
    ids=["group norm", "hot scores", "if", "loop", "function"],
)
def test_the_guilty_node_is_first_and_the_plan_is_small(text, rows, guilty, least, make_graph, tmp_path: Path):
    model = onnx.parser.parse_model(text) if text.startswith("<") else text
    forecast = forecast_graph(
        make_graph(model, {"x": rows}), ForecastOptions(precision="fp16", plan=True), tmp_path / "f"
    )
    assert not forecast.holds
    assert forecast.guilty[0].node.startswith(guilty)
    assert forecast.plan_holds
    assert 1 <= len(forecast.keep) <= 2 * least
