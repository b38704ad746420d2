"""The texts of ``--input`` and ``--dim``.

    --input  [NAME:]DTYPE[D0,D1,…][{LOW..HIGH}]      images:float32[N,3,640,640]   ids:int64[1,16]{0..999}   t:float32[]
    --dim    NAME=LOW..HIGH | NAME=SIZE,SIZE,…       N=1..8   N=1..   N=1,4,8

A dimension is a size, or a word that names a symbolic one. ``{LOW..HIGH}`` bounds the values of random samples (both
ends included), which integer inputs need. All texts that can't be read are named at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from convert.errors import UsageError
from convert.values import Dim, DimRange

T = TypeVar("T")

DTYPES = (
    "float32", "float16", "float64", "bfloat16", "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32",
    "uint64", "int64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
ALIASES = {
    "float": "float32", "fp32": "float32", "f32": "float32", "half": "float16", "fp16": "float16", "f16": "float16",
    "double": "float64", "fp64": "float64", "f64": "float64", "bf16": "bfloat16", "byte": "uint8", "u8": "uint8",
    "char": "int8", "i8": "int8", "short": "int16", "int": "int32", "i32": "int32", "long": "int64", "i64": "int64",
    "boolean": "bool",
}  # fmt: skip
INPUT = re.compile(
    r"(?:(?P<name>.+):)?\s*(?P<dtype>[A-Za-z]\w*)\s*\[(?P<dims>[^\[\]]*)\]\s*(?:\{(?P<range>[^{}]*)\})?\s*"
)
DIM_NAME = re.compile(r"[^\W\d]\w*")
MAX_SIZE = 1 << 40


class InputText(msgspec.Struct, frozen=True, kw_only=True):
    """One ``--input``. ``name`` is empty where the text has none: inputs are then taken in order."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    low: float | None = None
    high: float | None = None


def parse_inputs(texts: Sequence[str]) -> tuple[InputText, ...]:
    """Read ``--input`` texts. Raises :class:`UsageError` CNV-2011, naming every text that can't be read."""
    hint = "write NAME:DTYPE[SIZES], for example --input 'images:float32[N,3,640,640]'; a word is a symbolic dimension"
    found = _parse_all(texts, _input, code="CNV-2011", option="--input", hint=hint)
    names = [entry.name for entry in found if entry.name]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise UsageError("CNV-2011", f"--input names an input twice: {', '.join(doubled)}", hint="give each input once")
    return found


def parse_dims(texts: Sequence[str]) -> tuple[DimRange, ...]:
    """Read ``--dim`` texts. Raises :class:`UsageError` CNV-2012, naming every text that can't be read."""
    hint = "write NAME=LOW..HIGH or NAME=SIZE,SIZE, for example --dim N=1..8 or --dim N=1,4,8"
    found = _parse_all(texts, _dim, code="CNV-2012", option="--dim", hint=hint)
    names = [entry.name for entry in found]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise UsageError("CNV-2012", f"--dim names a dimension twice: {', '.join(doubled)}", hint="give each one once")
    return found


def _parse_all(texts: Sequence[str], parse: Callable[[str], T], *, code: str, option: str, hint: str) -> tuple[T, ...]:
    found: list[T] = []
    bad: list[str] = []
    for text in texts:
        try:
            found.append(parse(text))
        except ValueError as error:
            bad.append(f"{text!r} ({error})")
    if bad:
        raise UsageError(code, f"{option} can't be read: {'; '.join(bad)}", hint=hint)
    return tuple(found)


def _input(text: str) -> InputText:
    match = INPUT.fullmatch(text.strip())
    if match is None:
        raise ValueError("it has no [sizes]" if "[" not in text else "it is not NAME:DTYPE[SIZES]")
    dtype = ALIASES.get(match["dtype"].lower(), match["dtype"].lower())
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {match['dtype']}; known: {', '.join(DTYPES[:6])}, int32, int64, …")
    dims = match["dims"].strip()
    shape = tuple(_size(part.strip()) for part in dims.split(",")) if dims else ()
    low, high = _values(match["range"], dtype) if match["range"] is not None else (None, None)
    return InputText(name=(match["name"] or "").strip(), dtype=dtype, shape=shape, low=low, high=high)


def _size(text: str) -> Dim:
    if text.isascii() and text.isdigit():
        if int(text) > MAX_SIZE:
            raise ValueError(f"the size {text} is too large")
        return int(text)
    if DIM_NAME.fullmatch(text):
        return text
    if text in ("?", "-1", "*", ""):
        raise ValueError("a dynamic dimension needs a name, such as N")
    raise ValueError(f"{text!r} is neither a size nor a name")


def _values(text: str, dtype: str) -> tuple[float, float]:
    low_text, dots, high_text = text.partition("..")
    try:
        low, high = float(low_text), float(high_text)
    except ValueError:
        low, high = math.nan, math.nan
    if not dots or not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise ValueError(f"{{{text}}} is no range; write {{LOW..HIGH}}")
    if "int" in dtype and not (low.is_integer() and high.is_integer() and abs(low) < 2**53 and abs(high) < 2**53):
        raise ValueError(f"the range of an {dtype} input needs whole numbers")
    if dtype.startswith("uint") and low < 0:
        raise ValueError(f"an {dtype} input takes no numbers below 0")
    return low, high


def _dim(text: str) -> DimRange:
    name, equals, what = text.strip().rpartition("=")
    name, what = name.strip(), what.strip()
    if not equals or not name:
        raise ValueError("it is not NAME=SIZES")
    if ".." in what:
        low_text, _, high_text = what.partition("..")
        low = _positive(low_text)
        high = _positive(high_text) if high_text.strip() else 0
        if high and low > high:
            raise ValueError(f"{low} is more than {high}")
        return DimRange(name=name, sizes=(low,) if low == high else (), low=low, high=high)
    sizes = tuple(dict.fromkeys(_positive(part) for part in what.split(",")))
    return DimRange(name=name, sizes=sizes, low=min(sizes), high=max(sizes))


def _positive(text: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) <= MAX_SIZE:
        raise ValueError(f"{text!r} is no size of 1 or more")
    return int(text)
