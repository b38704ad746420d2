"""Running an artifact with ``mm_run``, where MagicMind's Python isn't: a machine that only deploys.

It takes one raw file per input, runs once, and writes ``output0``, ``output1``, … as raw bytes without saying their
shapes, so the sizes must be fixed ones (``$NEUWARE_HOME/bin/mm_run`` of the SDK's samples).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from convert.backends.base import CannotRun, Ran, Runner, RunRequest, Timing
from convert.backends.magicmind.outcome import does_not_run
from convert.values import TensorSpec

if TYPE_CHECKING:
    from convert.backends.base import Array, Feeds

RAW = "raw"
LOG = "run.log"
NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32"}
"""What 64-bit types become in an artifact (``type64to32_conversion``)."""
NUMBER = r"([\d.]+(?:[eE][+-]?\d+)?)"
RATE = re.compile(rf"Throughput \(qps\):\s*{NUMBER}")
TOTAL = "Total Latency Summary"
LATENCY = re.compile(r"Latency\(host clock, ms\):([^\n]*)")
Axes = Mapping[str, Mapping[str, list[int]]]
SUMMARY = "Performance Summary"
"""What mm_run prints once it has run a model."""


def run_by_tool(
    request: RunRequest,
    feeds: Feeds,
    runner: Runner,
    *,
    tool: str,
    device: str,
    axes: Axes,
) -> Ran | CannotRun:
    """Run an artifact on every sample, one call of ``mm_run`` each.

    Raises :class:`CompileFailed` CNV-7005 where it fails.
    """
    open_ended = [spec.name for spec in (*request.graph.inputs, *request.graph.outputs) if not _fixed(spec)]
    if open_ended:
        return CannotRun(
            reason=f"mm_run does not say the shape of {', '.join(open_ended[:3])}, whose size is not fixed",
            hint="install the SDK's Python package, or fix the sizes with --dim",
        )

    def outputs() -> Iterator[list[Array]]:
        for number, arrays in enumerate(feeds):
            yield _one(request, runner, (tool, number), arrays, axes)

    return Ran(outputs=outputs(), ran_on="device", device=device)


def time_by_tool(
    request: RunRequest, feed: Mapping[str, Array], runner: Runner, tool: str, *, runs: int, axes: Axes
) -> Timing | None:
    """What ``mm_run`` says of many runs of one sample; None where sizes are not fixed, or it fails.

    Its lines (the SDK's samples): ``Throughput (qps): 97.5 with …``, older ones the number alone; below ``Total Latency
    Summary`` a line ``Latency(host clock, ms): min: a max: b mean: c median: d percentile: (90%) e (95%) f (99%) g``.
    """
    if not all(_fixed(spec) for spec in request.graph.inputs):
        return None
    folder = request.folder / RAW / "timing"
    words = _words(request, folder, feed, axes)
    log = f"{RAW}/timing/{LOG}"
    finished = runner((tool, *words, "--iterations", str(runs), "--duration", "0"), log=log)
    said = (request.folder / log).read_text(encoding="utf-8", errors="replace")
    return None if finished.returncode or finished.timed_out else read_summary(said, runs)


def read_summary(text: str, runs: int) -> Timing | None:
    """The numbers of a log; None where it has none."""
    if not (rate := RATE.search(text)):
        return None
    line = LATENCY.search(text.partition(TOTAL)[2])
    told = dict(re.findall(rf"(min|max|mean|median|\(99%\)):? {NUMBER}", line[1] if line else ""))
    values = {name: float(number) for name, number in told.items()}
    return Timing(
        tool="mm_run",
        runs=runs,
        median=values.get("median", 0.0),
        p99=values.get("(99%)", 0.0),
        mean=values.get("mean", 0.0),
        least=values.get("min", 0.0),
        most=values.get("max", 0.0),
        per_second=float(rate[1]),
    )


def _fixed(spec: TensorSpec) -> bool:
    return all(isinstance(size, int) for size in spec.shape)


def _one(
    request: RunRequest,
    runner: Runner,
    call: tuple[str, int],
    arrays: Mapping[str, Array],
    axes: Axes,
) -> list[Array]:
    """One sample. ``call``: the program and the sample's number."""
    folder = request.folder / RAW / f"{call[1]:03d}"
    words = _words(request, folder, arrays, axes)
    log = f"{RAW}/{folder.name}/{LOG}"
    finished = runner((call[0], *words, "--iterations", "1", "--duration", "0", "--warmup", "0"), log=log)
    said = (request.folder / log).read_text(encoding="utf-8", errors="replace")
    if finished.returncode or finished.timed_out or SUMMARY not in said:
        told = [line.strip() for line in said.splitlines() if line.strip()]
        raise does_not_run(
            request.artifact.target, told[-1] if told else f"mm_run ended with exit code {finished.returncode}"
        )
    return [_read(request, spec, number, axes, call[1]) for number, spec in enumerate(request.graph.outputs)]


def _words(request: RunRequest, folder: Path, arrays: Mapping[str, Array], axes: Axes) -> tuple[str, ...]:
    """The words that name the artifact, its inputs, which are written, and the place of its outputs."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for place, spec in enumerate(request.graph.inputs):
        array = _turned(arrays[spec.name], axes["input_axes"].get(str(place)))
        array.astype(NARROW.get(spec.dtype, array.dtype.name), order="C").tofile(folder / f"input{place}.bin")
        names.append(f"{RAW}/{folder.name}/input{place}.bin")
    path = str(request.artifact.path(request.artifact.files[0].name).resolve())
    return ("--magicmind_model", path, "--input_files", *names, "--output_path", f"{RAW}/{folder.name}")


def _turned(array: Array, places: list[int] | None) -> Array:
    return array.transpose(places) if places else array


def _read(request: RunRequest, spec: TensorSpec, number: int, axes: Axes, sample: int) -> Array:
    """One output from its raw bytes, whose number tells a narrower type from the graph's own."""
    import math

    import numpy as np

    path = request.folder / RAW / f"{sample:03d}" / f"output{number}"
    places = axes["output_axes"].get(str(number))
    sizes = [int(size) for size in spec.shape]
    shape = [sizes[place] for place in places] if places else sizes
    raw = path.read_bytes() if path.is_file() else b""
    wanted = np.dtype(NARROW.get(spec.dtype, spec.dtype))
    if len(raw) != math.prod(shape) * wanted.itemsize:
        raise does_not_run(
            request.artifact.target,
            f"{path.name} has {len(raw)} bytes, and {spec.name} is {wanted.name} of shape {shape}",
        )
    array: Array = np.frombuffer(raw, wanted).reshape(shape)
    return array.transpose(np.argsort(places)) if places else array
