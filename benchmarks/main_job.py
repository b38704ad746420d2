"""The main job against the bare library calls: cold, unchanged repeat, and what a changed gate or name costs."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Cost, Row, best, run

RUNS = 5
"""Odd, so that there is a middle one."""
RESNET = str(Path(__file__).with_name("resnet.py"))
INPUT = ["--input", "x:float32[1,3,224,224]"]


def rows() -> list[Row]:
    """Measure, the two sides in turn."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = folder / "resnet18.pt"
        run([sys.executable, RESNET, "write", str(model)], folder=folder)
        run([sys.executable, RESNET, "bare", str(model), str(folder)], folder=folder)
        bare, cold = [], []
        for _ in range(RUNS):
            bare.append(run([sys.executable, RESNET, "bare", str(model), str(folder)], folder=folder))
            for name in ("cache", "registry", "out"):
                shutil.rmtree(folder / name, ignore_errors=True)
            cold.append(_convert(folder, model))
        again = [_convert(folder, model) for _ in range(RUNS)]
        gate = [_convert(folder, model, "--gate", "cosine=0.99") for _ in range(RUNS)]
        renamed = [_convert(folder, model, "--name", f"other{number}") for number in range(RUNS)]
        helped = [run([sys.executable, "-m", "convert", "--help"], folder=folder) for _ in range(RUNS)]
        pydantic = [run([sys.executable, "-c", "import pydantic"], folder=folder) for _ in range(RUNS)]
    # The middle one of the pairs: on a shared machine single runs differ by a third, both sides of a pair alike.
    ours, base = sorted(((one.cpu, other.cpu) for one, other in zip(cold, bare, strict=True)), key=_ratio)[RUNS // 2]
    return [
        Row(what="ResNet-18, cold, against the bare calls", ours=ours, base=base, bound=1.10),
        Row(what="unchanged repeat, against cold", ours=best(again), base=ours, bound=0.1),
        Row(what="another --gate, against cold", ours=best(gate), base=ours, bound=0.1),
        Row(what="another --name, against cold", ours=best(renamed), base=ours, bound=0.1),
        Row(what="convert --help, against import pydantic", ours=best(helped), base=best(pydantic), bound=2.0),
    ]


def _ratio(pair: tuple[float, float]) -> float:
    return pair[0] / pair[1]


def _convert(folder: Path, model: Path, *more: str) -> Cost:
    places = {"CONVERT_CACHE_DIR": str(folder / "cache"), "CONVERT_REGISTRY": str(folder / "registry")}
    command = [sys.executable, "-m", "convert", str(model), "--target", "cpu", *INPUT, "--out", "out", "-q", *more]
    return run(command, folder=folder, environment=places)
