"""``--precision auto``: a target's precisions from fastest to safest, and the first whose forecast keeps the gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec

from convert.errors import GateFailed
from convert.values import Forecast, OnnxGraph, Precision
from op_registry.values import Target

FASTEST_FIRST: tuple[Precision, ...] = ("int8", "fp16", "bf16", "mixed", "fp32")
QUANTIZED_OPS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm"})
"""Operators that int8 is made of; a graph without any has nothing to quantize."""
TAKES_PAIRS = ("onnxruntime", "tensorrt", "ixrt", "qnn")
"""Backends whose compiler reads int8 as pairs of QuantizeLinear and DequantizeLinear in the graph."""
OWN_RANGES = frozenset({"calib", "quant_file"})
"""Options that bring a compiler its own file of ranges, so that the graph stays without pairs."""
PLANNED: tuple[Precision, ...] = ("mixed", "int8")
"""Precisions whose forecast says which nodes stay in float."""
NARROW = {"mixed": "fp16"}
"""The precision that a target must have for another one."""


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One precision of the ladder: how it was judged, and why. ``worst``: the highest relative L2 of an output."""

    precision: Precision
    state: Literal["chosen", "fails", "skipped", "not tried"]
    reason: str = ""
    worst: float | None = None
    keep: int = 0


def takes_pairs(backend: str, options: Mapping[str, str]) -> bool:
    """Whether int8 goes to a backend as pairs in the graph; not where the user brings the compiler's own ranges."""
    return backend in TAKES_PAIRS and not OWN_RANGES & options.keys()


def precisions_of(target: Target) -> Iterator[tuple[Precision, str]]:
    """The target's precisions, fastest first, each with why it can't be tried (empty: it can)."""
    for precision in FASTEST_FIRST:
        state = target.precisions.get(NARROW.get(precision, precision), "no")
        if state in ("yes", "partial"):
            yield precision, ""
        else:
            yield precision, f"{target.name}: {state}" if state == "unknown" else f"{target.name} does not have it"


def judged(precision: Precision, forecast: Forecast) -> Rung:
    """The rung of a forecast: chosen where the gate holds, for mixed with its plan."""
    holds = holds_with_plan(forecast)
    outputs = forecast.planned if forecast.keep else forecast.outputs
    worst = max((output.rel_l2 for output in outputs if output.rel_l2 is not None), default=None)
    keep = len(forecast.keep)
    if holds:
        reason = f"the gate holds with {keep} nodes in fp32" if keep else "the gate holds"
        return Rung(precision=precision, state="chosen", reason=reason, worst=worst, keep=keep)
    node = forecast.guilty[0] if forecast.guilty else None
    blamed = f"{node.op} {node.node}: {node.reasons[0]}" if node is not None and node.reasons else ""
    told = [note.text for note in forecast.notes if note.level == "warning"]
    return Rung(precision=precision, state="fails", reason=blamed or (told[0] if told else ""), worst=worst)


def no_int8(graph: OnnxGraph, *, given: bool) -> str:
    """Why int8 makes no sense for a graph; empty: it does. ``given``: the samples are the user's own."""
    if not graph.calibration_count and not given:
        return "no inputs to calibrate with (--calibration)"
    if not QUANTIZED_OPS & graph.ops.keys():
        return "no convolution and no product of matrices to quantize"
    return ""


def climb(
    target: Target, refused: Callable[[Precision], str], forecast_of: Callable[[Precision], Forecast]
) -> tuple[Precision, Forecast | None, tuple[Rung, ...]]:
    """The first precision that holds, its forecast (fp32, the reference itself, has none), and the whole ladder.

    ``refused``: why the compiler can't be asked for a precision; empty: it can. Raises GateFailed CNV-8105 where none
    holds.
    """
    rungs: list[Rung] = []
    known = list(precisions_of(target))
    for place, (precision, lacking) in enumerate(known):
        if why := lacking or refused(precision):
            rungs.append(Rung(precision=precision, state="skipped", reason=why))
            continue
        forecast = forecast_of(precision) if precision != "fp32" else None
        if forecast is None:
            rungs.append(Rung(precision=precision, state="chosen", reason="the reference's own precision", worst=0.0))
        else:
            rungs.append(judged(precision, forecast))
        if rungs[-1].state == "chosen":
            rest = [Rung(precision=later, state="not tried") for later, _ in known[place + 1 :]]
            return precision, forecast, (*rungs, *rest)
    told = "; ".join(f"{rung.precision} {rung.state}: {rung.reason}" for rung in rungs)
    raise GateFailed(
        "CNV-8105",
        f"no precision of {target.name} keeps the gate: {told}",
        hint="say what is acceptable with --gate METRIC=VALUE, or change the model where the forecast blames a node",
    )


def holds_with_plan(forecast: Forecast) -> bool:
    """Whether the gate holds as it stands, or with the nodes of the plan kept."""
    return forecast.holds or bool(forecast.plan_holds)


def accumulation(target: Target | None) -> Literal["", "fp32"]:
    """What a target's reductions sum in. ONNX Runtime's CPU has no narrow reductions and sums in float32.

    Source: the kernels that ONNX Runtime registers (``convert.precision.kernels``). Of the others nothing public says.
    """
    return "fp32" if target is not None and target.arch == "cpu" else ""


def narrow_of(options: Mapping[str, str]) -> Literal["fp16", "bf16"]:
    """What the nodes become that a mixed plan does not keep: MIGraphX's ``mixed-type`` says it, elsewhere fp16."""
    return "bf16" if options.get("mixed-type") == "bf16" else "fp16"


def no_plan(forecast: Forecast, name: str) -> GateFailed:
    """The error where no set of nodes kept in fp32 keeps the gate."""
    told = [note.text.removeprefix("plan: ") for note in forecast.notes if note.text.startswith("plan: ")]
    return GateFailed(
        "CNV-8104",
        f"no mixed-precision plan keeps the gate for {name}: {told[0] if told else 'none was found'}",
        hint="all in fp32 is the safest there is: check the samples and the thresholds (--gate METRIC=VALUE)",
    )


def ladder_text(rungs: tuple[Rung, ...]) -> str:
    """The ladder in one line, for people: ``int8 skipped, fp16 fails, mixed chosen``."""
    return ", ".join(f"{rung.precision} {rung.state}" for rung in rungs if rung.state != "not tried")
