"""Whole conversions through the command line, with the stand-ins for Cambricon's SDK on PATH."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from artifacts.cli import run_boundary
from convert.__main__ import cli


def first(document: dict[str, Any]) -> dict[str, Any]:
    return dict(document["targets"][0])


def test_an_artifact_is_built_run_on_the_card_judged_and_published(sdk, convert) -> None:
    sdk()
    code, told = convert()
    target = first(told)
    assert (code, told["status"], target["status"]) == (0, "published", "published"), told
    assert (target["validation"]["ran_on"], target["validation"]["device"]) == ("device", "MLU370-X4")
    assert 0 < target["validation"]["outputs"][0]["rel_l2"] < 0.005
    assert target["plan"]["needs"]["version"] == "1.7.0"
    assert target["plan"]["argv"] == ["python3", "magicmind_job.py", "build", "magicmind_build.json"]


def test_int8_is_calibrated_on_the_card_with_the_data_given_for_it(sdk, convert, tmp_path: Path) -> None:
    sdk()
    (tmp_path / "calibration").mkdir()
    rng = np.random.default_rng(5)
    for number in range(3):
        np.savez(tmp_path / "calibration" / f"{number}.npz", x=rng.normal(size=(2, 8)).astype(np.float32) * 4)
    given = ("--precision", "int8", "--calibration", tmp_path / "calibration", "--samples", tmp_path / "calibration")
    code, told = convert(*given, "--gate", "rel_l2=0.2", "--no-publish")
    target = first(told)
    assert (code, target["status"]) == (0, "built"), json.dumps(told)
    assert 0.001 < target["validation"]["outputs"][0]["rel_l2"] < 0.2
    assert "calibrated on 3 samples" in json.dumps(target["stages"])


def test_wrong_numbers_fail_at_the_gate(sdk, convert) -> None:
    sdk(fault="wrong")
    code, told = convert()
    assert (code, first(told)["status"]) == (8, "failed")
    assert first(told)["validation"]["outputs"][0]["norm_ratio"] == pytest.approx(2, rel=1e-3)


def test_a_builder_that_hangs_is_ended_with_its_children(sdk, convert, tmp_path: Path, monkeypatch) -> None:
    sdk(fault="hang")
    monkeypatch.setenv("MAGICMIND_DOUBLE_PIDS", str(tmp_path / "pids"))
    code, told = convert("--timeout", "8")
    assert (code, first(told)["error"]["code"]) == (10, "CNV-1001")
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 3
    for _ in range(50):
        if not [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
            return
        time.sleep(0.1)
    pytest.fail("a process is left after five seconds")


def test_a_builder_that_crashes_is_a_failure_of_the_compiler(sdk, convert) -> None:
    sdk(fault="crash")
    code, told = convert()
    assert (code, first(told)["error"]["code"]) == (7, "CNV-7002")
    assert "signal 6" in first(told)["error"]["message"]


def test_without_a_card_the_artifact_is_built_and_judged_on_the_forecast(sdk, convert) -> None:
    sdk(card="")
    code, told = convert("--no-publish")
    assert (code, first(told)["validation"]["ran_on"]) == (0, "forecast"), told


def test_an_operator_that_only_the_builder_refuses_is_learned_from_its_log(
    sdk, convert, tmp_path: Path, monkeypatch, capsys
) -> None:
    """Nothing public tells whether MagicMind has Det, so `check` lets it through."""
    sdk()
    monkeypatch.setenv("CONVERT_OPS_OVERLAY", str(tmp_path / "site.csv"))
    onnx.save(with_det(), tmp_path / "tiny.onnx")
    code, told = convert("--opset", "11")
    error = first(told)["error"]
    assert (code, error["code"]) == (7, "CNV-7261"), error
    assert "Det" in error["message"]
    assert "the_det" in error["message"]
    (words,) = re.findall(r"`convert (ops learn [^`]+)`", error["hint"])
    assert run_boundary(cli, [*shlex.split(words), "--json"], prog="convert", usage_code="CNV-2000") == 0
    assert json.loads(capsys.readouterr().out)["vendor"] == "cambricon"
    code, told = convert("--opset", "11")
    assert (code, first(told)["error"]["code"]) == (5, "CNV-5001")
    assert [(one["node"], one["grade"]) for one in first(told)["support"]["unsupported"]] == [("the_det", "site")]
    assert "compile" not in [run["stage"] for run in first(told)["stages"]]


def with_det() -> onnx.ModelProto:
    """A graph with Det at opset 11."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Det", ["a"], ["y"], name="the_det"),
    ]
    x, y = (helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [2, 3, 3]), ("y", [2])))
    graph = helper.make_graph(nodes, "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
