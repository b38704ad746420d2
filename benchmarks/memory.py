"""Peak memory of a 3 GB model, stage by stage, against the bound that the project sets itself."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import Row

SIDE, LAYERS = 16384, 3
"""Three square float32 matrices of 1 GiB each."""
ALLOWED, BASE = 1.3, 0.5e9


def write_big_onnx(folder: Path, *, side: int = SIDE, layers: int = LAYERS) -> Path:
    """A chain of square matrix products with external weights, written tile by tile; mostly zeros, never all."""
    from onnx import TensorProto, helper

    nodes, weights = [], []
    row = np.zeros(side, np.float32)
    with (folder / "big.onnx.data").open("wb") as stream:
        for layer in range(layers):
            tensor = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[side, side])
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "big.onnx.data"), ("offset", stream.tell()), ("length", side * side * 4)):
                tensor.external_data.add(key=key, value=str(value))
            for index in range(side):
                row[:] = 0
                row[index % 97 :: 97] = 0.05 + layer / 100
                stream.write(row.tobytes())
            weights.append(tensor)
            nodes.append(helper.make_node("MatMul", [f"h{layer}", f"w{layer}"], [f"m{layer}"], name=f"product{layer}"))
            nodes.append(helper.make_node("Tanh", [f"m{layer}"], [f"h{layer + 1}"], name=f"tanh{layer}"))
    graph = helper.make_graph(
        nodes,
        "big",
        [helper.make_tensor_value_info("h0", TensorProto.FLOAT, [1, side])],
        [helper.make_tensor_value_info(f"h{layers}", TensorProto.FLOAT, [1, side])],
        weights,
    )
    path = folder / "big.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def rows() -> list[Row]:
    """A model of 3 GB."""
    return peaks_of(LAYERS)


def peaks_of(layers: int) -> list[Row]:
    """Convert, publish and pull; the peak of each stage over 1.3 × the model + 0.5 GB."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = write_big_onnx(folder, layers=layers)
        size = (folder / "big.onnx.data").stat().st_size
        places = ["--out", str(folder / "out"), "--registry", str(folder / "registry"), "--no-cache", "--json", "-q"]
        document = json.loads(_run("convert", str(model), "--target", "cpu", *places))
        peaks = {run["stage"]: run["peak_rss"] for run in document["targets"][0]["stages"] if run["peak_rss"]}
        pull = ["pull", document["targets"][0]["artifact"]["ref"], str(folder / "pulled"), "--target", "cpu"]
        peaks["publish and pull"] = _peak("artifacts", *pull, "--registry", str(folder / "registry"))
    bound = ALLOWED * size + BASE
    return [
        Row(what=f"{stage}, {size / 1e9:.1f} GB of weights", ours=peak / 1e9, base=bound / 1e9, unit="GB", bound=1.0)
        for stage, peak in peaks.items()
    ]


def _run(*command: str) -> bytes:
    return subprocess.run([sys.executable, "-m", *command], check=True, stdout=subprocess.PIPE).stdout


def _peak(*command: str) -> int:
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"
    )
    return int(
        subprocess.run(
            [sys.executable, "-c", code, sys.executable, "-m", *command], check=True, capture_output=True
        ).stdout
    )
