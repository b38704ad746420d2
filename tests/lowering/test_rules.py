"""Rules on random shapes and attributes: the lowered graph against the given one."""

from __future__ import annotations

from typing import Any

import node_cases
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import parser

from convert.lowering import LoweringRefused, lower

RANDOM = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
DIM = st.integers(1, 4)


def graph(text: str, opset: int) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> agraph {text}')


def outputs_of(model: onnx.ModelProto, inputs: tuple[np.ndarray, ...]) -> list[Any]:
    try:
        return node_cases.run_ort(model, inputs)
    except Exception:
        return node_cases.run_reference(model, inputs)


def assert_lowers(text: str, opset: int, target: int, *inputs: np.ndarray, rtol: float = 1e-4) -> onnx.ModelProto:
    before = graph(text, opset)
    after = lower(before, target)
    assert node_cases.check(after) == ""
    expected, found = outputs_of(before, inputs), outputs_of(after, inputs)
    problems = [node_cases.difference(a, b, rtol, 1e-5) for a, b in zip(found, expected, strict=True)]
    assert problems == [""] * len(problems), text
    return after


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def numbers(values: Any) -> str:
    return "{" + ",".join(str(value) for value in values) + "}"


@RANDOM
@given(
    op=st.sampled_from(["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare"]),
    axes=st.lists(st.integers(-3, 2), min_size=1, max_size=2, unique_by=lambda a: a % 3),
    keep=st.integers(0, 1),
    computed=st.booleans(),
)
def test_reductions(op: str, axes: list[int], keep: int, computed: bool) -> None:
    dims = ["2", "3", "4"]
    for axis in axes:
        dims[axis] = "1" if keep else ""
    shape = ",".join(filter(None, dims))
    name = "axes" if computed else "a"
    text = (
        f"(float[2,3,4] x, int64[{len(axes)}] axes) => (float[{shape}] y) <int64[{len(axes)}] a = {numbers(axes)}> "
        f"{{ y = Reduce{op}<keepdims = {keep}>(x, {name}) }}"
    )
    assert_lowers(text, 18, 11, normal(2, 3, 4), np.array(axes))


@RANDOM
@given(
    size=st.integers(3, 9),
    output=st.integers(2, 12),
    mode=st.sampled_from(["linear", "cubic"]),
    place=st.sampled_from(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]),
    outside=st.integers(0, 1),
)
def test_resize_with_antialias(size: int, output: int, mode: str, place: str, outside: int) -> None:
    outside = outside if mode == "cubic" else 0
    text = (
        f"(float[1,2,{size},{size + 1}] x) => (float[1,2,{output},{output}] y) "
        f"<int64[4] s = {{1,2,{output},{output}}}> "
        f'{{ y = Resize<mode = "{mode}", antialias = 1, coordinate_transformation_mode = "{place}", '
        f"exclude_outside = {outside}>(x, , , s) }}"
    )
    before, x = graph(text, 18), normal(1, 2, size, size + 1)
    after = lower(before, 17)
    expected, found = (node_cases.run_reference(model, [x])[0] for model in (before, after))
    assert node_cases.difference(found, expected, 1e-3, 1e-5) == ""


@RANDOM
@given(
    policy=st.sampled_from(["not_larger", "not_smaller", "stretch"]),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    mode=st.sampled_from(["nearest", "linear"]),
)
def test_resize_of_two_axes(policy: str, sizes: tuple[int, int], mode: str) -> None:
    text = (
        f"(float[1,2,3,4] x) => (float[A,B,C,D] y) <int64[2] s = {numbers(sizes)}> "
        f'{{ y = Resize<mode = "{mode}", axes = [2, 3], keep_aspect_ratio_policy = "{policy}">(x, , , s) }}'
    )
    before, x = graph(text, 18), normal(1, 2, 3, 4)
    try:
        after = lower(before, 13)
    except LoweringRefused as refused:
        assert "keep_aspect_ratio_policy" in refused.refusals[0].reason
        return
    assert node_cases.difference(outputs_of(after, (x,))[0], outputs_of(before, (x,))[0], 1e-4, 1e-5) == ""


@RANDOM
@given(
    op=st.sampled_from(["AveragePool", "LpPool", "MaxPool"]),
    kernel=st.integers(2, 3),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    pad=st.integers(0, 1),
    ceil=st.integers(0, 1),
    size=st.integers(6, 9),
)
def test_pooling(op: str, kernel: int, stride: int, dilation: int, pad: int, ceil: int, size: int) -> None:
    text = (
        f"(float[2,3,{size}] x) => (float[2,3,N] y) {{ y = {op}<kernel_shape = [{kernel}], strides = [{stride}], "
        f"dilations = [{dilation}], pads = [{pad}, {pad}], ceil_mode = {ceil}>(x) }}"
    )
    assert_lowers(text, 22, 11, normal(2, 3, size), rtol=1e-3)


@RANDOM
@given(
    equation=st.sampled_from(
        (
            *("ij,jk->ik", "bij,bkj->bik", "ij->", "ii->i", "i,j->ji", "...ij,...jk->...ik", "bhqd,bhkd->bhqk"),
            *("ij,ij->j", "ab,bc,cd->ad", "ij,k->ik", "abc,acd->abd", "ij"),
        )
    ),
    size=st.integers(2, 4),
)
def test_einsum(equation: str, size: int) -> None:
    terms = equation.split("->")[0].replace("...", "z").split(",")
    inputs = [normal(*(size for _ in term), seed=i) for i, term in enumerate(terms)]
    names = [f"x{i}" for i in range(len(terms))]
    shapes = [",".join(str(d) for d in array.shape) for array in inputs]
    given_inputs = ", ".join(f"float[{shape}] {name}" for shape, name in zip(shapes, names, strict=True))
    result = ",".join(str(size) for _ in np.einsum(equation, *inputs).shape)
    kind = f"float[{result}]" if result else "float"
    text = f'({given_inputs}) => ({kind} y) {{ y = Einsum<equation = "{equation}">({", ".join(names)}) }}'
    assert_lowers(text, 12, 11, *inputs, rtol=1e-3)


@RANDOM
@given(
    reduction=st.sampled_from(["add", "mul", "max", "min"]),
    indices=st.lists(st.integers(-4, 3), min_size=1, max_size=6),
    kind=st.sampled_from(["float", "int32"]),
)
def test_scatter_with_repeated_indices(reduction: str, indices: list[int], kind: str) -> None:
    count = len(indices)
    text = (
        f"({kind}[4,2] x, {kind}[{count},2] u) => ({kind}[4,2] y, {kind}[4,2] z) "
        f"<int64[{count},1] i = {numbers(i % 4 for i in indices)}, "
        f"int64[{count},2] j = {numbers(i for i in indices for _ in range(2))}> "
        f'{{ y = ScatterND<reduction = "{reduction}">(x, i, u) '
        f'z = ScatterElements<axis = 0, reduction = "{reduction}">(x, j, u) }}'
    )
    inputs = [np.round(normal(*shape, seed=i) * 4) for i, shape in enumerate([(4, 2), (count, 2)])]
    dtype = np.float32 if kind == "float" else np.int32
    assert_lowers(text, 18, 11, *(array.astype(dtype) for array in inputs))


@RANDOM
@given(
    inverse=st.integers(0, 1),
    onesided=st.integers(0, 1),
    size=st.integers(2, 6),
    length=st.one_of(st.none(), st.integers(2, 7)),
)
def test_fourier_transforms(inverse: int, onesided: int, size: int, length: int | None) -> None:
    parts = 2 if inverse else 1
    argument = "n" if length else ""
    text = (
        f"(float[3,{size},{parts}] x) => (float[A,B,C] y) <int64 n = {{{length or 1}}}> "
        f"{{ y = DFT<axis = 1, inverse = {inverse}, onesided = {onesided}>(x, {argument}) }}"
    )
    x = normal(3, size, parts)
    after = lower(graph(text, 17), 11)
    signal = x[..., 0] + 1j * x[..., 1] if inverse else x[..., 0]
    transform = {(0, 0): np.fft.fft, (0, 1): np.fft.rfft, (1, 0): np.fft.ifft, (1, 1): np.fft.irfft}[inverse, onesided]
    expected = transform(signal, n=length, axis=1)
    pair = [expected] if np.isrealobj(expected) else [expected.real, expected.imag]
    found = node_cases.run_ort(after, [x])[0]
    assert node_cases.difference(found, np.stack(pair, axis=-1).astype(np.float32), 1e-3, 1e-5) == ""


@RANDOM
@given(size=st.integers(1, 9), parts=st.integers(1, 4))
def test_uneven_splits(size: int, parts: int) -> None:
    chunk = -(-size // parts)
    if chunk * (parts - 1) > size:
        return
    outs = ", ".join(f"float[N{i}] y{i}" for i in range(parts))
    names = ", ".join(f"y{i}" for i in range(parts))
    for shape in (str(size), "M"):
        text = f"(float[{shape}] x) => ({outs}) {{ {names} = Split<num_outputs = {parts}>(x) }}"
        assert_lowers(text, 18, 11, normal(size))


INTEGER_BODIES = {
    "Max": "y = Max(x, z)",
    "Min": "y = Min(x, z)",
    "Relu": "s = Add(x, z) t = Cast<to = 6>(s) r = Relu(t) y = Cast<to = 7>(r)",
    "Add of int8": "a = Cast<to = 3>(x) b = Cast<to = 3>(z) c = Add(a, b) y = Cast<to = 7>(c)",
    "Mod": "o = Constant<value_int = 7>() y = Mod(x, o)",
    "GreaterOrEqual": "b = GreaterOrEqual(x, z) y = Cast<to = 7>(b)",
    "BitwiseAnd": "y = BitwiseAnd(x, z)",
    "BitwiseOr of int32": "a = Cast<to = 6>(x) b = Cast<to = 6>(z) c = BitwiseOr(a, b) y = Cast<to = 7>(c)",
    "BitwiseXor": "y = BitwiseXor(x, z)",
    "BitwiseNot": "s = Add(x, z) y = BitwiseNot(s)",
    "Clip": "l = Constant<value_int = -3>() h = Constant<value_int = 4>() s = Add(x, z) y = Clip(s, l, h)",
}


@pytest.mark.parametrize("op", INTEGER_BODIES)
def test_integers_are_exact(op: str) -> None:
    text = f"(int64[4] x, int64[4] z) => (int64[4] y) {{ {INTEGER_BODIES[op]} }}"
    big = np.array([2**62 + 3, -(2**61) - 5, 7, -1])
    for z in (np.array([3, -2, 5, -1]), np.array([2**61 + 1, 1, -7, 9])):
        assert_lowers(text, 18, 11, big, z)


def test_integer_powers_keep_every_bit() -> None:
    """ONNX Runtime raises int64 in double, so numpy is the reference here."""
    text = "(int64[4] x, int64[4] z) => (int64[4] y) { y = Pow(x, z) }"
    x, z = np.array([2**62 + 3, -(2**31) - 5, 7, -1]), np.array([1, 2, 22, 2**40 + 1])
    assert np.array_equal(node_cases.run_ort(lower(graph(text, 18), 11), [x, z])[0], x**z)


@RANDOM
@given(block=st.integers(1, 3), width=st.integers(1, 6), kind=st.sampled_from(["uint8", "int8", "int16", "uint16"]))
def test_blocked_quantization(block: int, width: int, kind: str) -> None:
    blocks = -(-width // block)
    text = (
        f"(float[2,{width}] x, float[2,{blocks}] s, {kind}[2,{blocks}] z) => (float[2,{width}] y) "
        f"{{ q = QuantizeLinear<axis = 1, block_size = {block}>(x, s, z) "
        f"y = DequantizeLinear<axis = 1, block_size = {block}>(q, s, z) }}"
    )
    scale = np.abs(normal(2, blocks, seed=1)) + 0.1
    zero = np.full((2, blocks), 3, dtype=kind)
    assert_lowers(text, 21, 11, normal(2, width) * 5, scale, zero)


def test_float_remainders_have_the_sign_of_the_divisor() -> None:
    text = "(float[6] x, float[6] z) => (float[6] y) { y = Mod(x, z) }"
    x = np.array([5.5, -5.5, 5.5, -5.5, 0.0, 3.0], dtype=np.float32)
    z = np.array([2.0, 2.0, -2.0, -2.0, -2.0, np.inf], dtype=np.float32)
    after = lower(graph(text, 28), 13)
    found = node_cases.run_ort(after, [x, z])[0]
    assert np.array_equal(found, np.array([1.5, 0.5, -0.5, -1.5, -0.0, 3.0], dtype=np.float32))


@RANDOM
@given(
    shape=st.lists(DIM, min_size=1, max_size=3), exclusive=st.integers(0, 1), reverse=st.integers(0, 1), data=st.data()
)
def test_running_products(shape: list[int], exclusive: int, reverse: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    dims = ",".join(map(str, shape))
    text = (
        f"(float[{dims}] x) => (float[{dims}] y) <int64 a = {{{axis}}}> "
        f"{{ y = CumProd<exclusive = {exclusive}, reverse = {reverse}>(x, a) }}"
    )
    x = normal(*shape)
    turned = np.flip(x, axis) if reverse else x
    product = np.cumprod(turned, axis)
    if exclusive:
        ones = np.ones_like(np.take(product, [0], axis))
        product = np.concatenate([ones, np.take(product, range(x.shape[axis] - 1), axis)], axis)
    expected = np.flip(product, axis) if reverse else product
    found = node_cases.run_ort(lower(graph(text, 26), 11), [x])[0]
    assert node_cases.difference(found, expected, 1e-4, 1e-6) == ""


@RANDOM
@given(pads=st.lists(st.integers(0, 5), min_size=4, max_size=4))
def test_padding_around(pads: list[int]) -> None:
    text = (
        f"(float[2,3,4] x) => (float[2,A,B] y) <int64[4] p = {numbers(pads)}, int64[2] a = {{1,-1}}> "
        '{ y = Pad<mode = "wrap">(x, p, , a) }'
    )
    x = normal(2, 3, 4)
    found = node_cases.run_ort(lower(graph(text, 19), 11), [x])[0]
    assert np.array_equal(found, np.pad(x, [(0, 0), (pads[0], pads[2]), (pads[1], pads[3])], mode="wrap"))


LOWEST = float(np.finfo(np.float32).min)


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("rank", [3, 4])
def test_attention_with_masked_rows(kind: str, rank: int) -> None:
    """A row masked by -inf or False gives zeros; one masked by the lowest float still is a mean, as that is finite."""
    shape, heads = ("2,3,4,8", "") if rank == 4 else ("2,4,24", "<q_num_heads = 3, kv_num_heads = 3>")
    text = (
        f"(float[{shape}] q, float[{shape}] k, float[{shape}] v, {kind}[4,4] m) => (float[{shape}] y) "
        f"{{ y = Attention{heads}(q, k, v, m) }}"
    )
    mask = np.array([[0, 0, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1], [0, 1, 0, 0]], dtype=bool)
    bias = np.where(mask, 0, -np.inf)
    bias[3] = [LOWEST, -np.inf, LOWEST, -np.inf]
    if kind == "bool":
        bias = np.where(mask, 0, -np.inf)
    after = lower(graph(text, 23), 11)
    assert len(after.graph.node) < 30
    inputs = [normal(*map(int, shape.split(",")), seed=i) for i in range(3)]
    found = node_cases.run_ort(after, [*inputs, mask if kind == "bool" else bias.astype(np.float32)])[0]
    parts = [a if rank == 4 else a.reshape(2, 4, 3, 8).transpose(0, 2, 1, 3) for a in inputs]
    scores = parts[0] @ parts[1].swapaxes(-1, -2) / np.sqrt(8) + bias
    with np.errstate(invalid="ignore"):
        shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares = np.nan_to_num(shares / shares.sum(-1, keepdims=True))
    expected = shares @ parts[2]
    expected = expected if rank == 4 else expected.transpose(0, 2, 1, 3).reshape(2, 4, 24)
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-5)
