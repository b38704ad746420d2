from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from artifacts.digest import file_entries
from convert.arrays import save_npz
from convert.bigmodel import externalize
from convert.graphs import facts
from convert.ort import run_samples
from convert.precision import make_runnable
from convert.values import CheckedGraph, CompileOptions, OnnxGraph, Support

HEADER = '<ir_version: 8, opset_import: ["" : {opset}]>\n'


@pytest.fixture
def graph_of(tmp_path: Path) -> Callable[..., OnnxGraph]:
    """An OnnxGraph of a model (or of its text), with samples and the reference outputs that it gives itself."""

    def make(
        model: onnx.ModelProto | str, *samples: dict[str, np.ndarray], opset: int = 17, external: bool = False
    ) -> OnnxGraph:
        if isinstance(model, str):
            model = onnx.parser.parse_model(HEADER.format(opset=opset) + model)
        folder = tmp_path / "graph"
        folder.mkdir()
        names = ["model.onnx"]
        runnable = onnx.ModelProto.FromString(model.SerializeToString())
        if external:
            externalize(model, folder / "model.onnx.data", threshold=64)
            names.append("model.onnx.data")
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        if samples:
            make_runnable(runnable)
            onnx.save(runnable, tmp_path / "runnable.onnx")
        for number, outputs in enumerate(run_samples(tmp_path / "runnable.onnx", samples) if samples else []):
            names += [f"samples/{number:03d}.npz", f"reference/{number:03d}.npz"]
            save_npz(folder / names[-2], samples[number])
            save_npz(folder / names[-1], {str(index): array for index, array in enumerate(outputs)})
        return OnnxGraph(
            parent="sha256:" + "0" * 64,
            stage="export",
            sample_count=len(samples),
            files=file_entries(folder, names),
            folder=str(folder),
            **facts(model),
        )

    return make


@pytest.fixture
def checked_of() -> Callable[[OnnxGraph], CheckedGraph]:
    def make(graph: OnnxGraph) -> CheckedGraph:
        support = Support(supported=True, nodes=graph.nodes, opset=graph.opset)
        return CheckedGraph(parent=graph.digest, target="cpu", support=support)

    return make


@pytest.fixture
def cpu() -> Callable[..., CompileOptions]:
    def make(precision: str = "fp32", **options: str) -> CompileOptions:
        return CompileOptions(target="cpu", backend="onnxruntime", precision=precision, options=options)

    return make
