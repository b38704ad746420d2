"""The validation gate: thresholds for each precision in one table, and the judging of a report with them.

A report is metrics only; judging needs nothing but them, so a stored report can be judged again without running
anything. Cosine alone never passes an output: it is blind to scale. Where the numbers come from: docs/concepts/gate.md.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from convert.errors import GateFailed, UsageError
from convert.metrics import OutputMetrics
from convert.values import GateVerdict, OnnxGraph, Precision, ValidationReport


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """What every output of an artifact must reach at a precision."""

    cosine: float
    worst_row_cosine: float
    rel_l2: float
    norm_ratio: float
    exact_match: float
    floor: float


_HALF = Thresholds(cosine=0.9999, worst_row_cosine=0.999, rel_l2=5e-3, norm_ratio=3e-3, exact_match=0.98, floor=1e-6)
THRESHOLDS: Mapping[Precision, Thresholds] = {
    "fp32": Thresholds(
        cosine=0.999999, worst_row_cosine=0.9999, rel_l2=1e-4, norm_ratio=5e-5, exact_match=1.0, floor=1e-6
    ),
    "fp16": _HALF,
    "mixed": _HALF,
    "bf16": Thresholds(cosine=0.999, worst_row_cosine=0.98, rel_l2=4e-2, norm_ratio=2e-2, exact_match=0.9, floor=1e-6),
    "int8": Thresholds(cosine=0.99, worst_row_cosine=0.9, rel_l2=0.15, norm_ratio=5e-2, exact_match=0.9, floor=1e-6),
}
FLOOR_REL_L2 = 0.1
"""Below the absolute floor an output still may not be off by more than this: a doubled output fails at any scale."""


OPPOSITE = -0.9
"""Below this cosine, an output is told to have the wrong sign."""
QUANTIZED = ("QuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear")
"""A graph that has one of these rounds to steps, whatever its precision."""
SCALE_FAULT = 0.05
"""A norm ratio further from 1 than this is spoken of as a fault of scale, not of precision."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric that a gate may name. ``rule``: at least, at most, or within ``1 ± threshold``; ``floor``: a setting."""

    words: str
    rule: Literal["least", "most", "band", "floor"]
    low: float = 0.0
    high: float = math.inf


METRICS: Mapping[str, Metric] = {
    "cosine": Metric(words="cosine", rule="least", low=-1.0, high=1.0),
    "worst_row_cosine": Metric(words="worst-row cosine", rule="least", low=-1.0, high=1.0),
    "rel_l2": Metric(words="relative L2", rule="most"),
    "norm_ratio": Metric(words="norm ratio", rule="band"),
    "max_abs": Metric(words="max_abs", rule="most"),
    "max_rel": Metric(words="max_rel", rule="most"),
    "exact_match": Metric(words="exact match", rule="least", high=1.0),
    "argmax_agreement": Metric(words="argmax agreement", rule="least", high=1.0),
    "floor": Metric(words="absolute floor", rule="floor"),
}
WAIVED_BY_FLOOR = ("cosine", "worst_row_cosine", "rel_l2", "norm_ratio", "max_rel")
DEFAULT_METRICS = Thresholds.__struct_fields__


def parse_gate(texts: Sequence[str], known: Collection[str] = ()) -> dict[str, float]:
    """``["cosine=0.999", …]`` as metric → threshold. ``known``: names of the user's own metrics (higher is better).

    Raises UsageError CNV-2052 for texts that aren't ``METRIC=NUMBER`` in the metric's range, CNV-2051 for unknown
    metrics; each lists all of them.
    """
    parsed, unreadable, unknown = {}, [], []
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        metric = METRICS.get(name)
        value = _number(number)
        if metric is None and name not in known and value is not None:
            unknown.append(name)
        elif value is None or (metric is not None and not metric.low <= value <= metric.high):
            unreadable.append(text)
        else:
            parsed[name] = value
    if unreadable:
        raise _unreadable(unreadable)
    if unknown:
        raise _unknown(unknown, known)
    return parsed


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _unreadable(texts: Sequence[str]) -> UsageError:
    ranges = ", ".join(f"{name} {m.low:g} to {m.high:g}" for name, m in METRICS.items() if math.isfinite(m.high))
    return UsageError(
        "CNV-2052",
        f"--gate takes METRIC=NUMBER, not {', '.join(map(repr, texts))}",
        hint=f"for instance --gate cosine=0.999; the others are at least 0, and these have ranges: {ranges}",
    )


def _unknown(names: Sequence[str], known: Collection[str]) -> UsageError:
    told = []
    for name in names:
        near = difflib.get_close_matches(name, [*METRICS, *known], n=3, cutoff=0.4)
        told.append(f"{name!r}" + (f" (did you mean {', '.join(near)}?)" if near else ""))
    return UsageError(
        "CNV-2051",
        f"--gate names metrics that don't exist: {'; '.join(told)}",
        hint=f"the metrics are {', '.join(METRICS)}; one of your own comes with --metric module:callable",
    )


def judge(report: ValidationReport, precision: Precision, overrides: Mapping[str, float] | None = None) -> GateVerdict:
    """Judge a report with the thresholds of a precision, some of them replaced.

    Raises UsageError CNV-2053 where ``overrides`` ask for a metric that the report doesn't hold.
    """
    chosen = msgspec.structs.asdict(THRESHOLDS[precision]) | dict(overrides or {})
    _refuse_unmeasured(report, overrides or {})
    failures: list[str] = []
    remarks: list[str] = []
    if not report.samples or not report.outputs:
        failures.append("nothing was compared: the report holds no sample or no output")
    for output in report.outputs:
        broken = list(_structural_failures(output, precision))
        broken += _numeric_failures(output, chosen, remarks)
        failures += [f"{_subject(output)}: {text}" for text in broken]
    return GateVerdict(passed=not failures, thresholds=chosen, failures=tuple(failures), remarks=tuple(remarks))


def _subject(output: OutputMetrics) -> str:
    return f"output {output.name!r}"


def _refuse_unmeasured(report: ValidationReport, overrides: Mapping[str, float]) -> None:
    absent = []
    for name in overrides:
        held = [name in output.user if name not in METRICS else True for output in report.outputs]
        if name == "argmax_agreement":
            held = [output.argmax_agreement is not None for output in report.outputs]
        if not any(held):
            absent.append(name)
    if absent and report.outputs:
        raise UsageError(
            "CNV-2053",
            f"no output of the report was measured with {', '.join(absent)}",
            hint="a metric of your own is measured when converting, with --metric module:callable; argmax_agreement "
            "needs an output with more than one element along its last axis",
        )


def _structural_failures(output: OutputMetrics, precision: Precision) -> Iterator[str]:
    yield from output.problems
    if output.nonfinite_mismatch and not output.problems:
        yield f"NaN or Inf at other places than in the reference: {output.nonfinite_mismatch} positions differ"
    if output.state in ("missing", "mismatch") and not output.problems:
        yield f"could not be compared ({output.state})"
    if precision == "fp32" and output.candidate_dtype not in ("", output.dtype) and output.state != "mismatch":
        yield f"has dtype {output.candidate_dtype}, and the reference has {output.dtype}"


def _numeric_failures(output: OutputMetrics, chosen: Mapping[str, float], remarks: list[str]) -> list[str]:
    if output.state in ("missing", "mismatch", "empty"):
        return []
    broken = {name: text for name, limit in chosen.items() if (text := _broken(output, name, limit))}
    waived = [name for name in broken if name in WAIVED_BY_FLOOR]
    if waived and _below_floor(output, chosen["floor"]):
        remarks.append(
            f"{_subject(output)}: differs by {output.max_abs:.3g} at most, below the absolute floor of "
            f"{chosen['floor']:g}, so these were not asked for: {', '.join(waived)}"
        )
        return [text for name, text in broken.items() if name not in waived]
    return list(broken.values())


def _below_floor(output: OutputMetrics, floor: float) -> bool:
    """No error above the floor, and none on the scale of the output itself (unless the reference is all zero)."""
    if output.max_abs is None or output.rel_l2 is None or output.max_abs > floor:
        return False
    return output.norm_ratio is None or output.rel_l2 <= FLOOR_REL_L2


def keeps(name: str, value: float, limit: float) -> bool:
    """Whether a metric's value keeps its threshold; a user's metric is at least its threshold."""
    rule = METRICS[name].rule if name in METRICS else "least"
    if rule == "most":
        return value <= limit
    return abs(value - 1.0) <= limit if rule == "band" else value >= limit


def _broken(output: OutputMetrics, name: str, limit: float) -> str:
    """The sentence for a broken rule, empty where the output keeps it or the rule isn't for such an output."""
    metric = METRICS.get(name)
    if metric is not None and metric.rule == "floor":
        return ""
    value = getattr(output, name) if metric else output.user.get(name)
    if value is None:
        return _unmeasured(output, name)
    words, where = metric.words if metric else name, _where(output, name)
    if name == "exact_match":
        kind = "boolean" if output.dtype == "bool" else "text" if output.dtype.startswith(("str", "obj")) else "integer"
        words = f"{kind} output: exact match {output.matching}/{output.elements} ="
    if keeps(name, value, limit):
        return ""
    rule = metric.rule if metric else "least"
    fault = _kind_of_fault(output, name, value)
    if rule == "band":
        return f"{words} {value:.6g} is off 1 by more than {limit:.6g}{fault}, {where}"
    return f"{words} {value:.6g} is {'below' if rule == 'least' else 'above'} {limit:.6g}{fault}, {where}"


def _kind_of_fault(output: OutputMetrics, name: str, value: float) -> str:
    """What a metric's value shows beyond being out of range: a wrong scale, a wrong sign, one side all zero."""
    if name == "norm_ratio" and value == 0:
        return " (the candidate is all zero)"
    if name == "norm_ratio" and abs(value - 1.0) > SCALE_FAULT:
        return f" (the candidate is {value:.3g} times as large: a scale fault?)"
    if name == "cosine" and value < OPPOSITE:
        return " (the candidate points the other way: a sign fault?)"
    if name == "rel_l2" and output.norm_ratio is None and output.state == "compared":
        return " (the reference is all zero)"
    return ""


def _unmeasured(output: OutputMetrics, name: str) -> str:
    """A metric that such an output always has, but that a (damaged or made-up) report lacks, breaks its rule."""
    always = {"compared": ("cosine", "rel_l2", "max_abs"), "scalar": ("rel_l2", "max_abs"), "exact": ("exact_match",)}
    if name in always.get(output.state, ()) and not output.problems:
        return f"{METRICS[name].words} is not in the report"
    return ""


def _where(output: OutputMetrics, name: str) -> str:
    sample = output.worst.get(name, output.worst_sample)
    if name == "worst_row_cosine":
        return f"in row {list(output.worst_row)} of sample {sample}"
    beside = "" if output.max_abs is None or name == "max_abs" else f" (max_abs {output.max_abs:.3g})"
    return f"worst in sample {sample}{beside}"


def judged_as(graph: OnnxGraph, precision: Precision) -> Precision:
    """The row of the gate's table: that of the precision, but never fp32's for a graph that rounds to steps."""
    return "mixed" if precision == "fp32" and any(op in graph.ops for op in QUANTIZED) else precision


def gate_failed(verdict: GateVerdict, subject: str, *, code: str = "CNV-8001", cause: str = "") -> GateFailed:
    """The error for a verdict that didn't pass; ``subject``: the artifact or file that was judged, in words.

    ``cause``: what is known of why.
    """
    shown = "; ".join(verdict.failures[:3])
    more = f"; and {len(verdict.failures) - 3} more" if len(verdict.failures) > 3 else ""
    return GateFailed(
        code,
        f"{subject} differs from the reference beyond the gate: {shown}{more}" + (f". Cause: {cause}" if cause else ""),
        hint="if the difference is acceptable, say so with --gate METRIC=VALUE"
        if code == "CNV-8002"
        else "report.html shows where they differ; a higher precision may keep the gate, and if the difference is "
        "acceptable, --gate METRIC=VALUE says so",
    )
