"""The numbers behind a comparison: two arrays of one shape, read in chunks. Formulas stand in ``convert.compare``."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from convert.metrics import OutputPicture

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Kind = Literal["float", "integer", "boolean", "text", "bytes"]

CHUNK = 1 << 20
"""Elements of one pass."""
ROW_BACKGROUND = 0.1
REL_FLOOR = 0.01
BINS = 40
POINTS = 400
WORST_POINTS = 100


def measure_floats(ref: Array, cand: Array) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of ``OutputMetrics`` and of ``OutputPicture`` for two non-empty floating-point arrays of one shape."""
    pair = _Pair(ref, cand, _scale(ref, cand))
    sums = _sums(pair)
    measured = _from_sums(sums, pair)
    if sums.finite:
        rms = math.sqrt(sums.ref / sums.finite)
        counts, equal, measured["max_rel"] = _error_sizes(pair, rms)
        measured["worst_row_cosine"], row = _worst_row(pair, sums)
        measured["argmax_agreement"] = _argmax_agreement(ref, cand)
    else:
        counts, equal, row = (), 0, ()
    measured = {key: value for key, value in measured.items() if value is not None}
    picture = {"counts": counts, "equal": equal, "points": _points(pair), "error": measured.get("rel_l2", 0.0)}
    return measured | {
        "state": _state(sums, ref.size),
        "nan_reference": sums.nan[0],
        "nan_candidate": sums.nan[1],
        "inf_reference": sums.inf[0],
        "inf_candidate": sums.inf[1],
        "nonfinite_mismatch": sums.unlike,
        "worst": dict.fromkeys(measured, 0),
        "worst_row": row,
        "problems": _nonfinite_problems(sums, ref.size),
    }, picture


def measure_exact(ref: Array, cand: Array) -> tuple[int, float | None]:
    """The number of equal elements, and for integers the highest difference."""
    matching, max_abs = 0, 0.0
    numbers = kind_of(ref.dtype) == "integer" and ref.size > 0
    for start in range(0, ref.size, CHUNK):
        a, b = _flat(ref, start, start + CHUNK), _flat(cand, start, start + CHUNK)
        matching += int(np.count_nonzero(a == b))
        if numbers:
            max_abs = max(max_abs, float(np.abs(b.astype(np.float64) - a.astype(np.float64)).max()))
    return matching, max_abs if numbers else None


def kind_of(dtype: np.dtype[Any]) -> Kind:
    """How elements of a dtype are compared. The names of ml_dtypes (``bfloat16``, ``int4``) count as what they say."""
    if dtype.kind in "fc" or dtype.name.startswith(("bfloat", "float")):
        return "float"
    if dtype.kind == "b":
        return "boolean"
    if dtype.kind in "iu" or dtype.name.startswith(("int", "uint")):
        return "integer"
    return "text" if dtype.kind in "USO" else "bytes"


def readable(array: Array) -> Array:
    """Complex numbers as pairs, and the two-byte blanks that .npz files make of bfloat16 as what they were."""
    if array.dtype.kind == "c":
        part = np.dtype(f"f{array.dtype.itemsize // 2}")
        return np.ascontiguousarray(array).view(part).reshape(*array.shape, 2)
    if array.dtype == np.dtype("V2"):
        wide = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32) << np.uint32(16)
        return wide.view(np.float32).reshape(array.shape)
    return array


def fingerprint(arrays: Iterable[Array]) -> str:
    """A digest of arrays' dtypes, shapes and bytes: equal for equal arrays."""
    state = hashlib.sha256()
    for array in arrays:
        state.update(f"{array.dtype.name}{array.shape}".encode())
        for start in range(0, array.size, CHUNK):
            piece = _flat(array, start, start + CHUNK)
            state.update(repr(piece.tolist()).encode() if piece.dtype.kind == "O" else piece.tobytes())
    return state.hexdigest()


# --------------------------------------------------------------------------------------------------------------- chunks


def _flat(array: Array, start: int, stop: int) -> Array:
    """Elements ``start`` to ``stop`` in C order; only those are copied where the array isn't contiguous."""
    if array.flags.c_contiguous:
        return array.reshape(-1)[start:stop]
    piece: Array = array.flat[start:stop]
    return piece


@dataclass(frozen=True)
class _Pair:
    """Two arrays of one shape, read in chunks as float64 with non-finite positions set to 0 on both sides."""

    ref: Array
    cand: Array
    scale: float

    def piece(self, start: int, stop: int) -> tuple[Floats, Floats]:
        a, b = (_flat(side, start, stop).astype(np.float64) for side in (self.ref, self.cand))
        finite = np.isfinite(a) & np.isfinite(b)
        if not finite.all():
            a[~finite] = b[~finite] = 0.0
        if self.scale != 1.0:
            a *= self.scale
            b *= self.scale
        return a, b


def _scale(ref: Array, cand: Array) -> float:
    """A power of two that keeps the squares of float64 numbers in range; 1 for narrower types, which can't leave it."""
    if max(ref.dtype.itemsize, cand.dtype.itemsize) < 8 or not ref.size:
        return 1.0
    highest = 0.0
    for start in range(0, ref.size, CHUNK):
        for side in (ref, cand):
            piece = np.abs(_flat(side, start, start + CHUNK).astype(np.float64))
            highest = max(highest, float(piece.max(initial=0.0, where=np.isfinite(piece))))
    return 1.0 if 1e-100 < highest < 1e100 or highest == 0.0 else 2.0 ** -max(-1000, min(1000, math.frexp(highest)[1]))


@dataclass
class _Sums:
    """Sums of squares and products, highest error, and counts of NaN and Inf."""

    dot: float = 0.0
    ref: float = 0.0
    cand: float = 0.0
    diff: float = 0.0
    max_abs: float = 0.0
    nan: list[int] = field(default_factory=lambda: [0, 0])
    inf: list[int] = field(default_factory=lambda: [0, 0])
    unlike: int = 0
    finite: int = 0


def _sums(pair: _Pair) -> _Sums:
    total = _Sums()
    for start in range(0, pair.ref.size, CHUNK):
        _count_nonfinite(pair, start, total)
        a, b = pair.piece(start, start + CHUNK)
        total.dot += float(a @ b)
        total.ref += float(a @ a)
        total.cand += float(b @ b)
        b -= a
        total.diff += float(b @ b)
        total.max_abs = max(total.max_abs, float(b.max()), -float(b.min()))
    return total


def _count_nonfinite(pair: _Pair, start: int, total: _Sums) -> None:
    sides = [_flat(side, start, start + CHUNK).astype(np.float64) for side in (pair.ref, pair.cand)]
    a, b = sides
    odd = ~(np.isfinite(a) & np.isfinite(b))
    count = int(np.count_nonzero(odd))
    total.finite += a.size - count
    if not count:
        return
    a, b = a[odd], b[odd]
    for place, side in enumerate((a, b)):
        total.nan[place] += int(np.count_nonzero(np.isnan(side)))
        total.inf[place] += int(np.count_nonzero(np.isinf(side)))
    total.unlike += int(np.count_nonzero(~((np.isnan(a) & np.isnan(b)) | (a == b))))


def _state(sums: _Sums, size: int) -> Literal["all-zero", "scalar", "compared"]:
    if sums.ref == sums.cand == 0.0 and sums.finite:
        return "all-zero"
    return "scalar" if size == 1 else "compared"


def _from_sums(sums: _Sums, pair: _Pair) -> dict[str, Any]:
    if not sums.finite:
        return {}
    found: dict[str, Any] = {"max_abs": _clamped(sums.max_abs / pair.scale), "rel_l2": 0.0}
    if sums.ref and not sums.diff and pair.ref.size > 1:
        found["cosine"] = 1.0
    elif sums.ref and sums.cand and pair.ref.size > 1:
        found["cosine"] = max(-1.0, min(1.0, sums.dot / (math.sqrt(sums.ref) * math.sqrt(sums.cand))))
    elif (sums.ref or sums.cand) and pair.ref.size > 1:
        found["cosine"] = 0.0
    if sums.ref or sums.cand:
        found["rel_l2"] = _clamped(math.sqrt(sums.diff) / math.sqrt(sums.ref or sums.cand))
    if sums.ref:
        found["norm_ratio"] = _clamped(math.sqrt(sums.cand) / math.sqrt(sums.ref))
    return found


def _clamped(value: float) -> float:
    """The value, kept within what JSON can hold."""
    return min(value, 1.7976931348623157e308)


def _nonfinite_problems(sums: _Sums, size: int) -> tuple[str, ...]:
    problems = []
    for word, (ref, cand) in (("NaN", sums.nan), ("Inf", sums.inf)):
        if sums.unlike and (ref or cand):
            here = f"has {word} at {cand} of {size} positions, the reference at {ref}"
            original = f" (the original model already gives {word} at {ref} positions)" if ref else ""
            problems.append(here + original)
    if sums.unlike and sum(sums.nan[:1] + sums.inf[:1]):
        problems.append(f"NaN or Inf stand at other places than in the reference: {sums.unlike} positions differ")
    if not sums.finite and not sums.unlike:
        problems.append(
            f"can't be judged: the original model already gives NaN or Inf at all {size} positions of a sample"
        )
    return tuple(problems)


def _error_sizes(pair: _Pair, rms: float) -> tuple[tuple[int, ...], int, float]:
    """The histogram of log10(|d| / rms), the number of equal elements, and the highest relative error."""
    counts = np.zeros(BINS, dtype=np.int64)
    limits = OutputPicture(name="")
    equal, max_rel = 0, 0.0
    for start in range(0, pair.ref.size, CHUNK):
        a, b = pair.piece(start, start + CHUNK)
        b -= a
        error = np.abs(b, out=b)
        keep = error > 0.0
        equal += int(error.size - np.count_nonzero(keep))
        error, size = error[keep], np.abs(a[keep])
        if not error.size:
            continue
        relative = error / np.maximum(size, REL_FLOOR * rms) if rms else np.ones_like(error)
        max_rel = max(max_rel, float(relative.max()))
        exponents = np.log10(error) - (math.log10(rms) if rms else 0.0)
        places = ((exponents - limits.low) * (BINS / (limits.high - limits.low))).astype(np.int64)
        counts += np.bincount(np.clip(places, 0, BINS - 1), minlength=BINS)
    return tuple(counts.tolist()), equal, _clamped(max_rel)


# ----------------------------------------------------------------------------------------------------------------- rows


def _row_axis(shape: tuple[int, ...]) -> int | None:
    """The axis whose vectors are rows: the last one longer than 1, where another one before it is too."""
    long = [axis for axis, size in enumerate(shape) if size > 1]
    return long[-1] if len(long) > 1 else None


def _row_sums(pair: _Pair, length: int) -> Iterator[tuple[int, Floats, Floats, Floats]]:
    """(first row, r·c, r·r, c·c of each row) for chunks of whole rows; longer rows are summed in pieces."""
    if length > CHUNK:
        for row, start in enumerate(range(0, pair.ref.size, length)):
            sums = np.zeros((3, 1))
            for piece in range(start, start + length, CHUNK):
                a, b = pair.piece(piece, min(piece + CHUNK, start + length))
                sums[:, 0] += (a @ b, a @ a, b @ b)
            yield row, sums[0], sums[1], sums[2]
        return
    step = CHUNK // length * length
    for start in range(0, pair.ref.size, step):
        a, b = (side.reshape(-1, length) for side in pair.piece(start, start + step))
        products = ((a, b), (a, a), (b, b))
        dot, aa, bb = (np.einsum("ij,ij->i", left, right) for left, right in products)
        yield start // length, dot, aa, bb


def _worst_row(pair: _Pair, sums: _Sums) -> tuple[float | None, tuple[int, ...]]:
    """The lowest row cosine, and where the row lies."""
    axis, total = _row_axis(pair.ref.shape), sums.ref or sums.cand
    if axis is None or not total:
        return None, ()
    if not sums.diff:
        return 1.0, ()
    length = pair.ref.shape[axis]
    background = ROW_BACKGROUND**2 * total / (pair.ref.size // length)
    lowest, where = 2.0, 0
    for first, dot, aa, bb in _row_sums(pair, length):
        cosines = (dot + background) / (np.sqrt(aa + background) * np.sqrt(bb + background))
        place = int(np.argmin(cosines))
        if cosines[place] < lowest:
            lowest, where = float(cosines[place]), first + place
    index = tuple(int(i) for i in np.unravel_index(where, pair.ref.shape[:axis]))
    return max(-1.0, min(1.0, lowest)), index


def _argmax_agreement(ref: Array, cand: Array) -> float | None:
    length = ref.shape[-1] if ref.ndim else 1
    if length < 2:
        return None
    agreeing, rows = 0, ref.size // length
    step = max(1, CHUNK // length)
    for row in range(0, rows, step):
        ends = row * length, min(row + step, rows) * length
        a, b = (_flat(side, *ends).reshape(-1, length).argmax(axis=1) for side in (ref, cand))
        agreeing += int(np.count_nonzero(a == b))
    return agreeing / rows


def _points(pair: _Pair) -> tuple[tuple[float, float], ...]:
    """Evenly spaced elements and those of the largest error, for the scatter; everything where there are few."""
    size = pair.ref.size
    if size <= POINTS:
        places = np.arange(size)
    else:
        even = np.linspace(0, size - 1, POINTS - WORST_POINTS).astype(np.int64)
        places = np.unique(np.concatenate([even, _largest_errors(pair)]))
    values = [side.flat[places].astype(np.float64) for side in (pair.ref, pair.cand)]
    finite = np.isfinite(values[0]) & np.isfinite(values[1])
    return tuple(
        (float(f"{x:.6g}"), float(f"{y:.6g}")) for x, y in zip(values[0][finite], values[1][finite], strict=True)
    )


def _largest_errors(pair: _Pair) -> npt.NDArray[np.int64]:
    places, errors = np.zeros(0, dtype=np.int64), np.zeros(0)
    for start in range(0, pair.ref.size, CHUNK):
        a, b = pair.piece(start, start + CHUNK)
        error = np.abs(b - a)
        top = np.argpartition(error, -min(WORST_POINTS, error.size))[-WORST_POINTS:]
        places, errors = np.concatenate([places, top + start]), np.concatenate([errors, error[top]])
        best = np.argsort(errors, kind="stable")[-WORST_POINTS:]
        places, errors = places[best], errors[best]
    return places
