import json

import msgspec
import numpy as np
import pytest

import convert.stages.validate as stage
from convert.backends.base import CannotRun
from convert.backends.onnxruntime import OnnxRuntimeBackend
from convert.errors import CompileFailed, GateFailed, ToolchainMissing
from convert.stages.compile import compile_graph
from convert.stages.validate import validate_artifact
from convert.values import ValidateOptions

NET = "g (float[N,2] x) => (float[N,2] y, float[N,2] z) { y = Relu(x) z = Neg(x) }"
SAMPLES = ({"x": np.array([[1, -2]], np.float32)}, {"x": np.array([[3, 4], [5, -6]], np.float32)})


@pytest.fixture
def built(graph_of, checked_of, cpu, tmp_path):
    graph = graph_of(NET, *SAMPLES)
    return graph, compile_graph(graph, checked_of(graph), cpu(), tmp_path / "made")


def _overwrite(graph, number: int, **arrays: np.ndarray) -> None:
    np.savez(graph.path(f"reference/{number:03d}.npz"), **arrays)


def test_every_output_of_every_sample_is_compared_by_position(built, tmp_path):
    graph, artifact = built
    report = validate_artifact(graph, artifact, ValidateOptions(), tmp_path / "v")
    assert report.parent == artifact.digest
    assert report.samples == 2
    assert [(output.name, output.elements, output.max_abs) for output in report.outputs] == [
        ("y", 6, 0.0),
        ("z", 6, 0.0),
    ]


def test_pictures_are_written_for_each_output(built, tmp_path):
    graph, artifact = built
    report = validate_artifact(graph, artifact, ValidateOptions(), tmp_path / "v")
    assert [entry.name for entry in report.files] == ["pictures.json"]
    assert [picture["name"] for picture in json.loads(report.path("pictures.json").read_bytes())] == ["y", "z"]


def test_the_worst_sample_is_named(built, tmp_path):
    graph, artifact = built
    _overwrite(graph, 1, **{"0": np.array([[3, 4], [5, 1]], np.float32), "1": -SAMPLES[1]["x"]})
    report = validate_artifact(graph, artifact, ValidateOptions(), tmp_path / "v")
    assert (report.outputs[0].worst_sample, report.outputs[0].max_abs) == (1, 1.0)
    assert report.outputs[1].max_abs == 0.0


def test_an_output_that_the_artifact_lacks_is_missing(built, tmp_path):
    graph, artifact = built
    _overwrite(graph, 0, **{"0": np.zeros((1, 2), np.float32), "1": -SAMPLES[0]["x"], "2": np.zeros(3)})
    report = validate_artifact(graph, artifact, ValidateOptions(), tmp_path / "v")
    assert report.outputs[2].state == "missing"


def test_a_constant_output_is_noticed_when_samples_differ(graph_of, checked_of, cpu, tmp_path):
    graph = graph_of("g (float[2] x) => (float[2] y) { y = Sub(x, x) }", *({"x": s["x"][0]} for s in SAMPLES))
    artifact = compile_graph(graph, checked_of(graph), cpu(), tmp_path / "made")
    report = validate_artifact(graph, artifact, ValidateOptions(), tmp_path / "v")
    assert report.outputs[0].constant


def test_a_metric_of_the_user_is_measured(built, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("def ends(reference, candidate):\n    return float(candidate.flat[-1])\n")
    graph, artifact = built
    options = ValidateOptions(metrics=(f"{tmp_path}/mine.py:ends",))
    report = validate_artifact(graph, artifact, options, tmp_path / "v")
    assert report.outputs[0].user == {"ends": 0.0}


def test_an_artifact_that_does_not_load_is_a_failure_of_the_compiler(built, tmp_path):
    graph, artifact = built
    artifact.path("model.onnx").write_bytes(b"no model")
    with pytest.raises(CompileFailed) as failure:
        validate_artifact(graph, artifact, ValidateOptions(), tmp_path / "v")
    assert failure.value.code == "CNV-7005"
    assert "\n" not in failure.value.message


def test_a_sample_of_another_dtype_is_told_in_one_line(built, tmp_path):
    graph, artifact = built
    np.savez(graph.path("samples/000.npz"), x=np.zeros((1, 2)))
    with pytest.raises(CompileFailed, match="input 'x' takes float32, and the sample holds float64"):
        validate_artifact(graph, artifact, ValidateOptions(), tmp_path / "v")


def test_a_reference_that_can_not_be_read_is_told(built, tmp_path):
    graph, artifact = built
    graph.path("reference/001.npz").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(GateFailed, match=r"reference/001\.npz") as failure:
        validate_artifact(graph, artifact, ValidateOptions(), tmp_path / "v")
    assert failure.value.code == "CNV-8061"


def test_an_artifact_that_nothing_here_can_run_ends_in_exit_6(built, tmp_path, monkeypatch):
    class Elsewhere(OnnxRuntimeBackend):
        def run(self, request, feeds, runner):
            return CannotRun(reason="no NPU on this machine")

    graph, artifact = built
    monkeypatch.setattr(stage, "load_backend", lambda name: Elsewhere())
    with pytest.raises(ToolchainMissing, match="no NPU") as missing:
        validate_artifact(graph, artifact, ValidateOptions(), tmp_path / "v")
    assert (missing.value.code, missing.value.exit_code) == ("CNV-6002", 6)


def test_a_card_whose_provider_is_not_here_is_run_on_the_host_and_says_so(built, tmp_path):
    graph, artifact = built
    report = validate_artifact(
        graph, msgspec.structs.replace(artifact, target="C500"), ValidateOptions(), tmp_path / "v"
    )
    assert (report.ran_on, report.device) == ("host", "cpu")
    assert "not on C500" in report.notes[-1].text
