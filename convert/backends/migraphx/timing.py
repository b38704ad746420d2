"""What ``migraphx-driver perf`` says of an artifact's speed, on inputs that it makes up.

Its lines (ROCm/AMDMIGraphX src/program.cpp; public tutorials for DTK, which says ``/sec`` alone): ``Rate: 123.4
inferences/sec``, ``Total time: 8.1ms (Min: 8ms, Max: 9ms, Mean: 8.1ms, Median: 8.1ms)``, up to 2.8 the total alone, and
``Percentiles (90%, 95%, 99%): (8.2ms, 8.3ms, 8.4ms)``.
"""

from __future__ import annotations

import os
import re

from convert.backends.base import Missing, Runner, RunRequest, Timing
from convert.backends.migraphx.planning import DRIVER, REFERENCE_ARCH
from convert.backends.migraphx.probing import probe
from convert.backends.migraphx.running import offload_copy, unfit
from convert.values import Plan
from op_registry.targets import find_target

LOG = "timing.log"
NUMBER = r"([\d.]+(?:e[+-]?\d+)?)"
RATE = re.compile(rf"^Rate: {NUMBER} ?(?:inferences)?/sec", re.MULTILINE)
TOTAL = re.compile(rf"^Total time: {NUMBER}ms(.*)$", re.MULTILINE)
PERCENTILES = re.compile(rf"^Percentiles \(90%, 95%, 99%\): \({NUMBER}ms, {NUMBER}ms, {NUMBER}ms\)", re.MULTILINE)


def time_artifact(request: RunRequest, runner: Runner, *, runs: int) -> Timing | None:
    """Time an artifact; None where the driver or the card is not here, where sizes are a range, or it tells nothing."""
    artifact = request.artifact
    toolchain = probe(find_target(artifact.target), os.environ)
    if isinstance(toolchain, Missing) or unfit(artifact.plan, toolchain) or is_ranged(artifact.plan):
        return None
    argv = (
        toolchain.details.get("program", DRIVER),
        "perf",
        str(artifact.path(artifact.files[0].name).resolve()),
        "--ref" if artifact.plan.needs.get("arch") == REFERENCE_ARCH else "--gpu",
        *(("--enable-offload-copy",) if offload_copy(artifact.plan) else ()),
        "--iterations",
        str(runs),
    )
    finished = runner(argv, log=LOG)
    log = request.folder / LOG
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    return None if finished.returncode or finished.timed_out else read_summary(text, runs)


def is_ranged(plan: Plan) -> bool:
    """Whether an artifact leaves sizes open, which the driver would have to be told."""
    ranges = ("--dim-param", "--dyn-input-dim", "--default-dyn-dim")
    return bool(set(ranges) & set(plan.argv)) or plan.environment.get("MIGRAPHX_DYNAMIC_SHAPE") == "1"


def read_summary(text: str, runs: int) -> Timing | None:
    """The numbers of a log; None where it has none."""
    rate, total, percentiles = RATE.search(text), TOTAL.search(text), PERCENTILES.search(text)
    if rate is None or total is None:
        return None
    told = {name: float(value) for name, value in re.findall(rf"(Min|Max|Mean|Median): {NUMBER}ms", total[2])}
    return Timing(
        tool=f"{DRIVER} perf",
        runs=runs,
        median=told.get("Median", 0.0),
        p99=float(percentiles[3]) if percentiles else 0.0,
        mean=told.get("Mean", float(total[1])),
        least=told.get("Min", 0.0),
        most=told.get("Max", 0.0),
        per_second=float(rate[1]),
    )
