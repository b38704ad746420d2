"""What comparing two sides gives, per output: values only. The formulas stand in ``convert.compare``."""

from __future__ import annotations

from typing import Literal

import msgspec

OutputState = Literal["compared", "exact", "scalar", "empty", "all-zero", "missing", "mismatch"]
"""How an output was compared: ``exact`` for integers, booleans and text, ``scalar`` for one element in every sample."""


class OutputMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One output over all samples: the worst of each metric. Formulas stand in ``convert.compare``."""

    name: str
    dtype: str
    candidate_dtype: str = ""
    shape: tuple[int, ...]
    """The reference's shape in the first sample."""
    state: OutputState
    elements: int = 0
    """Elements of the reference, all samples together."""
    cosine: float | None = None
    worst_row_cosine: float | None = None
    rel_l2: float | None = None
    norm_ratio: float | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    exact_match: float | None = None
    """Share of equal elements, all samples together; ``matching`` of ``elements``."""
    matching: int = 0
    argmax_agreement: float | None = None
    """Share of vectors along the last axis whose highest element lies in the same place; the lowest of the samples."""
    nan_reference: int = 0
    nan_candidate: int = 0
    inf_reference: int = 0
    inf_candidate: int = 0
    nonfinite_mismatch: int = 0
    samples: int = 0
    worst_sample: int = 0
    """The sample with the highest relative L2 (for exact outputs: the lowest share of equal elements)."""
    worst: dict[str, int] = {}
    """Metric → the sample of its worst value."""
    worst_row: tuple[int, ...] = ()
    """Where the row of ``worst_row_cosine`` lies: its index along the axes before the row's own."""
    constant: bool = False
    """The output does not depend on the samples given (at least two differing samples)."""
    problems: tuple[str, ...] = ()
    """Structural faults in words: shape, dtype, missing output, pattern of NaN or Inf."""
    user: dict[str, float] = {}
    """Metrics of ``--metric module:callable``."""


class OutputPicture(msgspec.Struct, frozen=True, kw_only=True):
    """What the report draws of one output: where the two sides differ."""

    name: str
    counts: tuple[int, ...] = ()
    """Elements by size of their error, on a scale of ``log10(|error| / rms(reference))``, all samples together."""
    low: float = -8.0
    high: float = 2.0
    """The scale's ends; what lies beyond is counted in the first and the last bin."""
    equal: int = 0
    """Elements without any error, in no bin."""
    points: tuple[tuple[float, float], ...] = ()
    """(reference, candidate) of some elements of ``sample``: evenly spaced ones, and those that differ most."""
    sample: int = 0
    error: float = 0.0
    """Relative L2 of ``sample``, the worst one."""
