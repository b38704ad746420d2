"""The grammar of --input and --dim."""

from __future__ import annotations

import pytest

from convert.errors import UsageError
from convert.loading.inputs import InputText, parse_dims, parse_inputs
from convert.values import DimRange

INPUTS = {
    "images:float32[N,3,640,640]": InputText(name="images", dtype="float32", shape=("N", 3, 640, 640)),
    "float32[1,3]": InputText(name="", dtype="float32", shape=(1, 3)),
    "t:float32[]": InputText(name="t", dtype="float32", shape=()),
    "m:bool[batch_size, 7]": InputText(name="m", dtype="bool", shape=("batch_size", 7)),
    "x:bf16[2]": InputText(name="x", dtype="bfloat16", shape=(2,)),
    "x:half[2]": InputText(name="x", dtype="float16", shape=(2,)),
    "img:uint8[1,32,32,3]": InputText(name="img", dtype="uint8", shape=(1, 32, 32, 3)),
    "ids:int64[1,16]{0..999}": InputText(name="ids", dtype="int64", shape=(1, 16), low=0, high=999),
    "x:float32[2]{-0.5..1.5}": InputText(name="x", dtype="float32", shape=(2,), low=-0.5, high=1.5),
    "feats.1.0:float32[2]": InputText(name="feats.1.0", dtype="float32", shape=(2,)),
    "图像 输入:0:float32[1,3,8,8]": InputText(name="图像 输入:0", dtype="float32", shape=(1, 3, 8, 8)),
    " x : FLOAT32 [ 1 , N ] ": InputText(name="x", dtype="float32", shape=(1, "N")),
    "empty:float32[0,4]": InputText(name="empty", dtype="float32", shape=(0, 4)),
}


@pytest.mark.parametrize("text", INPUTS)
def test_input_text_is_read(text: str) -> None:
    assert parse_inputs([text]) == (INPUTS[text],)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "no [sizes]"),
        ("x:float32", "no [sizes]"),
        ("x:floot32[1]", "unknown dtype floot32"),
        ("x:float32[?,3]", "needs a name"),
        ("x:float32[-1,3]", "needs a name"),
        ("x:float32[1,,3]", "needs a name"),
        ("x:float32[1x3]", "neither a size nor a name"),
        ("x:float32[99999999999999]", "too large"),
        ("x:float32[1", "not NAME:DTYPE"),
        ("x:int64[1]{0..}", "no range"),
        ("x:int64[1]{5..1}", "no range"),
        ("x:int64[1]{0.5..1}", "whole numbers"),
        ("x:uint8[1]{-1..3}", "below 0"),
        ("x:float32[1]{0..inf}", "no range"),
        ("", "no [sizes]"),
    ],
)
def test_bad_input_text_says_why(text: str, why: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_inputs([text])
    assert raised.value.code == "CNV-2011"
    assert why in raised.value.message


def test_all_bad_texts_are_named_at_once() -> None:
    with pytest.raises(UsageError) as raised:
        parse_inputs(["a:float32[1]", "b", "c:what[1]", "d:float32[?]"])
    assert [name in raised.value.message for name in ("'b'", "'c:what[1]'", "'d:float32[?]'", "'a:")] == [True] * 3 + [
        False
    ]


def test_input_named_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="names an input twice: x"):
        parse_inputs(["x:float32[1]", "x:float32[2]"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("N=1..8", DimRange(name="N", low=1, high=8)),
        ("N=2..", DimRange(name="N", low=2)),
        ("N=1,4,8", DimRange(name="N", sizes=(1, 4, 8), low=1, high=8)),
        ("N=4", DimRange(name="N", sizes=(4,), low=4, high=4)),
        ("N=4..4", DimRange(name="N", sizes=(4,), low=4, high=4)),
        (" batch size = 1 , 2 ", DimRange(name="batch size", sizes=(1, 2), low=1, high=2)),
    ],
)
def test_dim_text_is_read(text: str, expected: DimRange) -> None:
    assert parse_dims([text]) == (expected,)


@pytest.mark.parametrize("text", ["N", "=4", "N=", "N=0", "N=8..1", "N=-1..4", "N=a", "N=1..b", "N=1,,2", "N=²"])
def test_bad_dim_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_dims([text])
    assert raised.value.code == "CNV-2012"
    assert repr(text) in raised.value.message


def test_dimension_named_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="names a dimension twice: N"):
        parse_dims(["N=1", "N=2"])
