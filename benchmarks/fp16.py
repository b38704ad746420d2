"""float16 by several tools on the same graphs: can ONNX Runtime load what they write, does it still compute right."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.measure import Cost, Grid, Part, Row, run
from benchmarks.networks import convolutions, transformer
from benchmarks.peers import DEEP, OFFLINE, VENVS, missing
from convert.ort import SessionFailed, open_session, run_session

COMMON = (
    "import sys, onnx; from onnxconverter_common import float16;"
    "onnx.save(float16.convert_float_to_float16(onnx.load(sys.argv[1]), keep_io_types=True), sys.argv[2])"
)
TOOLS = ("ours", "polygraphy convert", "onnxconverter-common", "onnxslim", "olive run")
ENVIRONMENTS = {
    "polygraphy convert": "polygraphy",
    "onnxconverter-common": "converter",
    "onnxslim": "onnxslim",
    "olive run": "olive",
}
WRONG = 0.05
"""Of the largest output: an error beyond this is no rounding."""
Feed = dict[str, Any]


def rows() -> Part:
    """Every tool on every graph; the aim is that all of ours load and compute."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        graphs = _graphs(folder)
        states = {name: {tool: _state(folder, name, tool, feed) for tool in TOOLS} for name, feed in graphs.items()}
    good = {tool: sum(told[tool].startswith("✓") for told in states.values()) for tool in TOOLS}
    lines = tuple((name, *(told[tool] for tool in TOOLS)) for name, told in states.items())
    what = "graphs whose float16 form of ours does not load or compute, beside all"
    bad = Row(what=what, ours=float(len(graphs) - good["ours"]), base=float(len(graphs)), unit="graphs", bound=1e-9)
    return Part(rows=(bad,), grids=(Grid(title="float16 on ONNX Runtime", header=("graph", *TOOLS), lines=lines),))


def _graphs(folder: Path) -> dict[str, Feed]:
    """Three graphs as files ``NAME.onnx``, and an input for each."""
    feeds: dict[str, Feed] = {}
    built = {"convolutions": convolutions(blocks=3, width=16, size=28), "masked transformer": _masked()}
    for name, (model, feed) in built.items():
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
        feeds[name] = feed
    if not missing("plain"):
        python = str(VENVS / "plain" / "bin" / "python")
        run([python, DEEP, "write", str(folder), "4"], folder=folder, environment={"PYTHONPATH": ""})
        command = [python, DEEP, "export", "deep.pt", "legacy export.onnx"]
        run(command, folder=folder, environment={"PYTHONPATH": ""})
        feeds["legacy export"] = {"x": np.random.default_rng(0).random((2, 3, 32, 32), np.float32)}
    return feeds


def _masked() -> tuple[onnx.ModelProto, Feed]:
    return transformer(layers=2, width=48, length=16, faulty=True)


def _state(folder: Path, name: str, tool: str, feed: Feed) -> str:
    """One cell: loads and computes (with the largest difference), or what goes wrong where."""
    reason = missing(ENVIRONMENTS[tool]) if tool in ENVIRONMENTS else ""
    if reason:
        return f"– {reason}"
    target = folder / f"{name} {tool}.onnx"
    cost, made = CONVERTERS[tool](folder, f"{name}.onnx", target)
    if cost.code or made is None or not made.is_file():
        return f"✗ exit code {cost.code}: {(cost.output.strip().splitlines() or ['no word'])[-1][:90]}"
    try:
        outputs = run_session(open_session(made), _as_taken(made, feed))
    except SessionFailed as failure:
        return f"✗ exit code 0, but {str(failure)[:90]}"
    wanted = run_session(open_session(folder / f"{name}.onnx"), feed)
    pairs = list(zip(outputs, wanted, strict=True))
    if not all(np.isfinite(ours).all() for ours, _ in pairs):
        return "✗ exit code 0, but not finite"
    worst = max(float(np.abs(ours.astype(np.float64) - theirs).max()) for ours, theirs in pairs)
    size = max(float(np.abs(theirs).max()) for _, theirs in pairs)
    return f"✓ off by {worst:.1e}" if worst <= WRONG * size else f"✗ exit code 0, but off by {worst:.1e} of {size:.1e}"


def _as_taken(model: Path, feed: Feed) -> Feed:
    types = {item.name: item.type for item in open_session(model).get_inputs()}
    return {name: array.astype(np.float16) if "float16" in types[name] else array for name, array in feed.items()}


def _peer(folder: Path, environment: str, *command: str) -> Cost:
    program = str(VENVS / environment / "bin" / command[0])
    return run([program, *command[1:]], folder=folder, environment={**OFFLINE, "PYTHONPATH": ""}, check=False)


def _polygraphy(folder: Path, source: str, target: Path) -> tuple[Cost, Path]:
    arguments = ("convert", source, "--convert-to", "onnx", "--fp-to-fp16", "-o", target.name)
    return _peer(folder, "polygraphy", "polygraphy", *arguments), target


def _common(folder: Path, source: str, target: Path) -> tuple[Cost, Path]:
    return _peer(folder, "converter", "python", "-c", COMMON, source, target.name), target


def _onnxslim(folder: Path, source: str, target: Path) -> tuple[Cost, Path]:
    return _peer(folder, "onnxslim", "onnxslim", source, target.name, "--dtype", "fp16"), target


def _olive(folder: Path, source: str, target: Path) -> tuple[Cost, Path | None]:
    place = folder / f"{target.stem} out"
    config = {
        "input_model": {"type": "ONNXModel", "model_path": str(folder / source)},
        "passes": {"half": {"type": "OnnxFloatToFloat16"}},
        "cache_dir": str(folder / "olive-cache"),
        "output_dir": str(place),
        "evaluate_input_model": False,
    }
    (folder / "olive.json").write_text(json.dumps(config))
    cost = _peer(folder, "olive", "olive", "run", "--config", "olive.json")
    return cost, next(iter(sorted(place.rglob("*.onnx"))), None)


def _ours(folder: Path, source: str, target: Path) -> tuple[Cost, Path | None]:
    """float16; where its gate refuses that, the mixed plan, which leaves in float32 what needs it."""
    places = {"CONVERT_CACHE_DIR": str(folder / "cache"), "CONVERT_REGISTRY": str(folder / "registry")}
    for precision in ("fp16", "mixed"):
        out = folder / f"{target.stem} {precision}"
        command = [sys.executable, "-m", "convert", source, "--target", "cpu", "-p", precision, "--out", out.name, "-q"]
        cost = run(command, folder=folder, environment=places, check=False)
        if not cost.code:
            break
    return cost, next(iter(sorted(out.rglob("*.onnx"))), None)


CONVERTERS: dict[str, Callable[[Path, str, Path], tuple[Cost, Path | None]]] = {
    "ours": _ours,
    "polygraphy convert": _polygraphy,
    "onnxconverter-common": _common,
    "onnxslim": _onnxslim,
    "olive run": _olive,
}
