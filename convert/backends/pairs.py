"""int8 for compilers that read it as pairs of QuantizeLinear and DequantizeLinear in the graph.

The pipeline puts the pairs in before the plan is run (``convert.stages.quantize``). A plan may be asked for before
that, to see whether the compiler takes it; then the graph must be one that can get them.
"""

from __future__ import annotations

from convert.errors import UsageError
from convert.ladder import QUANTIZED_OPS
from convert.values import OnnxGraph

OPS = ("QuantizeLinear", "DequantizeLinear")


def is_quantized(graph: OnnxGraph) -> bool:
    """Whether a graph says where it is rounded."""
    return any(op in graph.ops for op in OPS)


def check_ranges(graph: OnnxGraph, *, instead: str = "") -> None:
    """Refuse int8 where nothing says the ranges and nothing can: UsageError CNV-2268.

    ``instead``: another way that this compiler has, in words for the hint.
    """
    if is_quantized(graph):
        return
    if not QUANTIZED_OPS & graph.ops.keys():
        raise UsageError(
            "CNV-2268",
            "int8 needs convolutions or products of matrices, and the graph has none",
            hint="leave --precision out",
        )
    if not graph.calibration_count and not graph.sample_count:
        raise UsageError(
            "CNV-2268",
            "int8 needs data to take ranges from, and there are neither calibration inputs nor samples",
            hint=f"give --calibration, or a quantized model{instead}",
        )


def require_pairs(graph: OnnxGraph) -> None:
    """Refuse to compile a graph as int8 that says no ranges: the compiler would make them up. UsageError CNV-2268."""
    if not is_quantized(graph):
        raise UsageError(
            "CNV-2268",
            "the graph was not quantized: it has no products of float32 that could be; products inside "
            "If, Loop and Scan, of other types than float32, and without a range stay in float",
            hint="leave --precision out, or quantize the model first",
        )
