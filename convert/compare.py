"""Compare outputs with their reference, output by output and sample by sample. Numbers only: no thresholds here.

    compare_outputs(reference, candidate, names) ─▶ one ``Compared`` per output, for one sample
    fold(those of every sample)                  ─▶ ``Comparison``: the worst of each metric, pictures, notes

For a reference r and a candidate c, d = c - r, ‖·‖ the 2-norm over all elements, sums in float64:

- cosine             r·c / (‖r‖ ‖c‖); 0 where one side alone is all zero; undefined for one element and where both are
- relative L2        ‖d‖ / ‖r‖; ‖d‖ / ‖c‖ = 1 where r is all zero and c is not
- norm ratio         ‖c‖ / ‖r‖; undefined where r is all zero
- max abs, max rel   max |d|, and max |d| / max(|r|, 1 % of the RMS of r) element by element
- worst-row cosine   the lowest cosine of a row. A row is a vector along the last axis that is longer than one, and is
                     extended by one equal element of 10 % of the RMS norm of the rows, so that a row of almost nothing
                     is judged on the scale of its tensor
- exact match        share of equal elements, for integers, booleans and text, where a cosine says nothing
- argmax agreement   share of vectors along the last axis whose highest element lies in the same place

Elements where either side is NaN or infinite take no part in the sums; their pattern is compared position by position.
float16, bfloat16 and float8 are widened, complex numbers are pairs. Outputs are paired by position, never by name.
A pass works on chunks, so the extra memory is bounded (about 100 MB) however large an output is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal

import msgspec
import numpy as np

from convert.measure import Array, fingerprint, kind_of, measure_exact, measure_floats, readable
from convert.metrics import OutputMetrics, OutputPicture
from convert.values import Note

UserMetric = Callable[[Array, Array], float]

LOWEST = ("cosine", "worst_row_cosine", "argmax_agreement")
"""Metrics whose lowest value is the worst one; of those in ``HIGHEST`` it is the highest."""
HIGHEST = ("rel_l2", "max_abs", "max_rel")


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One output, compared on one sample (or on several, once merged). ``fingerprint``: of the reference's bytes."""

    metrics: OutputMetrics
    picture: OutputPicture
    fingerprint: str = ""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All outputs over all samples."""

    outputs: tuple[OutputMetrics, ...]
    pictures: tuple[OutputPicture, ...]
    notes: tuple[Note, ...]
    samples: int


# ----------------------------------------------------------------------------------------------------------- one sample


def compare_outputs(
    reference: Sequence[Array | None],
    candidate: Sequence[Array | None],
    names: Sequence[str],
    *,
    candidate_names: Sequence[str] = (),
    user: Mapping[str, UserMetric] | None = None,
) -> tuple[Compared, ...]:
    """Compare the outputs of one sample, paired by position; ``names`` are the reference's. None: no output there.

    Missing and extra outputs are named in their ``problems``. ``user``: metrics of the user by name, called with
    both arrays as they are; what they raise passes through.
    """
    compared = []
    for place, (ref, cand) in enumerate(zip_longest(reference, candidate)):
        known = names if ref is not None else candidate_names
        name = known[place] if place < len(known) else f"#{place}"
        compared.append(_compare_one(name, ref, cand, user or {}))
    return tuple(compared)


def _compare_one(name: str, ref: Array | None, cand: Array | None, user: Mapping[str, UserMetric]) -> Compared:
    if ref is None:
        assert cand is not None, "an output on neither side"
        return _structural(name, cand, cand, "mismatch", ("is an extra output: the reference has none in its place",))
    if cand is None:
        return _structural(name, ref, ref, "missing", ("is missing: the candidate has no output in its place",))
    ref, cand = readable(np.asarray(ref)), readable(np.asarray(cand))
    if problems := _shape_and_kind(ref, cand):
        return _structural(name, ref, cand, "mismatch", problems)
    compared = _compare_floats(name, ref, cand) if kind_of(ref.dtype) == "float" else _compare_exactly(name, ref, cand)
    if not user or not ref.size:
        return compared
    measured = {metric: float(function(ref, cand)) for metric, function in user.items()}
    problems = tuple(f"metric {key} gave {value}" for key, value in measured.items() if not math.isfinite(value))
    measured = {key: value for key, value in measured.items() if math.isfinite(value)}
    metrics = msgspec.structs.replace(
        compared.metrics, user=measured, worst=compared.metrics.worst | dict.fromkeys(measured, 0),
        problems=compared.metrics.problems + problems,
    )  # fmt: skip
    return msgspec.structs.replace(compared, metrics=metrics)


def _shape_and_kind(ref: Array, cand: Array) -> tuple[str, ...]:
    problems = []
    if kind_of(ref.dtype) != kind_of(cand.dtype):
        problems.append(f"has dtype {cand.dtype.name}, and the reference has {ref.dtype.name}")
    if ref.shape != cand.shape:
        problems.append(f"has shape {list(cand.shape)}, and the reference has {list(ref.shape)}")
    return tuple(problems)


def _described(name: str, ref: Array, cand: Array) -> dict[str, Any]:
    return {
        "name": name,
        "dtype": ref.dtype.name,
        "candidate_dtype": cand.dtype.name,
        "shape": ref.shape,
        "elements": int(ref.size),
        "samples": 1,
    }


def _structural(
    name: str, ref: Array, cand: Array, state: Literal["missing", "mismatch"], problems: tuple[str, ...]
) -> Compared:
    metrics = OutputMetrics(**_described(name, ref, cand), state=state, problems=problems)
    return Compared(metrics=metrics, picture=OutputPicture(name=name))


def _compare_exactly(name: str, ref: Array, cand: Array) -> Compared:
    matching, max_abs = measure_exact(ref, cand)
    metrics = OutputMetrics(
        **_described(name, ref, cand),
        state="exact" if ref.size else "empty",
        exact_match=matching / ref.size if ref.size else None,
        matching=matching,
        max_abs=max_abs,
        worst={"exact_match": 0} if ref.size else {},
    )
    picture = OutputPicture(name=name, equal=matching, error=float(ref.size - matching))
    return Compared(metrics=metrics, picture=picture, fingerprint=fingerprint([ref]))


def _compare_floats(name: str, ref: Array, cand: Array) -> Compared:
    measured: dict[str, Any] = {"state": "empty"}
    drawn: dict[str, Any] = {}
    if ref.size:
        measured, drawn = measure_floats(ref, cand)
    return Compared(
        metrics=OutputMetrics(**_described(name, ref, cand), **measured),
        picture=OutputPicture(name=name, **drawn),
        fingerprint=fingerprint([ref]),
    )


# ---------------------------------------------------------------------------------------------------------- all samples


def fold(samples: Iterable[Sequence[Compared]], *, inputs_differ: bool = False) -> Comparison:
    """The worst of each metric over the samples, taken one after another so that none need be kept.

    ``inputs_differ``: whether the samples are known to differ; only then does an output that stays the same say
    anything. Without any sample the comparison is empty, and no gate passes it.
    """
    merged: tuple[Compared, ...] = ()
    count = 0
    for sample in samples:
        placed = tuple(_at_sample(one, count) for one in sample)
        merged = tuple(_merge(*both) for both in zip_longest(merged, placed)) if count else placed
        count += 1
    outputs = tuple(_with_constant(one, inputs_differ and count > 1) for one in merged)
    notes = tuple(note for output in outputs for note in _notes(output))
    return Comparison(outputs=outputs, pictures=tuple(one.picture for one in merged), notes=notes, samples=count)


def _at_sample(one: Compared, sample: int) -> Compared:
    metrics = msgspec.structs.replace(
        one.metrics, worst_sample=sample, worst=dict.fromkeys(one.metrics.worst, sample),
        problems=tuple(f"{problem} (sample {sample})" for problem in one.metrics.problems),
    )  # fmt: skip
    return msgspec.structs.replace(
        one, metrics=metrics, picture=msgspec.structs.replace(one.picture, sample=sample)
    )  # fmt: skip


def _merge(left: Compared | None, right: Compared | None) -> Compared:
    if left is None or right is None:
        one = left or right
        assert one is not None
        return one
    worse = right if right.picture.error > left.picture.error else left
    counts = tuple(a + b for a, b in zip_longest(left.picture.counts, right.picture.counts, fillvalue=0))
    equal = left.picture.equal + right.picture.equal
    return Compared(
        metrics=_merge_metrics(left.metrics, right.metrics, worse.metrics.worst_sample),
        picture=msgspec.structs.replace(worse.picture, counts=counts, equal=equal),
        fingerprint=left.fingerprint if left.fingerprint == right.fingerprint else "",
    )


STATES = ("missing", "mismatch", "compared", "exact", "scalar", "all-zero", "empty")
SUMMED = (
    "elements", "matching", "samples",
    "nan_reference", "nan_candidate", "inf_reference", "inf_candidate", "nonfinite_mismatch",
)  # fmt: skip
PROBLEMS = 20
"""At most this many problems are kept of one output: of very many samples, the later ones say the same."""


def _merge_metrics(left: OutputMetrics, right: OutputMetrics, worst_sample: int) -> OutputMetrics:
    changes: dict[str, Any] = {name: getattr(left, name) + getattr(right, name) for name in SUMMED}
    worst = dict(left.worst)
    for name in (*LOWEST, *HIGHEST, "norm_ratio", "exact_match"):
        value, from_right = _worse(name, getattr(left, name), getattr(right, name))
        changes[name] = value
        if from_right:
            worst[name] = right.worst_sample
            if name == "worst_row_cosine":
                changes["worst_row"] = right.worst_row
    user = dict(left.user)
    for name, value in right.user.items():
        if name not in user or value < user[name]:
            user[name], worst[name] = value, right.worst_sample
    if changes["exact_match"] is not None:
        changes["exact_match"] = changes["matching"] / changes["elements"]
    state = min(left.state, right.state, key=STATES.index)
    problems = (left.problems + right.problems)[:PROBLEMS]
    return msgspec.structs.replace(
        left, **changes, user=user, worst=worst, worst_sample=worst_sample, state=state, problems=problems
    )


def _worse(name: str, left: float | None, right: float | None) -> tuple[float | None, bool]:
    """The worse of two values of a metric, and whether it is the right one."""
    if right is None:
        return left, False
    if left is None:
        return right, True
    if name in HIGHEST:
        return max(left, right), right > left
    if name == "norm_ratio":
        return (right, True) if _off(right) > _off(left) else (left, False)
    return min(left, right), right < left


def _off(ratio: float) -> float:
    return abs(math.log(ratio)) if ratio > 0.0 else math.inf


def _with_constant(one: Compared, several: bool) -> OutputMetrics:
    constant = several and bool(one.fingerprint) and one.metrics.state not in ("empty", "missing", "mismatch")
    return msgspec.structs.replace(one.metrics, constant=constant)


def _notes(output: OutputMetrics) -> Iterator[Note]:
    """What a user should know of an output that no metric says."""
    places = ((output.nan_reference, "NaN"), (output.inf_reference, "Inf"))
    for count, word in places:
        if count and not output.nonfinite_mismatch:
            text = (
                f"output {output.name!r}: the original model already gives {word} at {count} of {output.elements} "
                f"positions, and the candidate agrees; metrics are of the finite elements"
            )
            yield Note(level="warning", text=text, subject=output.name)
    if output.state == "all-zero":
        text = f"output {output.name!r}: cosine undefined, all-zero on both sides, max_abs=0"
        yield Note(level="info", text=text, subject=output.name)
    if output.state == "empty":
        text = f"output {output.name!r}: empty on both sides in every sample, so its shape alone was compared"
        yield Note(level="info", text=text, subject=output.name)
    if output.constant and output.state == "exact":
        text = f"output {output.name!r} was the same in all {output.samples} samples, though they differ"
        yield Note(level="info", text=text, subject=output.name)
    elif output.constant:
        text = (
            f"output {output.name!r} does not depend on the input: it was constant over {output.samples} samples that "
            f"differ, so equal numbers prove little"
        )
        yield Note(level="warning", text=text, subject=output.name)
