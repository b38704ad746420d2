"""Building and running through the stages' own functions: what MagicMind's habits are made of."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from magicmind_kit import arrays_for, dense, graph_of, header, image, text

from convert.backends.base import CannotRun
from convert.backends.magicmind import running
from convert.errors import CompileFailed, UsageError

RNG = np.random.default_rng(3)
X = {"x": RNG.normal(size=(2, 8)).astype(np.float32)}


def test_layouts_are_turned_on_the_way_in_and_out(sdk, stage) -> None:
    sdk()
    sample = arrays_for(graph_of("image"))
    graph = stage.graph(image(), sample)
    artifact = stage.compile(graph, "fp32", options={"input_layout": "NHWC", "output_layout": "0:NHWC"})
    ran, outputs = stage.run(graph, artifact, sample)
    reference = np.load(graph.path("reference/000.npz"))["0"]
    np.testing.assert_allclose(outputs[0][0], reference, rtol=1e-5, atol=1e-6)
    assert (ran.ran_on, ran.device) == ("device", "MLU370-X4")
    assert len(ran.seconds) == 1 and ran.seconds[0] > 0


def test_each_sample_of_a_range_is_run_in_its_own_size_and_ids_become_32_bits(sdk, stage) -> None:
    sdk()
    samples = [{"ids": RNG.integers(0, 10, (count, 5)), "scale": np.array(0.5, np.float32)} for count in (2, 4)]
    graph = stage.graph(text("N"), *samples, N="1..4")
    artifact = stage.compile(graph)
    assert header(artifact.path("model.mm"))["input_kinds"] == ["INT32", "FLOAT32"]
    _, outputs = stage.run(graph, artifact, *samples)
    for number, found in enumerate(outputs):
        reference = np.load(graph.path(f"reference/{number:03d}.npz"))
        np.testing.assert_allclose(found[0], reference["0"], rtol=2e-3)
        np.testing.assert_array_equal(found[1], reference["1"])
    with pytest.raises(CompileFailed, match="not in dim_range"):
        stage.run(graph, artifact, {"ids": np.zeros((5, 5), np.int64), "scale": np.array(1, np.float32)})
    with pytest.raises(CompileFailed, match="do not fit into int32"):
        stage.run(graph, artifact, {"ids": np.full((2, 5), 1 << 40), "scale": np.array(1, np.float32)})


def test_calibration_takes_the_files_of_one_shape_and_says_what_it_left_out(sdk, stage) -> None:
    sdk()
    calibration = tuple({"x": RNG.normal(size=(count, 8)).astype(np.float32)} for count in (2, 2, 3))
    graph = stage.graph(dense("N"), X, calibration=calibration, N="1..4")
    artifact = stage.compile(graph, "int8", keep=("last",), options={"weight_quant_granularity": "per_axis"})
    told = [note.text for note in artifact.notes]
    assert "calibrated on 2 samples" in told and any("1 inputs to calibrate with were left out" in one for one in told)
    wrote = header(artifact.path("model.mm"))
    assert wrote["kept"] == ["last"] and set(wrote["ranges"]) == {"x", "b"}
    assert {entry.name for entry in artifact.files} == {"model.mm"}


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("flood", "CNV-7002", "exit code 1"),
        ("exit0", "CNV-7002", "without its closing line"),
        ("nofile", "CNV-7002", "there is no file"),
        ("names", "CNV-7221", "no node called last"),
    ],
)
def test_a_build_that_fails_is_told_by_how_it_failed(sdk, stage, fault: str, code: str, words: str) -> None:
    sdk(fault=fault)
    with pytest.raises(CompileFailed, match=words) as failure:
        stage.compile(stage.graph(dense(), X), "mixed", keep=("last",))
    assert failure.value.code == code
    assert (stage.folder / "compiled" / "compile.log").stat().st_size < 6 << 20


@pytest.mark.parametrize(("fault", "words"), [("fusion", "gave no model"), ("fusion-crash", "ended by signal 6")])
def test_a_build_that_fails_is_tried_again_without_fusion_and_says_so(sdk, stage, fault: str, words: str) -> None:
    sdk(fault=fault)
    graph = stage.graph(dense(), X)
    artifact = stage.compile(graph)
    assert words in artifact.notes[-1].text and "fusion off costs speed" in artifact.notes[-1].text
    assert header(artifact.path("model.mm"))["fusion"] is False
    with pytest.raises(CompileFailed):
        stage.compile(graph, options={"fusion_retry": "off"})


@pytest.mark.parametrize(
    ("fault", "words"), [("noload", "deserialize failed"), ("sync", "100124"), ("oom", "out of memory")]
)
def test_an_artifact_that_does_not_run_is_a_failure_of_its_own(sdk, stage, fault: str, words: str) -> None:
    sdk(fault=fault)
    graph = stage.graph(dense(), X)
    artifact = stage.compile(graph)
    with pytest.raises(CompileFailed, match=words) as failure:
        stage.run(graph, artifact, X)
    assert failure.value.code == "CNV-7005"


def test_an_artifact_of_another_arch_is_not_started_and_one_that_loads_wrongly_is_told(
    sdk, stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdk()
    graph = stage.graph(dense(), X)
    other = stage.compile(graph, target="MLU590")
    refused = stage.run(graph, other, X)
    assert isinstance(refused, CannotRun) and "the card here is MLU370-X4" in refused.reason
    artifact = stage.compile(graph)
    monkeypatch.setenv("MAGICMIND_DOUBLE_ARCH", "mtp_592")
    with pytest.raises(CompileFailed, match="can't make an engine"):
        stage.run(graph, artifact, X)


def test_an_artifact_for_more_clusters_than_the_card_has_is_not_started(sdk, stage) -> None:
    sdk()
    graph = stage.graph(dense(), X)
    refused = stage.run(graph, stage.compile(graph, options={"clusters": "16"}), X)
    assert isinstance(refused, CannotRun) and "16 clusters, and MLU370-X4 has fewer" in refused.reason


def test_an_operator_that_the_importer_refuses_is_named(sdk, stage) -> None:
    sdk()
    model = dense()
    model.graph.node[1].op_type = "Elu"
    with pytest.raises(CompileFailed) as failure:
        stage.compile(stage.graph(model, X))
    assert "onnx.Elu" in (stage.folder / "compiled" / "compile.log").read_text()
    assert "importer" in failure.value.message


def test_int8_without_a_card_is_calibrated_on_a_remote(sdk, stage) -> None:
    sdk(card="")
    graph = stage.graph(dense(), X)
    with pytest.raises(UsageError, match="no card"):
        stage.compile(graph, "int8")
    assert stage.compile(graph, "int8", options={"rpc_server": "10.0.0.7:9009"}).files
    with pytest.raises(CompileFailed, match="can not connect"):
        stage.compile(graph, "int8", options={"rpc_server": "10.0.0.7:1"})


def test_a_card_that_is_told_and_is_not_there_ends_the_calibration(sdk, stage) -> None:
    sdk()
    with pytest.raises(CompileFailed, match="Invalid dev id 3") as failure:
        stage.compile(stage.graph(dense(), X), "int8", options={"device": "3"})
    assert failure.value.code == "CNV-7223"


def test_calibration_data_without_an_input_ends_the_build(sdk, stage) -> None:
    sdk()
    graph = stage.graph(dense(), X, calibration=({"y": X["x"]},))
    with pytest.raises(CompileFailed) as failure:
        stage.compile(graph, "int8")
    assert failure.value.code == "CNV-7222"


def test_a_machine_without_the_python_package_runs_an_artifact_by_mm_run(sdk, stage, monkeypatch) -> None:
    sdk()
    sample = arrays_for(graph_of("image"))
    graph = stage.graph(image(), sample)
    artifact = stage.compile(graph, "fp32", options={"input_layout": "NHWC", "output_layout": "NHWC"})
    lacking = running.Missing(name="MagicMind", reason="no package", hint="")
    monkeypatch.setattr(running, "probe", lambda *_: lacking)
    ran, outputs = stage.run(graph, artifact, sample, sample)
    reference = np.load(graph.path("reference/000.npz"))["0"]
    for found in outputs:
        np.testing.assert_allclose(found[0], reference, rtol=1e-5, atol=1e-6)
    assert ran.ran_on == "device"
    monkeypatch.setenv("MAGICMIND_DOUBLE_FAULT", "oom")
    with pytest.raises(CompileFailed, match="out of memory"):
        stage.run(graph, artifact, sample)


def test_mm_run_says_no_shapes_so_sizes_must_be_fixed(sdk, stage, monkeypatch) -> None:
    sdk()
    graph = stage.graph(dense("N"), X, N="1..4")
    artifact = stage.compile(graph)
    monkeypatch.setattr(running, "probe", lambda *_: running.Missing(name="MagicMind", reason="no package", hint=""))
    refused = stage.run(graph, artifact, X)
    assert isinstance(refused, CannotRun) and "mm_run does not say the shape" in refused.reason


def test_an_artifact_of_another_release_is_run_with_a_warning_or_refused_by_it(sdk, stage, monkeypatch) -> None:
    sdk("1.6.0")
    graph = stage.graph(dense(), X)
    artifact = stage.compile(graph)
    sdk("1.7.0")
    with pytest.raises(CompileFailed, match=r"MagicMind 1\.6\.0"):
        stage.run(graph, artifact, X)


def test_the_scripts_of_a_bundle_need_nothing_of_this_program(sdk, stage) -> None:
    sdk()
    graph = stage.graph(dense(), X)
    artifact = stage.compile(graph)
    files = running.device_files(artifact.plan, graph)
    assert set(files) == {"magicmind_run.py", "magicmind_run.json"}
    assert json.loads(files["magicmind_run.json"])["samples"] == [["samples/000.npz", "measured/000.npz"]]
    assert "convert" not in {
        line.split()[1].partition(".")[0]
        for line in files["magicmind_run.py"].splitlines()
        if line.startswith(("import ", "from "))
    }
    onnx.checker.check_model(onnx.load(graph.path("model.onnx")))
    assert Path(artifact.folder, "model.mm").is_file()
