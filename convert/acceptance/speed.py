"""Percentiles of times: pure, and without numpy, since the parent asks it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from convert.acceptance.values import Clock, Pass, Speed


def speed_of(ran: Pass, *, warmup: int = 0) -> Speed:
    """The speed of a pass. Where only the time of the whole is known, a mean is all there is."""
    if not ran.millis:
        whole = ran.seconds * 1e3 / ran.runs if ran.runs else 0.0
        return Speed(runs=ran.runs, warmup=0, mean=whole, per_second=_rate(whole), clock=ran.clock)
    return speed_from(ran.millis, warmup=warmup, clock=ran.clock)


def speed_from(millis: Sequence[float], *, warmup: int, clock: Clock) -> Speed:
    """Percentiles of times in milliseconds, by the nearest rank: the p99 of ten runs is the slowest of them."""
    ordered = sorted(millis)
    mean = math.fsum(ordered) / len(ordered)
    return Speed(
        runs=len(ordered),
        warmup=warmup,
        p50=rank(ordered, 50),
        p90=rank(ordered, 90),
        p99=rank(ordered, 99),
        mean=mean,
        least=ordered[0],
        most=ordered[-1],
        per_second=_rate(mean),
        clock=clock,
    )


def rank(ordered: Sequence[float], percent: int) -> float:
    """The nearest-rank percentile of sorted values: the lowest that ``percent`` of them do not exceed."""
    return ordered[max(0, math.ceil(percent * len(ordered) / 100) - 1)]


def _rate(millis: float) -> float:
    return 1e3 / millis if millis > 0 else 0.0
