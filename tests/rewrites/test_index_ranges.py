"""Ranges of computed integers, and what of quantized graphs is kept."""

from __future__ import annotations

import numpy as np
import pytest
import rewrite_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from convert.lowering.facts import scope_of
from convert.lowering.inference import infer
from convert.rewrites import rewrite
from convert.rewrites.ranges import INT64, Ranges, fits_int32

CONSTANTS = (
    "<int64 one = {1}, int64 two = {2}, int64 seven = {7}, int64 minus = {-3}, int64 huge = {4611686018427387904}>"
)


def span_of(body: str, inputs: str = "float[N,5] x", out: str = "int64[N] y") -> tuple[int, int]:
    model = infer(rewrite_cases.graph(f"({inputs}) => ({out}) {CONSTANTS} {{ {body} }}"))
    return Ranges().span("y", scope_of(model.graph))


@pytest.mark.parametrize(
    ("body", "span"),
    [
        ("y = ArgMax<axis = 1, keepdims = 0>(x)", (0, 4)),
        ("y = ArgMax<axis = 0, keepdims = 0>(x)", INT64),
        ("i = ArgMax<axis = 1, keepdims = 0>(x) y = Add(i, seven)", (7, 11)),
        ("i = ArgMax<axis = 1, keepdims = 0>(x) y = Sub(minus, i)", (-7, -3)),
        ("i = ArgMax<axis = 1, keepdims = 0>(x) y = Mul(i, minus)", (-12, 0)),
        ("i = ArgMax<axis = 1, keepdims = 0>(x) y = Div(i, two)", (0, 2)),
        ("i = ArgMax<axis = 1, keepdims = 0>(x) y = Div(i, minus)", INT64),
        ("i = ArgMax<axis = 1, keepdims = 0>(x) y = Mod(i, two)", (0, 1)),
        ("i = ArgMax<axis = 1, keepdims = 0>(x) y = Mod<fmod = 1>(i, two)", (-1, 1)),
        ("i = ArgMax<axis = 1, keepdims = 0>(x) n = Neg(i) y = Abs(n)", (0, 4)),
        ("i = ArgMax<axis = 1, keepdims = 0>(x) y = Clip(i, one, two)", (1, 2)),
        ("i = ArgMax<axis = 1, keepdims = 0>(x) y = Max(i, two)", (2, 4)),
        ("i = ArgMax<axis = 1, keepdims = 0>(x) y = Min(i, two, minus)", (-3, -3)),
        ("i = ArgMax<axis = 1, keepdims = 0>(x) a = Mul(i, huge) y = Add(a, one)", INT64),
        ("b = Greater(x, x) i = Cast<to = 7>(b) m = ReduceMax<keepdims = 0>(i) y = Add(m, one)", INT64),
        ("b = Greater(x, x) i = Cast<to = 7>(b) y = Transpose(i)", (0, 1)),
        ("f = Floor(x) y = Cast<to = 7>(f)", INT64),
    ],
)
def test_the_range_of_what_computes_an_index(body: str, span: tuple[int, int]) -> None:
    assert span_of(body) == span


def test_inputs_have_the_range_of_their_type() -> None:
    assert span_of("y = Cast<to = 7>(i)", "int16[N] i") == (-(1 << 15), (1 << 15) - 1)
    assert span_of("y = Add(i, i)", "int64[N] i") == INT64
    assert fits_int32((-(1 << 31), (1 << 31) - 1)) and not fits_int32((0, 1 << 31))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data())
def test_no_value_ever_lies_outside_of_its_range(data: st.DataObject) -> None:
    ops = [data.draw(st.sampled_from(["Add", "Sub", "Mul", "Min", "Max", "Mod", "Div"])) for _ in range(3)]
    names = [data.draw(st.sampled_from(["one", "two", "seven"])) for _ in ops]
    steps = [f"v{n + 1} = {op}(v{n}, {name})" for n, (op, name) in enumerate(zip(ops, names, strict=True))]
    sign = data.draw(st.sampled_from(["Neg", "Identity"]))
    text = (
        f"(float[4,5] x) => (int64[4] y) {CONSTANTS} "
        f"{{ a = ArgMax<axis = 1, keepdims = 0>(x) v0 = {sign}(a) {' '.join(steps)} y = Identity(v3) }}"
    )
    model = rewrite_cases.graph(text)
    low, high = Ranges().span("y", scope_of(infer(model).graph))
    x = np.random.default_rng(data.draw(st.integers(0, 99))).normal(size=(4, 5)).astype(np.float32)
    (found,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert low <= found.min() and found.max() <= high
    assert high - low < 1 << 20


def test_an_index_from_outside_into_an_open_axis_stays_as_it_is() -> None:
    model = rewrite_cases.graph("(float[M] x, int64[2] i) => (float[2] y) { y = Gather(x, i) }")
    assert rewrite(model, ["computed-indices-to-int32"]).applied == ()
    closed = rewrite_cases.graph("(float[9] x, int64[2] i) => (float[2] y) { y = Gather(x, i) }")
    assert rewrite(closed, ["computed-indices-to-int32"]).applied


def test_an_index_that_was_int32_before_needs_no_cast() -> None:
    text = "(float[M] x, int32[2] i) => (float[2] y) { j = Cast<to = 7>(i) y = Gather(x, j) }"
    result = rewrite(rewrite_cases.graph(text), ["computed-indices-to-int32"])
    assert [node.op_type for node in result.model.graph.node] == ["Gather"]


def test_an_index_inside_a_loop_has_the_range_of_the_graph_around_it() -> None:
    text = (
        "(float[2,3] x, float[M] w, bool c) => (float[2] y) <int64 n = {2}> "
        "{ i = ArgMax<axis = 1, keepdims = 0>(x) z = ReduceMax<keepdims = 0>(x) s = Gather(w, i) "
        "y = Loop(n, c, s) <body = b (int64 k, bool g, float[2] a) => (bool h, float[2] t) "
        "{ h = Identity(g) f = Gather(w, i) t = Add(a, f) }> }"
    )
    result = rewrite(rewrite_cases.graph(text), ["computed-indices-to-int32"])
    assert len(result.applied[0].nodes) == 2


def test_rounding_in_float_gives_the_numbers_of_the_pair_also_beyond_its_range() -> None:
    model = rewrite_cases.graph(rewrite_cases.PAIR)
    sample = {"x": np.array([[-9, 9, 0.015, 0.045], [0.3, -0.3, 1, 100]], np.float32)}
    result = rewrite(model, ["qdq-to-primitives"], samples=[sample])
    assert result.applied[0].evidence["max_abs"] < 1e-6
    assert not {"QuantizeLinear", "DequantizeLinear"} & {node.op_type for node in result.model.graph.node}


def test_stripping_says_how_much_it_may_change_and_is_undone_beyond() -> None:
    model = rewrite_cases.graph(rewrite_cases.PAIR)
    small = {"x": np.array([[0.5, -0.4, 0.3, 0.2]], np.float32)}
    result = rewrite(model, ["qdq-strip"], samples=[small])
    assert result.applied[0].evidence["allowed_rel_l2"] == 0.15
    assert "QuantizeLinear" not in {node.op_type for node in result.model.graph.node}
    clipped = {"x": np.array([[50, -40, 30, 20]], np.float32)}
    assert "relative L2 is" in rewrite(model, ["qdq-strip"], samples=[clipped]).undone[0].reason


@pytest.mark.parametrize(
    "text",
    [
        "(float[4] x) => (int8[4] q) <float s = {0.03}, int8 z = {2}> { q = QuantizeLinear(x, s, z) }",
        "(int8[4] q) => (float[4] y) <float s = {0.03}, int8 z = {2}> { y = DequantizeLinear(q, s, z) }",
        "(float[4] x) => (float[4] y) <float s = {0.03}, int8 z = {2}> "
        "{ q = QuantizeLinear(x, s, z) r = Neg(q) y = DequantizeLinear(r, s, z) }",
    ],
)
def test_integers_that_are_seen_from_outside_or_computed_stay(text: str) -> None:
    for name in ("qdq-to-primitives", "qdq-strip"):
        assert rewrite(rewrite_cases.graph(text), [name]).applied == ()
