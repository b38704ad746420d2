"""What trtexec says of an engine's speed: its summary of many runs, copies to and from the card included.

Its own lines are read (NVIDIA/TensorRT samples/common/sampleReporting.cpp): ``Throughput: 812.4 qps`` and
``Latency: min = 1.1 ms, max = 1.9 ms, mean = 1.2 ms, median = 1.2 ms, percentile(90%) = …``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from convert.backends.base import Missing, Runner, RunRequest, Timing
from convert.backends.tensorrt.flags import release_of
from convert.backends.tensorrt.plan import PROGRAM, TYPED
from convert.backends.tensorrt.probe import probe
from convert.backends.tensorrt.running import (
    input_words,
    plan_version,
    shape_words,
    static_plugins,
    unfit,
    write_inputs,
)
from op_registry.targets import find_target

if TYPE_CHECKING:
    from convert.backends.base import Array

LOG = "timing.log"
WARM_UP = "200"
"""Milliseconds before the first run that counts: trtexec's own choice."""
AS_BEFORE = ("--includeDataTransfers", "--noCudaGraph", "--noSpinWait")
"""From 11.0 on copies are not timed, and CUDA graphs and spinning are on, unless these are given."""
NUMBER = r"([\d.]+(?:e[+-]?\d+)?)"
RATE = re.compile(rf"^.*\] Throughput: {NUMBER} qps", re.MULTILINE)
LATENCY = re.compile(r"^.*\] Latency: (min = .*)$", re.MULTILINE)


def time_engine(request: RunRequest, feed: Mapping[str, Array], runner: Runner, *, runs: int) -> Timing | None:
    """Time an engine on one sample; None where trtexec or the card is not here, or it says nothing that is known."""
    artifact = request.artifact
    toolchain = probe(find_target(artifact.target), os.environ)
    if isinstance(toolchain, Missing):
        return None
    engine = artifact.path(artifact.files[0].name).resolve()
    if unfit(artifact.plan, toolchain, plan_version(engine)):
        return None
    files = write_inputs(request.graph, feed, request.folder)
    argv = (
        toolchain.details.get("program", PROGRAM),
        f"--loadEngine={engine}",
        *input_words(files),
        *shape_words(request.graph, feed),
        *(f"--iterations={runs}", "--duration=0", f"--warmUp={WARM_UP}"),
        *(AS_BEFORE if release_of(toolchain.version) >= TYPED else ()),
        *static_plugins(artifact.plan),
    )
    finished = runner(argv, log=LOG)
    log = request.folder / LOG
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    return None if finished.returncode or finished.timed_out else read_summary(text, runs)


def read_summary(text: str, runs: int) -> Timing | None:
    """The numbers of a log; None where it has none."""
    rate, line = RATE.search(text), LATENCY.search(text)
    if rate is None and line is None:
        return None
    told = dict(re.findall(rf"(min|max|mean|median|percentile\(99%\)) = {NUMBER} ms", line[1] if line else ""))
    values = {name: float(number) for name, number in told.items()}
    return Timing(
        tool=PROGRAM,
        runs=runs,
        median=values.get("median", 0.0),
        p99=values.get("percentile(99%)", 0.0),
        mean=values.get("mean", 0.0),
        least=values.get("min", 0.0),
        most=values.get("max", 0.0),
        per_second=float(rate[1]) if rate else 0.0,
    )
