"""The emulation's rounding is numpy's float16, ml_dtypes' bfloat16, and ONNX's QuantizeLinear, bit for bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from precision_graphs import parsed

from convert.ort import SessionSettings, open_session, run_session
from convert.precision.emulate import emulated
from convert.precision.rounding import FORMATS, int8_rounded, int8_scale, quantized, rounded

DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
EDGES = np.array(
    [
        *(0.0, -0.0, 65504, 65519.99, 65520, -65520, 2**-24, 2**-25, 2**-25 * 1.0001, 2**-14, 6.1e-5, 1e-8),
        *(np.inf, -np.inf, np.nan, 3.3895313892515355e38, 3.4e38, 2**-126, 2**-133, 1e-40),
        *(2049, 2050, 4099, 1 + 2**-11, 1 + 3 * 2**-11),
    ],
    np.float32,
)
BITS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=64)


def _same(ours, theirs):
    bits = ours.view(np.uint32) == theirs.view(np.uint32)
    return bool((bits | (np.isnan(ours) & np.isnan(theirs))).all())


@pytest.mark.parametrize("precision", DTYPES)
@settings(max_examples=200, deadline=None)
@given(bits=BITS)
def test_any_float32_rounds_as_the_narrow_type_does(precision, bits):
    values = np.concatenate([np.array(bits, np.uint32).view(np.float32), EDGES])
    with np.errstate(all="ignore"):
        wanted = values.astype(DTYPES[precision]).astype(np.float32)
    assert _same(rounded(values, precision), wanted)


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("level", ["off", "all"])
def test_the_emulated_graph_rounds_the_same_bits_in_onnxruntime(precision, level):
    values = np.random.default_rng(0).integers(0, 2**32, 1 << 16, dtype=np.uint32).view(np.float32)
    values = np.concatenate([values, EDGES])
    model = parsed("g (float[N] x, float[N] z) => (float[N] y) { [add] y = Add(x, z) }")
    session = open_session(
        emulated(model, precision, frozenset()).model.SerializeToString(), SessionSettings(level=level)
    )
    answer = run_session(session, {"x": values, "z": np.full_like(values, -0.0)})[0]
    with np.errstate(all="ignore"):
        wanted = values.astype(DTYPES[precision]).astype(np.float32)
    assert _same(answer, wanted)


def test_the_formats_are_what_the_types_say():
    for precision, dtype in DTYPES.items():
        info = ml_dtypes.finfo(dtype)
        fmt = FORMATS[precision]
        assert (fmt.largest, fmt.normal) == (float(info.max), float(info.smallest_normal))
        assert np.isinf(rounded(np.float32([fmt.overflows]), precision))
        assert np.isfinite(rounded(np.nextafter(np.float32([fmt.overflows]), np.float32(0)), precision))


@settings(max_examples=100, deadline=None)
@given(bits=BITS, reach=st.floats(1e-3, 1e3))
def test_int8_rounds_as_quantizelinear_does(bits, reach):
    values = np.array(bits, np.uint32).astype(np.float32) / np.float32(2**31) - np.float32(1)
    values *= np.float32(reach)
    scale = int8_scale(values.min(), values.max())
    model = parsed(
        "g (float[N] x, float s) => (float[N] y) <int8 z = {0}>"
        " { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }"
    )
    answer = run_session(_qdq(model), {"x": values, "s": scale})[0]
    assert np.array_equal(quantized(values, scale), answer)


_SESSIONS = {}


def _qdq(model):
    if "qdq" not in _SESSIONS:
        _SESSIONS["qdq"] = open_session(model.SerializeToString(), SessionSettings(level="off"))
    return _SESSIONS["qdq"]


def test_each_channel_has_its_own_scale():
    values = np.float32([[1, 2, 3], [100, 200, 300]])
    per_channel = int8_rounded(values, axis=0)
    assert np.abs(per_channel - values)[0].max() <= 3 / 254 + 1e-6
    assert np.abs(int8_rounded(values) - values)[0].max() > 0.1
