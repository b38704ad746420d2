"""Symbolic dimensions: which are fixed, which are ranges, and how a version is told.

``--dim-param @N 4`` names a dimension since 2.10; before, ``--input-dim @x 4 3 8 8`` and ``--dyn-input-dim`` give every
dimension of an input. A range is relaxed JSON in one word, whose form changed: 2.15 and older read
``{min,max,optimals}``; since develop of 2026-04 (2.16) ``{range:{min,max},optimals}``, and the old form silently gives
dimension 0. A text with both is read by both, as a run of 2.16 showed, so 2.16 gets both.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from convert.backends.migraphx.versions import Dialect
from convert.errors import UsageError
from convert.values import DimRange, OnnxGraph, TensorSpec


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes that a dimension takes; ``low == high`` for a fixed one. ``optimals``: sizes named one by one."""

    low: int
    high: int
    optimals: tuple[int, ...] = ()

    @property
    def fixed(self) -> bool:
        """Whether there is one size only."""
        return self.low == self.high


Spans = Mapping[str, Span]


def spans_of(graph: OnnxGraph, dialect: Dialect) -> dict[str, Span]:
    """Every symbolic dimension of the inputs with its sizes, in the order of the inputs.

    Raises :class:`UsageError` CNV-2244 where one has no upper bound, or is a range and the version takes none.
    """
    known = {dim.name: dim for dim in graph.dims}
    names = dict.fromkeys(str(size) for spec in graph.inputs for size in spec.shape if isinstance(size, str))
    spans = {name: _span(known[name]) for name in names if name in known and _bounded(known[name])}
    if missing := [name for name in names if name not in spans]:
        raise UsageError(
            "CNV-2244",
            f"MIGraphX compiles for sizes with an end, and {', '.join(missing)} {_has(missing)} none",
            hint=" ".join(f"--dim {name}=4 (or {name}=1..8)" for name in missing),
        )
    ranges = [name for name, span in spans.items() if not span.fixed]
    if ranges and not dialect.ranges and not dialect.fork:
        raise UsageError(
            "CNV-2244",
            f"MIGraphX {dialect.text} takes fixed sizes only, and {', '.join(ranges)} {_has(ranges)} a range",
            hint=" ".join(f"--dim {name}={spans[name].high}" for name in ranges) + "; ranges came with 2.6 (ROCm 5.6)",
        )
    return spans


def _has(names: list[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _bounded(dim: DimRange) -> bool:
    return bool(dim.sizes) or dim.high > 0


def _span(dim: DimRange) -> Span:
    if dim.sizes:
        sizes = tuple(sorted(set(dim.sizes)))
        return Span(low=sizes[0], high=sizes[-1], optimals=sizes if len(sizes) > 1 else ())
    return Span(low=dim.low, high=dim.high)


def json_of(span: Span, dialect: Dialect) -> str:
    """A range in the relaxed JSON of a version."""
    both = f"range:{{min:{span.low},max:{span.high}}}" if dialect.level >= (2, 16) else ""
    optimals = f"optimals:[{','.join(map(str, span.optimals))}]" if span.optimals else ""
    parts = (f"min:{span.low}", f"max:{span.high}", optimals, both)
    return "{" + ",".join(part for part in parts if part) + "}"


def dim_words(graph: OnnxGraph, spans: Spans, dialect: Dialect) -> tuple[str, ...]:
    """The words of the command line that give the dimensions; none for a graph without symbolic ones."""
    if not spans:
        return ()
    if dialect.fork:
        # The fork has no ranges: it is built at the greatest shape, and reshaped before a run.
        return _input_dims(graph, {name: Span(low=span.high, high=span.high) for name, span in spans.items()})
    if "--dim-param" in dialect.flags:
        words = ["--dim-param"]
        for name, span in spans.items():
            words += [f"@{name}", str(span.low) if span.fixed else f"[{json_of(span, dialect)}]"]
        return tuple(words)
    if all(span.fixed for span in spans.values()):
        return _input_dims(graph, spans)
    if len(spans) == 1:
        return ("--default-dyn-dim", json_of(next(iter(spans.values())), dialect))
    words = ["--dyn-input-dim"]
    for spec in _open_inputs(graph):
        sizes = [_json_size(size, spans, dialect) for size in spec.shape]
        words += [f"@{spec.name}", f"[{','.join(sizes)}]"]
    return tuple(words)


def _json_size(size: int | str, spans: Spans, dialect: Dialect) -> str:
    if isinstance(size, int):
        return str(size)
    span = spans[size]
    return str(span.low) if span.fixed else json_of(span, dialect)


def _open_inputs(graph: OnnxGraph) -> list[TensorSpec]:
    return [spec for spec in graph.inputs if any(isinstance(size, str) for size in spec.shape)]


def _input_dims(graph: OnnxGraph, spans: Spans) -> tuple[str, ...]:
    words = ["--input-dim"]
    for spec in _open_inputs(graph):
        sizes = [str(spans[size].low if isinstance(size, str) else size) for size in spec.shape]
        words += [f"@{spec.name}", *sizes]
    return tuple(words)


def module_dims(graph: OnnxGraph, spans: Spans) -> dict[str, list[int]]:
    """The sizes of each open input, for ``migraphx.parse_onnx(map_input_dims=…)``: int8 and fp8 take fixed ones."""
    return {
        spec.name: [spans[size].high if isinstance(size, str) else size for size in spec.shape]
        for spec in _open_inputs(graph)
    }
