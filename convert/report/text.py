"""Metrics per output as plain text, for a terminal or a log."""

from __future__ import annotations

from collections.abc import Sequence

from convert.metrics import OutputMetrics
from convert.values import GateVerdict, NodeForecast

COLUMNS = ("output", "state", "cosine", "worst row", "rel_l2", "norm ratio", "max_abs", "exact", "NaN/Inf")


def shown(name: str) -> str:
    """A name from a stranger's file, with anything that could drive a terminal escaped."""
    return name if name.isprintable() else repr(name)[1:-1]


def metrics_table(outputs: Sequence[OutputMetrics]) -> str:
    """One line for each output under a heading, in aligned columns. Empty columns are left out."""
    rows = [COLUMNS, *(_cells(output) for output in outputs)]
    kept = [place for place in range(len(COLUMNS)) if any(row[place] for row in rows[1:])]
    widths = {place: max(len(row[place]) for row in rows) for place in kept}
    return "\n".join("  ".join(row[place].ljust(widths[place]) for place in kept).rstrip() for row in rows)


def _cells(output: OutputMetrics) -> tuple[str, ...]:
    exact = "" if output.exact_match is None else f"{output.matching}/{output.elements}"
    odd = output.nan_candidate + output.inf_candidate
    return (
        shown(output.name),
        output.state,
        _number(output.cosine, ".7g"),
        _number(output.worst_row_cosine, ".7g"),
        _number(output.rel_l2, ".3g"),
        _number(output.norm_ratio, ".6g"),
        _number(output.max_abs, ".3g"),
        exact,
        str(odd) if odd or output.nonfinite_mismatch else "",
    )


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def verdict_text(verdict: GateVerdict, precision: str) -> str:
    """The verdict first, then what was broken and what was remarked, one line each, and the thresholds."""
    lines = [f"gate {'passed' if verdict.passed else 'FAILED'} ({precision})"]
    lines += [f"  - {failure}" for failure in verdict.failures]
    lines += [f"  note: {remark}" for remark in verdict.remarks]
    lines.append("thresholds: " + ", ".join(f"{name}={value:g}" for name, value in verdict.thresholds.items()))
    return "\n".join(lines)


def range_text(node: NodeForecast, digits: int) -> str:
    """The range of a node's output for people."""
    ends = ("not finite" if end is None else f"{end:.{digits}g}" for end in (node.low, node.high))
    return " … ".join(ends)
