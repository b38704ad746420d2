"""What the vendors' own timing tools say of an artifact, read from their lines."""

from __future__ import annotations

import pytest

from convert.acceptance.work import _times
from convert.backends.base import Timing
from convert.backends.ixrt.backend import read_rate
from convert.backends.magicmind.mm_run import read_summary as read_mm_run
from convert.backends.migraphx.timing import read_summary as read_perf
from convert.backends.tensorrt.timing import read_summary as read_trtexec

TRTEXEC = """[11/30/2026-10:00:00] [I] Throughput: 812.4 qps
[11/30/2026-10:00:00] [I] Latency: min = 1.1 ms, max = 1.9 ms, mean = 1.23 ms, median = 1.2 ms, percentile(90%) = 1.3 ms, percentile(95%) = 1.4 ms, percentile(99%) = 1.5 ms
[11/30/2026-10:00:00] [I] GPU Compute Time: min = 0.9 ms, max = 1.0 ms, mean = 0.95 ms, median = 0.95 ms
"""  # noqa: E501
PERF = """Batch size: 1
Rate: 123.4 inferences/sec
Total time: 8.1ms (Min: 7.9ms, Max: 9.5ms, Mean: 8.125ms, Median: 8.1ms)
Percentiles (90%, 95%, 99%): (8.2ms, 8.3ms, 9.4ms)
Total instructions time: 8.2ms
"""
MM_RUN = """=================== Performance Summary
Throughput (qps): 28916.2 with total batch sizes: 86796 and 4819.36 iterations/second
H2D Summary:
Latency(host clock, ms): min: 0.1 max: 0.2 mean: 0.15 median: 0.15 percentile: (90%) 0.2 (95%) 0.2 (99%) 0.2
Total Latency Summary(H2D + Compute + D2H):
Latency(host clock, ms): min: 9.8 max: 11.9 mean: 9.9 median: 9.85 percentile: (90%) 10 (95%) 10.1 (99%) 10.9
"""


def numbers(timing: Timing | None) -> tuple[float, ...]:
    assert timing is not None
    return (timing.least, timing.median, timing.mean, timing.p99, timing.most, timing.per_second)


def test_trtexecs_latency_with_its_copies_is_taken() -> None:
    assert numbers(read_trtexec(TRTEXEC, 10)) == (1.1, 1.2, 1.23, 1.5, 1.9, 812.4)


def test_the_drivers_perf_is_read_in_its_three_forms() -> None:
    assert numbers(read_perf(PERF, 10)) == (7.9, 8.1, 8.125, 9.4, 9.5, 123.4)
    assert numbers(read_perf("Rate: 1.2e+03 inferences/sec\nTotal time: 8.1ms\n", 10)) == (0, 0, 8.1, 0, 0, 1200)
    assert numbers(read_perf("Rate: 975.796/sec\nTotal time: 32.7937ms\n", 10)) == (0, 0, 32.7937, 0, 0, 975.796)


def test_mm_runs_total_latency_is_taken_and_a_rate_alone_is_enough() -> None:
    assert numbers(read_mm_run(MM_RUN, 10)) == (9.8, 9.85, 9.9, 10.9, 11.9, 28916.2)
    assert numbers(read_mm_run("Throughput (qps): 100.5\n", 10)) == (0, 0, 0, 0, 0, 100.5)


def test_ixrtexec_tells_a_rate() -> None:
    assert numbers(read_rate("fps: 400.0 with batchsize 4\nThroughput: 100.0 qps\n", 10, 5)) == (0, 0, 10, 0, 0, 100)


@pytest.mark.parametrize("text", ["", "Rate: fast\n", "Throughput: nan qps\n", "x" * 100_000])
def test_a_log_without_numbers_gives_none(text: str) -> None:
    assert [read(text, 10) for read in (read_trtexec, read_perf, read_mm_run)] == [None] * 3
    assert read_rate(text, 10, 5) is None


def test_the_runtimes_own_seconds_go_before_those_of_processes() -> None:
    assert _times([0.001, 0.002], [3.0], [1.0, 2.0]) == ([1.0, 2.0], "runtime")
    assert _times([0.001], [3.0], [1.0, 2.0]) == ([], "process")
    assert _times([float("nan"), 1.0], [], [1.0, 2.0]) == ([1.0, 2.0], "in-process")
