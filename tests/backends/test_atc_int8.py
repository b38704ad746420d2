"""int8 for Ascend: AMCT calibrates on the data of the run, atc compiles what it leaves, here and from a bundle."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from atc_kit import ROOT, dims_of, options_for, plan_for
from install import install_cann
from onnx import helper, numpy_helper

from convert.arrays import save_npz
from convert.backends.atc import AtcBackend
from convert.backends.atc.amct import write_data
from convert.backends.base import Compiled, Missing, Ran, RunRequest
from convert.errors import UsageError
from convert.stages.compile import prepare_folder, runner_for
from convert.values import CompiledArtifact, OnnxGraph
from op_registry.targets import find_target

GOLDEN = ROOT / "tests" / "golden" / "plans" / "atc-int8"


def conv_model(batch: object = 1, opset: int = 17, extra: bool = False) -> onnx.ModelProto:
    """Two convolutions; with ``extra`` a second input of int64 that is added at the end."""
    rng = np.random.default_rng(5)
    weights = [
        numpy_helper.from_array((rng.standard_normal((4, 3, 3, 3)) / 5).astype("f4"), "w1"),
        numpy_helper.from_array((rng.standard_normal((2, 4, 1, 1)) / 2).astype("f4"), "w2"),
    ]
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["h"], name="/body/conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"], name="/body/relu"),
        helper.make_node("Conv", ["r", "w2"], ["z" if extra else "y"], name="/head/conv"),
    ]
    inputs = [helper.make_tensor_value_info("image", 1, [batch, 3, 8, 8])]
    if extra:
        inputs.append(helper.make_tensor_value_info("shift", 7, [1]))
        nodes.append(helper.make_node("Cast", ["shift"], ["s"], name="cast", to=1))
        nodes.append(helper.make_node("Add", ["z", "s"], ["y"], name="add"))
    outputs = [helper.make_tensor_value_info("y", 1, [batch, 2, 8, 8])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def samples(count: int = 3, **more: np.ndarray) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(6)
    return [{"image": rng.standard_normal((1, 3, 8, 8)).astype("f4"), **more} for _ in range(count)]


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A CANN of stand-ins, with AMCT or without."""

    def make(*, amct: bool = True, **more: str) -> None:
        environment = install_cann(tmp_path / "cann", "8.5.0", soc="Ascend310P3", amct=amct)
        for name, value in {**environment, **more}.items():
            monkeypatch.setenv(name, value)

    return make


def compiled(graph: OnnxGraph, folder: Path, **more: object) -> tuple[Compiled, CompiledArtifact]:
    backend, target = AtcBackend(), find_target("Ascend310P3")
    options = options_for("Ascend310P3", "int8", **more)
    found = backend.probe(target, os.environ)
    assert not isinstance(found, Missing), found
    plan = backend.plan(graph, target, options, found)
    folder.mkdir()
    prepare_folder(graph, plan, folder)
    done = backend.compile(plan, graph, folder, runner_for(60.0, folder))
    return done, CompiledArtifact(
        parent=graph.digest,
        target="Ascend310P3",
        soc="Ascend310P3",
        backend="atc",
        precision="int8",
        plan=plan,
        folder=str(folder / "out"),
    )


def with_calibration(graph: OnnxGraph, feeds: list[dict[str, np.ndarray]]) -> OnnxGraph:
    from artifacts.digest import file_entries

    names = [f"calibration/{number:03d}.npz" for number in range(len(feeds))]
    for name, feed in zip(names, feeds, strict=True):
        save_npz(graph.path(name), feed)
    files = (*graph.files, *file_entries(Path(graph.folder), names))
    return msgspec.structs.replace(graph, calibration_count=len(feeds), files=tuple(sorted(files)))


@pytest.mark.parametrize("name", ["samples", "kept_nodes_and_two_inputs", "own_configuration"])
def test_a_plan_of_int8_is_as_before(name, graph_of, pytestconfig):
    two = name == "kept_nodes_and_two_inputs"
    graph = graph_of(conv_model(extra=two), *samples(2, **({"shift": np.array([3])} if two else {})))
    more = {"kept_nodes_and_two_inputs": {"keep": ("/head/conv",)}, "own_configuration": {
        "options": {"calibration_config": "batch_num: 2\nactivation_offset: false"}}}.get(name, {})  # fmt: skip
    plan = plan_for(graph, options_for("Ascend310P", "int8", **more), "8.5.0")
    text = json.dumps(msgspec.to_builtins(plan), indent=2, sort_keys=True) + "\n"
    path = GOLDEN / f"{name}.json"
    if pytestconfig.getoption("--update-goldens"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


def test_the_graph_is_calibrated_compiled_and_near_the_reference(site, graph_of, tmp_path):
    site()
    feeds = samples()
    graph = with_calibration(graph_of(conv_model(), feeds[0]), feeds)
    done, artifact = compiled(graph, tmp_path / "work")
    assert done.failure == ""
    assert done.files == ("model.om",)
    folder = tmp_path / "work"
    assert "saved in amct/model_deploy_model.onnx" in (folder / "calibrate.log").read_text()
    assert not (folder / "amct").exists()
    run = tmp_path / "run"
    run.mkdir()
    files = (msgspec.structs.replace(graph.files[0], name="model.om"),)
    request = RunRequest(artifact=msgspec.structs.replace(artifact, files=files), graph=graph, folder=run)
    answer = AtcBackend().run(request, feeds[:1], runner_for(60.0, run))
    assert isinstance(answer, Ran), answer
    from convert.arrays import load_npz

    reference = load_npz(graph.path("reference/000.npz"))["0"]
    error = np.linalg.norm(next(answer.outputs)[0] - reference) / np.linalg.norm(reference)
    assert 0 < error < 0.05


def test_nodes_that_stay_in_float_are_left_out_of_the_calibration(site, graph_of, tmp_path):
    site()
    graph = graph_of(conv_model(extra=True), *samples(2, shift=np.array([3])))
    done, artifact = compiled(graph, tmp_path / "work", keep=("/head/conv",))
    assert done.failure == ""
    assert artifact.plan.files["amct.cfg"] == 'batch_num: 2\nskip_layers: "/head/conv"\n'
    content = (tmp_path / "work" / "out" / "model.om").read_bytes()
    assert b"/body/conv_quant" in content
    assert b"/head/conv_quant" not in content


@pytest.mark.parametrize(
    ("fault", "told"),
    [("fail", "ended with exit code 1"), ("no_file", "ended with exit code 7")],
)
def test_a_calibration_that_fails_ends_the_compilation_with_its_log(site, graph_of, tmp_path, fault, told):
    site(AMCT_DOUBLE_FAULT=fault)
    done, _ = compiled(graph_of(conv_model(), *samples()), tmp_path / "work")
    assert told in done.failure
    assert (tmp_path / "work" / "compile.log").is_file()
    assert not (tmp_path / "work" / "out" / "model.om").exists()


def test_a_toolkit_without_amct_lacks_it_for_int8_only(site, graph_of):
    site(amct=False)
    backend, graph = AtcBackend(), graph_of(conv_model(), *samples())
    found = backend.probe(find_target("Ascend310P3"), os.environ)
    assert not isinstance(found, Missing)
    lacking = backend.lacks(graph, options_for("Ascend310P3", "int8"), found)
    assert lacking is not None
    assert (lacking.name, lacking.version) == ("AMCT", "8.5.0")
    assert backend.lacks(graph, options_for("Ascend310P3", "fp16"), found) is None
    quantized = msgspec.structs.replace(graph, ops={**graph.ops, "AscendQuant": 1})
    assert backend.lacks(quantized, options_for("Ascend310P3", "int8"), found) is None


def test_data_is_written_as_raw_numbers_in_a_folder_for_each_input(graph_of, tmp_path):
    feeds = samples(2, shift=np.array([7]))
    graph = graph_of(conv_model(extra=True), *feeds)
    write_data(graph, tmp_path)
    written = sorted(str(path.relative_to(tmp_path / "amct")) for path in tmp_path.rglob("*.bin"))
    assert written == ["data/0/000.bin", "data/0/001.bin", "data/1/000.bin", "data/1/001.bin"]
    for number, feed in enumerate(feeds):
        assert (tmp_path / f"amct/data/0/{number:03d}.bin").read_bytes() == feed["image"].tobytes()
        assert (tmp_path / f"amct/data/1/{number:03d}.bin").read_bytes() == feed["shift"].tobytes()


def test_data_that_does_not_fit_the_artifact_is_refused_with_its_files(graph_of, tmp_path):
    graph = with_calibration(
        graph_of(conv_model(), *samples(1)),
        [
            {"image": np.zeros((2, 3, 8, 8), "f4")},
            {"image": np.zeros((1, 3, 8, 8), "f8")},
            {"image": np.asfortranarray(np.zeros((1, 3, 8, 8), "f4"))},
            {"picture": np.zeros((1, 3, 8, 8), "f4")},
        ],
    )
    with pytest.raises(UsageError) as error:
        write_data(graph, tmp_path)
    assert error.value.code == "CNV-2288"
    for told in (
        "000.npz: image is float32[2, 3, 8, 8]",
        "001.npz: image is float64",
        "002.npz",
        "003.npz: image can't",
    ):
        assert told in error.value.message


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"ops": {"Relu": 1}}, "it has none of AveragePool, Conv"),
        ({"ops": {"Conv": 1, "QuantizeLinear": 2}}, "quantized in ONNX's own way"),
        ({"files": ()}, "neither calibration inputs nor samples"),
    ],
)
def test_what_amct_can_not_quantize_is_told(graph_of, change, told):
    graph = msgspec.structs.replace(graph_of(conv_model(), *samples(1)), **change)
    with pytest.raises(UsageError, match=told) as error:
        plan_for(graph, options_for("Ascend310P3", "int8"), "8.5.0")
    assert error.value.code == "CNV-2206"


@pytest.mark.parametrize("sizes", [(1, 4), range(1, 9)])
def test_int8_takes_one_size(graph_of, sizes):
    graph = msgspec.structs.replace(graph_of(conv_model("N"), *samples(1)), dims=dims_of(N=sizes))
    with pytest.raises(UsageError, match="an int8 graph can't have"):
        plan_for(graph, options_for("Ascend310P3", "int8"), "8.5.0")


def test_a_configuration_of_amct_means_nothing_without_int8(graph_of):
    options = options_for("Ascend310P3", "fp16", options={"calibration_config": "batch_num: 1"})
    with pytest.raises(UsageError, match="calibration_config is for int8"):
        plan_for(graph_of(conv_model(), *samples(1)), options, "8.5.0")
