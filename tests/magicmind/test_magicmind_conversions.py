"""Whole conversions through the command line, with the stand-ins for Cambricon's SDK on PATH."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from magicmind_kit import dense, image, text


def first(document: dict[str, Any]) -> dict[str, Any]:
    return dict(document["targets"][0])


def notes(document: dict[str, Any]) -> str:
    target = first(document)
    return json.dumps([target.get("notes"), target["stages"], target.get("plan")])


def test_an_artifact_is_built_run_on_the_card_judged_and_published(sdk, convert) -> None:
    sdk()
    code, told = convert()
    target = first(told)
    assert (code, told["status"], target["status"]) == (0, "published", "published"), told
    assert (target["validation"]["ran_on"], target["validation"]["device"]) == ("device", "MLU370-X4")
    assert 0 < target["validation"]["outputs"][0]["rel_l2"] < 0.005
    assert target["toolchain"] == {"MagicMind": "1.7.0"}
    assert target["plan"]["argv"] == ["python3", "magicmind_job.py", "build", "magicmind_build.json"]


def test_ranges_layouts_and_64_bit_inputs_run_on_the_card(sdk, convert, tmp_path: Path) -> None:
    sdk()
    onnx.save(image("N", 6), tmp_path / "image.onnx")
    onnx.save(text("N"), tmp_path / "text.onnx")
    layouts = ("--option", "input_layout=NHWC", "--option", "output_layout=NHWC")
    code, told = convert("--dim", "N=1..4", *layouts, "--no-publish", model=tmp_path / "image.onnx")
    assert (code, first(told)["validation"]["passed"]) == (0, True), told
    rng = np.random.default_rng(1)
    for number, count in enumerate((2, 3)):
        (tmp_path / "samples").mkdir(exist_ok=True)
        ids = rng.integers(0, 10, (count, 5))
        np.savez(tmp_path / "samples" / f"{number}.npz", ids=ids, scale=np.float32(0.5 + number))
    given = ("--samples", tmp_path / "samples", "--dim", "N=1..4", "--no-publish")
    code, told = convert(*given, model=tmp_path / "text.onnx")
    assert (code, first(told)["validation"]["passed"]) == (0, True), told


def test_int8_is_calibrated_on_the_card_with_the_data_given_for_it(sdk, convert, tmp_path: Path) -> None:
    sdk()
    (tmp_path / "calibration").mkdir()
    rng = np.random.default_rng(5)
    for number in range(3):
        np.savez(tmp_path / "calibration" / f"{number}.npz", x=rng.normal(size=(2, 8)).astype(np.float32) * 4)
    code, told = convert("--precision", "int8", "--calibration", tmp_path / "calibration", "--gate", "rel_l2=0.2")
    target = first(told)
    assert (code, target["status"]) == (0, "published"), told
    assert 0.001 < target["validation"]["outputs"][0]["rel_l2"] < 0.2
    assert "calibrated on 3 samples" in notes(told)


def test_nodes_that_a_plan_keeps_are_set_to_float32(sdk, convert, tmp_path: Path) -> None:
    sdk()
    model = dense()
    for weight in model.graph.initializer:
        weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * 300, weight.name))
    onnx.save(model, tmp_path / "big.onnx")
    code, told = convert("--precision", "mixed", "--no-publish", model=tmp_path / "big.onnx")
    target = first(told)
    assert code == 0, told
    assert json.loads(target["plan"]["files"]["magicmind_build.json"])["keep"]
    assert target["validation"]["ran_on"] == "device"


def test_kept_nodes_that_the_network_calls_otherwise_end_the_build(sdk, convert, tmp_path: Path) -> None:
    sdk(fault="names")
    model = dense()
    for weight in model.graph.initializer:
        weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * 300, weight.name))
    onnx.save(model, tmp_path / "big.onnx")
    code, told = convert("--precision", "mixed", "--no-publish", model=tmp_path / "big.onnx")
    assert (code, first(told)["error"]["code"]) == (7, "CNV-7221"), told


def test_wrong_numbers_fail_at_the_gate(sdk, convert) -> None:
    sdk(fault="wrong")
    code, told = convert()
    assert (code, first(told)["status"]) == (8, "failed")
    assert first(told)["validation"]["outputs"][0]["norm_ratio"] == pytest.approx(2, rel=1e-3)


def test_a_builder_that_hangs_is_ended_with_its_children(sdk, convert, tmp_path: Path, monkeypatch) -> None:
    sdk(fault="hang")
    monkeypatch.setenv("MAGICMIND_DOUBLE_PIDS", str(tmp_path / "pids"))
    code, told = convert("--timeout", "4")
    assert (code, first(told)["error"]["code"]) == (10, "CNV-1001")
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 3
    for _ in range(50):
        if not [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
            return
        time.sleep(0.1)
    pytest.fail("a process is left after five seconds")


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("crash", "CNV-7002", "signal 6"),
        ("flood", "CNV-7002", "exit code 1"),
        ("exit0", "CNV-7002", "without its closing line"),
        ("nofile", "CNV-7002", "there is no file"),
    ],
)
def test_a_builder_that_fails_is_told_by_how_it_failed(sdk, convert, fault: str, code: str, words: str) -> None:
    sdk(fault=fault)
    exit_code, told = convert("--no-publish")
    error = first(told)["error"]
    assert (exit_code, error["code"]) == (7, code)
    assert words in error["message"]


@pytest.mark.parametrize("fault", ["fusion", "fusion-crash"])
def test_a_build_that_fails_is_tried_again_without_fusion_and_says_so(sdk, convert, fault: str) -> None:
    sdk(fault=fault)
    code, told = convert("--no-publish")
    assert code == 0, told
    assert "fusion off costs speed" in notes(told)
    code, told = convert("--no-publish", "--option", "fusion_retry=off")
    assert (code, first(told)["error"]["exit_code"]) == (7, 7)


@pytest.mark.parametrize(
    ("fault", "words"),
    [("noload", "deserialize failed"), ("sync", "100124"), ("oom", "out of memory")],
)
def test_an_artifact_that_does_not_run_is_a_failure_of_its_own(sdk, convert, fault: str, words: str) -> None:
    sdk(fault=fault)
    code, told = convert("--no-publish")
    assert (code, first(told)["error"]["code"]) == (7, "CNV-7005")
    assert words in first(told)["error"]["message"]


def test_an_operator_that_the_importer_refuses_is_named(sdk, convert, tmp_path: Path) -> None:
    sdk()
    model = dense()
    model.graph.node[1].op_type = "Elu"
    onnx.save(model, tmp_path / "elu.onnx")
    code, told = convert("--no-publish", model=tmp_path / "elu.onnx")
    assert code == 7, told
    assert "Elu" in first(told)["error"]["message"]


def test_without_a_card_the_artifact_is_built_and_judged_on_the_forecast(sdk, convert) -> None:
    sdk(card="")
    code, told = convert()
    target = first(told)
    assert (code, target["validation"]["ran_on"]) == (0, "forecast"), told


def test_int8_without_a_card_needs_a_remote(sdk, convert, tmp_path: Path) -> None:
    sdk(card="")
    np.savez(tmp_path / "x.npz", x=np.ones((2, 8), np.float32))
    wanted = ("--precision", "int8", "--calibration", tmp_path / "x.npz", "--no-publish", "--gate", "rel_l2=0.5")
    code, told = convert(*wanted)
    assert (code, first(told)["error"]["code"]) == (2, "CNV-2225"), told
    code, told = convert(*wanted, "--option", "rpc_server=10.0.0.7:9009")
    assert code == 0, told
    code, told = convert(*wanted, "--option", "rpc_server=10.0.0.7:1")
    assert (code, "can not connect" in first(told)["error"]["message"]) == (7, True)


def test_an_artifact_for_more_clusters_than_the_card_has_is_not_started(sdk, convert) -> None:
    sdk()
    code, told = convert("--option", "clusters=16", "--no-publish")
    assert (code, first(told)["validation"]["ran_on"]) == (0, "forecast")
    assert "16 clusters, and MLU370-X4 has fewer" in json.dumps(told)


def test_a_machine_without_the_python_package_runs_an_artifact_by_mm_run(sdk, convert, monkeypatch, tmp_path) -> None:
    from convert.backends.magicmind import running

    sdk()
    lacking = running.Missing(name="MagicMind", reason="no package", hint="")
    monkeypatch.setattr(running, "probe", lambda *_: lacking)
    onnx.save(image(), tmp_path / "image.onnx")
    wanted = ("--option", "input_layout=NHWC", "--option", "output_layout=NHWC", "--no-publish", "--no-cache")
    code, told = convert(*wanted, model=tmp_path / "image.onnx")
    assert (code, first(told)["validation"]["ran_on"], first(told)["validation"]["passed"]) == (0, "device", True), told
    monkeypatch.setenv("MAGICMIND_DOUBLE_FAULT", "oom")
    code, told = convert("--no-publish", "--no-cache")
    assert (code, first(told)["error"]["code"]) == (7, "CNV-7005")
