"""Long graphs: every stage's own work grows no faster than the graph, counted in calls and not on a clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from convert import ort
from convert.ort import MANY_NODES, SLOW_ON_MANY, has_many_nodes
from convert.stages.adapt import adapt_graph
from convert.stages.check import check_graph
from convert.stages.compile import compile_graph
from convert.stages.export import export_graph
from convert.stages.forecast import forecast_graph
from convert.stages.load import load_model
from convert.stages.simplify import simplify_graph
from convert.stages.validate import validate_artifact
from convert.values import (
    AdaptOptions,
    CheckOptions,
    CompileOptions,
    ExportOptions,
    ForecastOptions,
    LoadOptions,
    OnnxGraph,
    SimplifyOptions,
    ValidateOptions,
)

Run = Callable[..., tuple[Any, int]]
SLACK = 1.15
"""Over a growth in proportion; fixed costs make a stage grow by less."""


def chain(nodes: int) -> bytes:
    """Common operators in a row, with weights; some that a target refuses."""
    made, tensors, last = [], [], "x"
    for place in range(nodes):
        op = ("Conv", "Relu", "Add", "Mul", "Transpose", "Sigmoid", "Relu", "MaxPool", "Add", "HardSwish")[place % 10]
        name, attributes = f"v{place}", dict[str, Any]()
        inputs = [last, last] if op in ("Add", "Mul") else [last]
        if op == "Conv":
            tensors.append(helper.make_tensor(f"w{place}", TensorProto.FLOAT, [2, 2, 1, 1], [0.1, 0.2, 0.3, 0.4]))
            inputs.append(f"w{place}")
        if op == "Transpose":
            attributes = {"perm": [0, 1, 3, 2]}
        if op == "MaxPool":
            attributes = {"kernel_shape": [1, 1]}
        made.append(helper.make_node(op, inputs, [name], name=f"n{place}", **attributes))
        last = name
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 4, 4]) for name in ("x", last)]
    graph = helper.make_graph(made, "chain", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


class Counted:
    """Runs stages, and keeps how many functions each called."""

    def __init__(self, run: Run) -> None:
        self.calls: dict[str, int] = {}
        self._run = run

    def __call__(self, stage: str, function: Callable[..., Any], *args: Any) -> Any:
        value, self.calls[stage] = self._run(function, *args)
        return value


def shared(counted: Counted, folder: Path, nodes: int) -> OnnxGraph:
    """Take a chain through the stages that all targets share."""
    path = folder / "chain.onnx"
    path.write_bytes(chain(nodes))
    load = LoadOptions(path=str(path))
    loaded = counted("load", load_model, load, made(folder, "load"))
    exported = counted("export", export_graph, loaded, load, ExportOptions(), made(folder, "export"))
    graph: OnnxGraph = counted("simplify", simplify_graph, exported, SimplifyOptions(), made(folder, "simplify"))
    assert [note.text for note in graph.notes] == [f"simplified from {nodes} to {nodes} nodes"]
    return graph


def for_cpu(counted: Counted, folder: Path, nodes: int) -> None:
    """From the file to a checked artifact for cpu."""
    graph = shared(counted, folder, nodes)
    checked = counted("check", check_graph, graph, CheckOptions(target="cpu"), made(folder, "check"))
    options = CompileOptions(target="cpu", backend="onnxruntime", precision="fp32")
    artifact = counted("compile", compile_graph, graph, checked, options, made(folder, "compile"))
    report = counted("validate", validate_artifact, graph, artifact, ValidateOptions(), made(folder, "validate"))
    assert report.outputs[0].rel_l2 is not None
    assert report.outputs[0].rel_l2 < 1e-4


def forecast_and_adapted(counted: Counted, folder: Path, nodes: int) -> None:
    """The stages that look into every node: the forecast, and the rewrites for a target that refuses some."""
    graph = shared(counted, folder, nodes)
    counted("forecast", forecast_graph, graph, ForecastOptions(precision="fp16"), made(folder, "forecast"))
    adapted = counted("adapt", adapt_graph, graph, AdaptOptions(target="Ascend310P3"), made(folder, "adapt"))
    assert adapted.adapted


def made(folder: Path, stage: str) -> Path:
    place = folder / stage
    place.mkdir()
    return place


@pytest.mark.parametrize(("through", "few", "many"), [(for_cpu, 2000, 8000), (forecast_and_adapted, 500, 2000)])
def test_no_stage_does_more_for_each_node_of_a_longer_graph(
    through: Callable[[Counted, Path, int], None], few: int, many: int, counted: Run, tmp_path: Path
) -> None:
    calls = {}
    for nodes in (50, few, many):
        stages = Counted(counted)
        through(stages, made(tmp_path, str(nodes)), nodes)
        calls[nodes] = stages.calls
    grown = {stage: calls[many][stage] / calls[few][stage] for stage in calls[few]}
    assert {stage: factor for stage, factor in grown.items() if factor > many / few * SLACK} == {}


def test_what_is_slow_on_many_nodes_is_left_out_for_them_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[tuple[str, ...], bool]] = []

    def session(_: object, options: Any, *, disabled_optimizers: tuple[str, ...], **__: object) -> None:
        asked.append((disabled_optimizers, options.enable_mem_pattern))

    monkeypatch.setattr(ort, "InferenceSession", session)
    for nodes in (MANY_NODES, MANY_NODES - 1):
        (tmp_path / "chain.onnx").write_bytes(chain(nodes))
        ort.open_session(tmp_path / "chain.onnx")
        ort.open_session(chain(nodes))
    assert asked == [(SLOW_ON_MANY, False), (SLOW_ON_MANY, False), ((), True), ((), True)]
    assert not has_many_nodes(b"no model")
    assert not has_many_nodes(tmp_path / "absent")
