"""Computed sizes of a Reshape are written down where they are known, and nowhere else."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, parser

from convert.reshapes import settle_reshapes, written_sizes
from convert.symbolic_sizes import Followed, Size

SIZES = [(1, 1), (2, 3), (5, 2)]


def model_of(body: str, inputs: str = "float[N,L,4,6] x", more: str = "") -> onnx.ModelProto:
    text = f'<ir_version: 9, opset_import: ["" : 17]> g ({inputs}) => (float y) {more} {{ {body} }}'
    model = parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def run(model: onnx.ModelProto, feed: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"x": feed, "t": np.array([-1, 24])}
    return np.asarray(session.run(None, {item.name: feeds[item.name] for item in session.get_inputs()})[0])


def same(before: onnx.ModelProto, after: onnx.ModelProto, sizes: list[tuple[int, int]]) -> None:
    for batch, length in sizes:
        feed = np.random.default_rng(0).standard_normal((batch, length, 4, 6)).astype("f4")
        ours, theirs = run(before, feed), run(after, feed)
        assert ours.shape == theirs.shape
        np.testing.assert_array_equal(ours, theirs)


def settled(body: str, **how: str) -> tuple[onnx.ModelProto, onnx.ModelProto, int]:
    before, after = model_of(body, **how), model_of(body, **how)
    return before, after, settle_reshapes(after)


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


SHAPE = "s = Shape(x) zero = Constant <value = int64[1] {0}> () one = Constant <value = int64[1] {1}> () "


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (SHAPE + "n = Gather(s, zero) r = Constant <value = int64[1] {-1}> () t = Concat<axis=0>(n, r)"
         " y = Reshape(x, t)", None),
        (SHAPE + "n = Gather(s, zero) l = Gather(s, one) r = Constant <value = int64[2] {3, 8}> ()"
         " t = Concat<axis=0>(n, l, r) y = Reshape(x, t)", [0, 0, 3, 8]),
        (SHAPE + "n = Gather(s, zero) l = Gather(s, one) m = Mul(n, l) r = Constant <value = int64[1] {24}> ()"
         " t = Concat<axis=0>(m, r) y = Reshape(x, t)", [-1, 24]),
        (SHAPE + "two = Constant <value = int64[1] {2}> () h = Slice(s, zero, two)"
         " r = Constant <value = int64[1] {-1}> () t = Concat<axis=0>(h, r) y = Reshape(x, t)", [0, 0, 24]),
        ("a = Constant <value = int64[2] {-1, 24}> () f = Reshape(x, a) g = Relu(f) s = Shape(x) y = Reshape(g, s)",
         None),
    ],
    ids=["batch and the rest", "both stay", "product", "slice", "back again"],
)  # fmt: skip
def test_what_is_known_is_written_down(body: str, wanted: list[int] | None) -> None:
    before, after, count = settled(body)
    if wanted is None:  # two names, and one of them is not where it was: nothing can say both
        assert count == 0
    else:
        assert count == 1 and "Shape" not in ops(after)
        (sizes,) = (numpy_helper.to_array(one).tolist() for one in after.graph.initializer)
        assert sizes == wanted
    same(before, after, SIZES)


@pytest.mark.parametrize(
    ("body", "how"),
    [
        (SHAPE + "n = Gather(s, zero) l = Gather(s, one) r = Constant <value = int64[1] {24}> ()"
         " t = Concat<axis=0>(l, n, r) y = Reshape(x, t)", {}),
        (SHAPE + "n = Gather(s, zero) l = Gather(s, one) r = Constant <value = int64[2] {3, 8}> ()"
         " t = Concat<axis=0>(n, l, r) y = Reshape<allowzero=1>(x, t)", {}),
        (SHAPE + "n = Gather(s, zero) o = Add(n, one) m = Sub(o, one) l = Gather(s, one)"
         " r = Constant <value = int64[1] {24}> () t = Concat<axis=0>(l, m, r) y = Reshape(x, t)", {}),
        # What the file says of a value is nobody's proof.
        ("z = Reshape(x, t) y = Relu(z)", {"inputs": "float[N,L,4,6] x, int64[2] t", "more": "<float[7, 24] z>"}),
    ],
    ids=["names change places", "zero copies nothing", "sums are not followed", "a file's own word"],
)  # fmt: skip
def test_what_is_not_known_stays(body: str, how: dict[str, str]) -> None:
    before, after, count = settled(body, **how)
    assert (count, ops(after)) == (0, ops(before))
    same(before, after, SIZES)


def test_a_batch_of_none_is_reshaped_as_before() -> None:
    body = (
        SHAPE + "n = Gather(s, zero) l = Gather(s, one) r = Constant <value = int64[2] {3, 8}> ()"
        " t = Concat<axis=0>(n, l, r) y = Reshape(x, t)"
    )
    before, after, count = settled(body)
    assert count == 1
    same(before, after, [(0, 3), (2, 0), (0, 0)])


def test_what_is_read_elsewhere_stays() -> None:
    before, after, count = settled(
        SHAPE + "n = Gather(s, zero) r = Constant <value = int64[3] {-1, 4, 6}> () t = Concat<axis=0>(n, r)"
        " z = Reshape(x, t) f = Cast<to=1>(n) y = Add(z, f)"
    )
    assert count == 1 and {"Shape", "Gather"} <= set(ops(after)) and "Concat" not in ops(after)
    same(before, after, SIZES)


def test_a_reshape_of_a_reshape_reads_what_that_one_reads() -> None:
    before, after, count = settled(
        SHAPE + "n = Gather(s, zero) l = Gather(s, one) m = Mul(n, l) r = Constant <value = int64[1] {24}> ()"
        " c = Concat<axis=0>(m, r) a = Constant <value = int64[2] {-1, 6}> () f = Reshape(x, a) g = Reshape(f, c)"
        " k = Constant <value = int64[3] {0, 4, 6}> () y = Reshape(g, k)"
    )
    same(before, after, SIZES)
    # The last copies a size of what it reads.
    assert (count, ops(after).count("Reshape")) == (1, 2)


def test_the_sizes_of_a_matrix_are_not_taken_for_a_vector() -> None:
    known = Followed(model_of(SHAPE + "m = Unsqueeze(s, zero) f = Cast<to=1>(m) y = Identity(f)"))
    assert known.contents["s"] == (Size(1, ("N",)), Size(1, ("L",)), Size(4), Size(6))
    assert "m" not in known.contents


@pytest.mark.parametrize(
    ("given_", "made", "copies", "wanted"),
    [
        ((Size(1, ("N",)), Size(4)), (Size(4), Size(1, ("N",))), True, (4, -1)),
        ((Size(1, ("N",)), Size(4)), (Size(1, ("N",)), Size(0)), True, None),
        ((Size(1, ("N",)), Size(4)), None, True, None),
        (None, (Size(4),), True, None),
        ((None, None), (None, None), True, None),
        ((Size(2, ("N",)),), (Size(2), None), True, (2, -1)),
    ],
)
def test_sizes_as_a_reshape_takes_them(
    given_: tuple[Size | None, ...] | None,
    made: tuple[Size | None, ...] | None,
    copies: bool,
    wanted: tuple[int, ...] | None,
) -> None:
    assert written_sizes(given_, made, copies=copies) == wanted


@given(
    cuts=st.sets(st.integers(1, 3)),
    filled=st.none() | st.integers(0, 3),
    order=st.sampled_from([(0, 1, 2, 3), (1, 0, 2, 3), (0, 2, 1, 3), (2, 3, 0, 1)]),
    ones=st.lists(st.integers(0, 4), max_size=2),
)
def test_a_reshape_to_neighbours_together_gives_the_same(
    cuts: set[int], filled: int | None, order: tuple[int, ...], ones: list[int]
) -> None:
    """x is transposed, then neighbours are joined: each size is a product of sizes of x, one may be -1."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["p"], perm=order),
        helper.make_node("Shape", ["p"], ["s"]),
        *(helper.make_node("Gather", ["s", f"i{axis}"], [f"d{axis}"]) for axis in range(4)),
    ]
    edges = [0, *sorted(cuts), 4]
    parts = []
    for number, (begin, end) in enumerate(itertools.pairwise(edges)):
        name = f"d{begin}"
        for axis in range(begin + 1, end):
            nodes.append(helper.make_node("Mul", [name, f"d{axis}"], [f"m{number}_{axis}"]))
            name = f"m{number}_{axis}"
        parts.append("minus" if number == filled else name)
    for place in ones:
        parts.insert(min(place, len(parts)), "unit")
    nodes += [helper.make_node("Concat", parts, ["t"], axis=0), helper.make_node("Reshape", ["p", "t"], ["y"])]
    constants = {**{f"i{axis}": [axis] for axis in range(4)}, "minus": [-1], "unit": [1]}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "L", 4, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in constants.items()],
    )
    before = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    after = onnx.ModelProto()
    after.CopyFrom(before)
    settle_reshapes(after)
    same(before, after, SIZES)
