"""Run by test_big_models.py: compile or validate a model of N bytes in a process of its own, print the peak memory."""

import sys
from pathlib import Path

import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper

from artifacts.digest import FileEntry, file_entries
from convert.arrays import save_npz
from convert.bigmodel import refer
from convert.graphs import facts
from convert.stages.compile import compile_graph
from convert.stages.validate import validate_artifact
from convert.values import CheckedGraph, CompiledArtifact, CompileOptions, OnnxGraph, Support, ValidateOptions, to_json

WIDTH, LAYERS = 4096, 6


def build(folder: Path, size: int) -> OnnxGraph:
    """A chain of matrix products; its weights are a sparse file of zeros, so that it costs no disk."""
    rows = size // (LAYERS * WIDTH * 4)
    nodes, weights, current = [], [], "x"
    for layer in range(LAYERS):
        shape = (WIDTH, rows) if layer % 2 == 0 else (rows, WIDTH)
        weight = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=shape)
        refer(weight, "model.onnx.data", layer * WIDTH * rows * 4, WIDTH * rows * 4)
        weights.append(weight)
        nodes.append(helper.make_node("MatMul", [current, weight.name], [f"h{layer}"], name=f"mm{layer}"))
        current = f"h{layer}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, WIDTH]) for name in ("x", current)]
    graph = helper.make_graph(nodes, "big", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with (folder / "model.onnx.data").open("wb") as stream:
        stream.truncate(LAYERS * WIDTH * rows * 4)
    save_npz(folder / "samples/000.npz", {"x": np.ones((1, WIDTH), np.float32)})
    save_npz(folder / "reference/000.npz", {"0": np.zeros((1, WIDTH), np.float32)})
    files = file_entries(folder, ["model.onnx", "samples/000.npz", "reference/000.npz"])
    data = FileEntry(
        name="model.onnx.data", sha256="sha256:" + "0" * 64, bytes=(folder / "model.onnx.data").stat().st_size
    )
    described = facts(onnx.load(folder / "model.onnx", load_external_data=False))
    return OnnxGraph(
        parent="sha256:0", stage="export", sample_count=1, files=(*files, data), folder=str(folder), **described
    )


def main(step: str, precision: str, folder: Path, size: int) -> None:
    graph_file, artifact_file = folder / "graph.json", folder / "artifact.json"
    if step == "build":
        (folder / "graph").mkdir()
        graph_file.write_bytes(to_json(build(folder / "graph", size)))
        return
    graph = msgspec.json.decode(graph_file.read_bytes(), type=OnnxGraph)
    if step == "compile":
        support = Support(supported=True, nodes=graph.nodes, opset=graph.opset)
        checked = CheckedGraph(parent=graph.digest, target="cpu", support=support)
        options = CompileOptions(target="cpu", backend="onnxruntime", precision=precision)
        artifact_file.write_bytes(to_json(compile_graph(graph, checked, options, folder / "made")))
    else:
        artifact = msgspec.json.decode(artifact_file.read_bytes(), type=CompiledArtifact)
        report = validate_artifact(graph, artifact, ValidateOptions(), folder / "report")
        assert report.outputs[0].state == "all-zero"
    print(peak())


def peak() -> int:
    """The highest resident memory of this program; not ru_maxrss, which begins with that of whoever started it."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1024


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
