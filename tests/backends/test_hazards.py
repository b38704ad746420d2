import numpy as np
import pytest

from convert.precision.hazards import LISTED, hazards

TWO = {"x": np.float32([1, 2])}


@pytest.fixture
def told(graph_of, tmp_path):
    def tell(text: str, sample: dict, precision: str = "fp16", external: bool = False) -> list[str]:
        return [note.text for note in hazards(graph_of(text, sample, external=external), precision, tmp_path)]

    return tell


def test_a_mask_constant_and_the_softmax_that_eats_it_are_named(told):
    text = """g (float[2] x) => (float[2] y) {
        mask = Constant<value = float[2] {0, -3.4e38}>() a = Add(x, mask) [attn] y = Softmax(a) }"""
    constant, tensor = told(text, TWO)
    assert constant.startswith("constant 'mask' holds -3.4e+38, beyond float16's ±65504: it becomes infinite")
    assert constant.endswith("the Softmax 'attn' gives NaN where it masks a whole row")
    assert tensor.startswith("tensor 'a' of Add")


def test_an_activation_that_passes_float16_is_named(told):
    assert told("g (float[2] x) => (float[2] y) <float k = {60000}> { y = Mul(x, k) }", TWO) == [
        "tensor 'y' of Mul '' reaches 120000, beyond float16's 65504"
    ]


@pytest.mark.parametrize(("op", "opset"), [("ReduceMean", 17), ("ReduceMean", 18), ("ReduceSum", 13), ("ReduceL2", 17)])
def test_a_reduction_whose_sum_overflows_is_named(graph_of, tmp_path, op, opset):
    sample = {"x": np.ones((300, 300), np.float32)}
    graph = graph_of(f"g (float[300,300] x) => (float y) {{ y = {op}<keepdims = 0>(x) }}", sample, opset=opset)
    texts = [note.text for note in hazards(graph, "fp16", tmp_path)]
    assert f"{op} '' sums magnitudes to 90000 on the way, beyond float16's 65504" in texts


def test_axes_of_a_reduction_count(told):
    text = "g (float[300,300] x) => (float[300] y) { y = ReduceMean<axes = [1], keepdims = 0>(x) }"
    assert told(text, {"x": np.ones((300, 300), np.float32)}) == []


def test_an_epsilon_that_becomes_zero_is_named(told):
    text = "g (float[2] x) => (float[2] y) <float eps = {1e-12}> { a = Add(x, eps) y = Div(x, a) }"
    assert told(text, TWO) == ["constant 'eps' is 1e-12, below float16's smallest number: it becomes 0 in Add ''"]


def test_bf16_only_loses_the_very_end_of_the_range(told):
    text = """g (float[2] x) => (float[2] y) <float big = {1e9}, float most = {-3.4028235e38}>
        { a = Mul(x, big) y = Max(a, most) }"""
    (only,) = told(text, TWO, "bf16")
    assert only.startswith("constant 'most' holds -3.40282e+38, beyond bfloat16's")


def test_infinite_values_are_no_news(told):
    text = "g (float[2] x) => (float[2] y) <float zero = {0}> { a = Log(zero) y = Add(x, a) }"
    assert told(text, TWO) == []


def test_fp32_has_no_hazards(told):
    assert told("g (float[2] x) => (float[2] y) <float k = {1e9}> { y = Mul(x, k) }", TWO, "fp32") == []


def test_external_weights_are_read_too(told):
    numbers = ", ".join(["1"] * 31 + ["70000"])
    text = f"g (float[32] x) => (float[32] y) <float[32] w = {{{numbers}}}> {{ y = Mul(x, w) }}"
    (constant, tensor) = told(text, {"x": np.ones(32, np.float32)}, external=True)
    assert constant.startswith("constant 'w' holds 70000")
    assert tensor.startswith("tensor 'y' of Mul")


def test_a_long_list_is_cut_and_counted(told):
    nodes = " ".join(f"t{i + 1} = Add(t{i}, t{i})" for i in range(30))
    notes = told(f"g (float[2] t0) => (float[2] t30) {{ {nodes} }}", {"t0": np.float32([60000, 1])})
    assert len(notes) == LISTED + 1
    assert notes[-1] == "10 more tensors of this graph do not fit float16"


def test_nothing_is_left_behind(told, tmp_path):
    told("g (float[2] x) => (float[2] y) { y = Neg(x) }", TWO)
    assert not (tmp_path / "ranges").exists()
