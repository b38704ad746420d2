"""ais_bench: its command line, and what it says. Pure.

Sources: Ascend/msit 26.0.0 msit/components/benchmark; outputs pasted in public repositories (throughput in three
spellings); gitee Ascend/tools ais_bench README.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

MODULE = "ais_bench"
THROUGHPUT = re.compile(
    r"throughput\s+1000\s*\*\s*batchsize(?:\.mean)?\((?P<batch>[\d.]+)\)\s*/\s*NPU_compute_time(?:\.\w+)?\([\d.]+\)\s*:\s*"
    r"(?P<rate>[\d.]+(?:e[+-]?\d+)?)",
    re.IGNORECASE,
)
LINE = re.compile(
    r"NPU_compute_time \(ms\): min = (?P<min>[\d.]+), max = (?P<max>[\d.]+), mean = (?P<mean>[\d.]+), "
    r"median = (?P<median>[\d.]+), percentile\(99%\) = (?P<p99>[\d.]+)"
)
ROW = re.compile(
    r"NPU_compute_time[^\d\n]*"
    + r"[^\d\n.]+".join(rf"(?P<{name}>\d+(?:\.\d+)?)" for name in ("min", "max", "mean", "median", "p99"))
)


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds of one run on the device, and samples per second; 0 where it was not told."""

    minimum: float = 0.0
    maximum: float = 0.0
    mean: float = 0.0
    median: float = 0.0
    p99: float = 0.0
    throughput: float = 0.0
    batch: float = 0.0
    count: int = 0


def arguments(
    model: str, inputs: Sequence[str], *, out: str, name: str, steps: Sequence[str] = (), sizes: Sequence[int] = ()
) -> list[str]:
    """What ``python3 -m ais_bench`` is given to run one sample and leave its outputs as ``.npy``."""
    wanted = ["--model", model, "--input", ",".join(inputs), "--output", out, "--output_dirname", name]
    sized = ["--outputSize", ",".join(map(str, sizes))] if sizes else []
    return [*wanted, "--outfmt", "NPY", *steps, *sized]


def read_speed(text: str) -> Speed:
    """What ais_bench printed: the line of 2022 and 2023, or the table of later ones."""
    rates = list(THROUGHPUT.finditer(text))
    times = LINE.search(text) or ROW.search(text)
    values = {key: float(value) for key, value in times.groupdict().items()} if times else {}
    return Speed(
        minimum=values.get("min", 0.0),
        maximum=values.get("max", 0.0),
        mean=values.get("mean", 0.0),
        median=values.get("median", 0.0),
        p99=values.get("p99", 0.0),
        throughput=float(rates[-1]["rate"]) if rates else 0.0,
        batch=float(rates[-1]["batch"]) if rates else 0.0,
    )


def read_summary(content: bytes) -> Speed:
    """``PREFIX_summary.json`` (old: ``sumary.json``). Raises ValueError where it is no summary."""
    try:
        summary = json.loads(content)
        times = summary["NPU_compute_time"]
        values = {key: float(times.get(key, 0.0)) for key in ("min", "max", "mean", "median")}
        return Speed(
            minimum=values["min"],
            maximum=values["max"],
            mean=values["mean"],
            median=values["median"],
            p99=float(times.get("percentile(99%)", times.get("P99", 0.0))),
            throughput=float(summary.get("throughput", 0.0)),
            count=_count(times),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no summary of ais_bench: {error!r}") from error


def _count(times: dict[str, Any]) -> int:
    count = times.get("count", 0)
    return int(count) if isinstance(count, int | float) else 0
