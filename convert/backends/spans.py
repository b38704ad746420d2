"""Symbolic dimensions for compilers that want, per input, the lowest, the usual and the highest shape.

TensorRT calls the three an optimization profile; IxRT follows it. An input without symbolic dimensions has none.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from convert.errors import UsageError
from convert.values import OnnxGraph, TensorSpec

TOP = (1 << 31) - 1


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes that a dimension takes: lowest, usual, highest."""

    low: int
    usual: int
    high: int

    def at(self, place: str) -> int:
        """The size at ``min``, ``opt`` or ``max``."""
        return {"min": self.low, "opt": self.usual, "max": self.high}[place]


def spans_of(graph: OnnxGraph, usual: Mapping[str, int], *, takes: str) -> dict[str, Span]:
    """Every symbolic dimension of the inputs, in their order. ``usual``: sizes that the user named; else the highest.

    Raises :class:`UsageError`: CNV-2267 for a dimension without an upper end (``takes`` names the compiler), CNV-2075
    for a usual size outside of its dimension's, or of a dimension that there isn't.
    """
    known = {dim.name: dim for dim in graph.dims}
    names = list(dict.fromkeys(str(size) for spec in graph.inputs for size in spec.shape if isinstance(size, str)))
    open_ended = [name for name in names if name not in known or not (known[name].sizes or known[name].high)]
    if open_ended:
        raise UsageError(
            "CNV-2267",
            f"{takes} compiles for sizes with an end, and {', '.join(open_ended)} has none"
            if len(open_ended) == 1
            else f"{takes} compiles for sizes with an end, and {', '.join(open_ended)} have none",
            hint=" ".join(f"--dim {name}=1..8" for name in open_ended) + ", or one size: --dim N=4",
        )
    spans = {}
    for name in names:
        dim = known[name]
        low, high = (min(dim.sizes), max(dim.sizes)) if dim.sizes else (dim.low, dim.high)
        spans[name] = Span(low=low, usual=usual.get(name, high), high=high)
    wrong = [
        f"{name}:{size}"
        for name, size in usual.items()
        if name not in spans or not spans[name].low <= size <= spans[name].high
    ]
    if wrong:
        ranges = ", ".join(f"{name}={span.low}..{span.high}" for name, span in spans.items()) or "there are none"
        raise UsageError(
            "CNV-2075",
            f"--option opt={','.join(wrong)}: no size of a symbolic dimension",
            hint=f"the symbolic dimensions: {ranges}",
        )
    return spans


def usual_sizes(text: str) -> dict[str, int]:
    """``N:4,M:8`` as sizes by name. Raises UsageError CNV-2075."""
    sizes = {}
    for part in filter(None, text.split(",")):
        name, _, size = part.rpartition(":")
        if not name or not size.isascii() or not size.isdigit() or not 0 < int(size[:12]) <= TOP:
            raise UsageError(
                "CNV-2075", f"--option opt={text}: not NAME:SIZE", hint="write --option opt=N:4, or opt=N:4,M:8"
            )
        sizes[name.strip()] = int(size)
    return sizes


def open_inputs(graph: OnnxGraph) -> list[TensorSpec]:
    """The inputs with a symbolic dimension."""
    return [spec for spec in graph.inputs if any(isinstance(size, str) for size in spec.shape)]


def sizes_at(spec: TensorSpec, spans: Mapping[str, Span], place: str) -> tuple[int, ...]:
    """The shape of an input at ``min``, ``opt`` or ``max``."""
    return tuple(spans[size].at(place) if isinstance(size, str) else size for size in spec.shape)
