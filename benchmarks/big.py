"""Big models: 8 GB of weights through every stage, and graphs of up to 100,000 nodes: how time and memory grow."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchmarks.measure import Grid, Part, Row, exponent, run
from benchmarks.memory import peaks_of
from benchmarks.registry import chain
from convert.request import StageRun

NODES = (10_000, 30_000, 100_000)
LAYERS = 8
"""Of 1 GiB each."""
LINEAR = 1.15
"""A growth of time up to this exponent counts as linear: fixed costs and caches of the processor bend it a little."""
TARGET = "Ascend910B3"


def rows() -> Part:
    """The wide model, then the long ones."""
    wide = peaks_of(LAYERS)
    long, grid = long_graphs()
    return Part(rows=(*wide, *long), grids=(grid,), notes=(NOTE,))


NOTE = f"The long graphs are chains of common operators without types, for cpu; `adapt` and `check` for {TARGET} too."


def growth(what: str, sizes: list[float], costs: list[float]) -> Row:
    """The exponent of a growth, beside linear; a cost next to nothing counts as a millisecond."""
    found = exponent(sizes, [max(cost, 1e-3) for cost in costs])
    return Row(what=f"growth of {what}", ours=max(0.0, found), base=1.0, unit="exponent", bound=LINEAR)


def long_graphs() -> tuple[list[Row], Grid]:
    """Convert, check and forecast chains of nodes; the exponents of every stage's seconds and of what is written."""
    found: dict[int, dict[str, float]] = {}
    for nodes in NODES:
        with tempfile.TemporaryDirectory() as place:
            found[nodes] = _one(Path(place), nodes)
    names = [name for name in found[NODES[0]] if all(name in each for each in found.values())]
    sizes = [float(nodes) for nodes in NODES]
    grown = [growth(f"{name}, {NODES[-1]:,} nodes", sizes, [found[n][name] for n in NODES]) for name in names]
    lines = tuple(
        (name, *(f"{found[n][name]:,.2f}" for n in NODES), f"{row.ours:.2f}")
        for name, row in zip(names, grown, strict=True)
    )
    header = ("what", *(f"{nodes:,} nodes" for nodes in NODES), "exponent")
    return grown, Grid(title="Long graphs", header=header, lines=lines)


def _one(folder: Path, nodes: int) -> dict[str, float]:
    """CPU seconds and peak memory of every stage of one size, of a forecast, and the size of the report."""
    from convert.pipeline import convert_model
    from convert.request import Request
    from convert.settings import load_settings
    from convert.values import LoadOptions

    path = folder / "chain.onnx"
    path.write_bytes(chain(nodes, stated=False).SerializeToString())
    places = {name: str(folder / name) for name in ("cache_dir", "registry", "out")}
    load, settings = LoadOptions(path=str(path)), load_settings({**places, "timeout": "3600"})
    converted = convert_model(Request(load=load, targets=("cpu",)), settings).targets[0]
    checked = convert_model(Request(load=load, targets=(TARGET,), until="check"), settings).targets[0]
    if converted.error:
        raise SystemExit(f"{nodes} nodes: {converted.error}")
    found = _stages(converted.stages, "")
    found |= _stages([run for run in checked.stages if run.stage in ("adapt", "check")], f" for {TARGET}")
    command = [sys.executable, "-m", "convert", "forecast", str(path), "--precision", "fp16", "-q", "--json"]
    cost = run(command, folder=folder, environment={"CONVERT_CACHE_DIR": places["cache_dir"]}, check=False)
    found["forecast, CPU s"] = cost.cpu
    found["report, MB"] = (Path(converted.folder) / "report.html").stat().st_size / 1e6
    return found


def _stages(runs: Iterable[StageRun], behind: str) -> dict[str, float]:
    """CPU seconds of every stage, and the peak of its memory."""
    fresh = [one for one in runs if not one.cached and one.stage != "publish"]
    seconds = {f"{one.stage}{behind}, CPU s": one.cpu_seconds for one in fresh}
    return seconds | {f"{one.stage}{behind}, peak MB": one.peak_rss / 1e6 for one in fresh}
