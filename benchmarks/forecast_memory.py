"""Peak memory of a forecast beside its budget, on a network whose values are many times as large.

Each peak is that of a process of its own: the forecast's, and that of the same inferences in ONNX Runtime's default
session, which nobody can do without and which the budget comes on top of. ``python -m benchmarks.forecast_memory`` is
one such process.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import Row, run
from benchmarks.networks import Builder
from convert.arrays import load_npz, save_npz
from convert.graphs import MODEL, facts, model_entries
from convert.ort import exact_settings, open_session, run_session
from convert.stages.forecast import forecast_graph
from convert.values import ForecastOptions, OnnxGraph

BUDGETS = (200_000_000, 1_000_000_000)
LAYERS, WIDTH, SIDE, SAMPLES = 48, 8, 512, 4


def rows() -> list[Row]:
    """One row for each budget."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run([sys.executable, "-m", "benchmarks.forecast_memory", "write", str(folder)], folder=Path.cwd())
        alone = _peak("infer", folder, 0)
        values = LAYERS * WIDTH * SIDE * SIDE * 4 * 2.5
        return [
            Row(
                what=f"forecast of {values / 1e9:.1f} GB of values, beside the inference + {budget // 10**6} MB",
                ours=_peak("forecast", folder, budget) / 1e6,
                base=(alone + budget) / 1e6,
                unit="MB",
                bound=1.0,
            )
            for budget in BUDGETS
        ]


def _peak(job: str, folder: Path, budget: int) -> int:
    command = [sys.executable, "-m", "benchmarks.forecast_memory", job, str(folder), str(budget)]
    return run(command, folder=Path.cwd()).peak


def _write(folder: Path) -> None:
    net, x = Builder(), "x"
    for layer in range(LAYERS):
        kernel = net.weight(f"w{layer}", net.rng.standard_normal((WIDTH, WIDTH, 1, 1)) / np.sqrt(WIDTH))
        y = net.node("Tanh", [net.node("Conv", [x, kernel], f"conv{layer}")], f"tanh{layer}")
        x = net.node("Add", [x, y], f"sum{layer}") if layer % 2 else y
    shape = [1, WIDTH, SIDE, SIDE]
    model = net.model(shape, [1, WIDTH, 1, 1], net.node("GlobalAveragePool", [x], "y"))
    (folder / MODEL).write_bytes(model.SerializeToString())
    session = open_session(folder / MODEL, exact_settings(folder / MODEL))
    for number in range(SAMPLES):
        feed = {"x": net.rng.standard_normal(shape).astype(np.float32)}
        save_npz(folder / f"samples/{number:03d}.npz", feed)
        save_npz(folder / f"reference/{number:03d}.npz", {"0": run_session(session, feed)[0]})


def _graph(folder: Path) -> OnnxGraph:
    import onnx

    names = [f"{kind}/{number:03d}.npz" for kind in ("samples", "reference") for number in range(SAMPLES)]
    return OnnxGraph(
        parent="sha256:" + "0" * 64,
        stage="simplify",
        sample_count=SAMPLES,
        files=model_entries(folder, [MODEL, *names]),
        folder=str(folder),
        **facts(onnx.load(folder / MODEL)),
    )


def main(job: str, folder: Path, budget: int = 0) -> None:
    """Write the network, run it, or forecast it."""
    if job == "write":
        _write(folder)
    elif job == "infer":
        session = open_session(folder / MODEL)
        for number in range(SAMPLES):
            run_session(session, load_npz(folder / f"samples/{number:03d}.npz"))
    else:
        with tempfile.TemporaryDirectory() as out:
            forecast_graph(_graph(folder), ForecastOptions(precision="fp16", memory=budget), Path(out))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *(int(text) for text in sys.argv[3:]))
