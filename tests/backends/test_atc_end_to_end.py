"""``convert MODEL --target Ascend910B`` on a machine with (a stand-in for) CANN, in every way that it ends."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from atc_kit import ROOT
from install import install_cann
from onnx import helper, numpy_helper, save


class Ended(NamedTuple):
    """How a command ended, its document, and its standard error."""

    code: int
    said: Any
    err: str

    @property
    def error(self) -> Any:
        return self.said["targets"][0]["error"]


class Site:
    """A machine with a toolkit, and one model; the stages before the compiler run once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = install_cann(folder / "cann", "8.5.0", soc="Ascend910B3")
        self.environment = {
            **os.environ,
            **environment,
            "PYTHONPATH": os.pathsep.join([str(ROOT), environment["PYTHONPATH"]]),
            "CONVERT_CACHE_DIR": str(folder / "cache"),
            "CONVERT_REGISTRY": str(folder / "registry"),
            "CONVERT_OUT": str(folder / "out"),
        }
        rng = np.random.default_rng(3)
        weight = numpy_helper.from_array(rng.standard_normal((8, 3)).astype("f4"), "w")
        values = [helper.make_tensor_value_info(name, 1, [4, last]) for name, last in (("x", 8), ("y", 3))]
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
            helper.make_node("Sigmoid", ["h"], ["y"], name="second"),
        ]
        graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weight])
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")

    def __call__(
        self, *args: str, fault: str = "", target: str = "Ascend910B", model: str = "m.onnx", **more: str
    ) -> Ended:
        process = subprocess.run(
            [sys.executable, "-m", "convert", model, "--target", target, "--json", *args],
            cwd=self.folder,
            env={**self.environment, **({"ATC_DOUBLE_FAULT": fault} if fault else {}), **more},
            capture_output=True,
            text=True,
            timeout=240,
        )
        return Ended(process.returncode, json.loads(process.stdout), process.stderr)

    def learn(self, hint: str, own: dict[str, str]) -> Any:
        """Run the command that a hint names; the one line that it learned."""
        (words,) = re.findall(r"`convert (ops learn [^`]+)`", hint)
        process = subprocess.run(
            [sys.executable, "-m", "convert", *shlex.split(words), "--json"],
            cwd=self.folder, env={**self.environment, **own}, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        (line,) = json.loads(process.stdout)["lines"]
        return line


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"))


def test_a_model_is_published_as_run_on_the_device(site: Site) -> None:
    ended = site()
    assert ended.code == 0, ended.err
    result = ended.said["targets"][0]
    assert (result["status"], result["soc"], result["backend"]) == ("published", "Ascend910B3", "atc")
    assert (result["validation"]["ran_on"], result["validation"]["device"]) == ("device", "Ascend910B3")
    blobs = [path.read_bytes() for path in (site.folder / "registry").rglob("blobs/sha256/*")]
    manifest = next(json.loads(blob) for blob in blobs if blob.startswith(b'{"backend":"atc"'))
    words = ["atc", "--framework=5", "--model=model/model.onnx", "--output=out/model", "--soc_version=Ascend910B3"]
    assert manifest["plan"][:5] == words
    assert str(site.folder) not in json.dumps(manifest)


def test_wrong_numbers_end_in_8_and_publish_nothing(site: Site) -> None:
    ended = site("--name", "wrong", "--no-cache", fault="wrong")
    assert (ended.code, ended.said["status"]) == (8, "failed")
    assert ended.said["targets"][0]["validation"]["ran_on"] == "device"
    assert not (site.folder / "registry" / "wrong").exists()


def test_an_artifact_that_fails_on_the_card_leaves_the_log_of_its_run(site: Site) -> None:
    broken = site("--name", "runs", "--no-publish", "--no-cache", ACL_DOUBLE_FAULT="execute")
    kept = site.folder / "out" / "runs" / "Ascend910B" / "failed"
    assert (broken.code, [path.name for path in kept.iterdir()]) == (7, ["device.log"])
    assert str(kept / "device.log") in broken.error["hint"]
    assert site("--name", "runs", "--no-publish").code == 0
    assert not kept.exists()


def test_a_hung_compiler_ends_in_10_and_leaves_no_process(site: Site) -> None:
    pids = site.folder / "pids"
    ended = site("--timeout", "8", "--option", "op_debug_level=0", fault="hang", ATC_DOUBLE_PIDS=str(pids))
    assert (ended.code, ended.error["code"]) == (10, "CNV-1001")
    left = [Path("/proc") / pid for pid in pids.read_text().split()]
    until = time.monotonic() + 5
    while any(path.exists() for path in left) and time.monotonic() < until:
        time.sleep(0.05)
    assert [path for path in left if path.exists()] == []


@pytest.mark.parametrize(
    ("fault", "code", "told"),
    [
        ("crash", "CNV-7", "atc"),
        ("exit0", "CNV-7", "second"),
        ("no_file", "CNV-7003", "its output model.om is missing"),
    ],
)
def test_a_compiler_that_fails_ends_in_7(site: Site, fault: str, code: str, told: str) -> None:
    ended = site("--option", "op_debug_level=1", fault=fault)
    assert ended.code == 7, ended.err
    assert ended.error["code"].startswith(code)
    assert told in ended.error["message"]
    assert ended.error["hint"]


def test_a_flood_of_output_costs_no_disk_and_no_success(site: Site) -> None:
    ended = site("--option", "op_debug_level=2", fault="flood", ATC_DOUBLE_FLOOD="120")
    assert ended.code == 0, ended.err
    logs = list((site.folder / "cache").rglob("compile.log"))
    assert max(log.stat().st_size for log in logs) < 8 << 20


def test_flags_that_this_version_does_not_take_end_in_2_with_all_of_them(site: Site) -> None:
    ended = site("--option", "jit_compile=1", "--option", "presicion_mode=fp16")
    assert (ended.code, ended.error["code"]) == (2, "CNV-2204")
    assert "jit_compile (known in >=9.2)" in ended.error["message"]
    assert "did you mean precision_mode?" in ended.error["message"]


def test_a_family_without_a_card_ends_in_2_with_its_members(site: Site) -> None:
    environment = install_cann(site.folder / "no-card", "8.5.0")
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment["PYTHONPATH"]])
    ended = site(**environment)
    assert (ended.code, ended.error["code"]) == (2, "CNV-2201")
    assert "Ascend910B1, Ascend910B2" in ended.error["hint"]


def test_without_cann_a_bundle_travels_to_the_card_and_comes_back_published(site: Site, tmp_path: Path) -> None:
    away = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "ASCEND_HOME_PATH": "", "ASCEND_TOOLKIT_HOME": ""}
    ended = site("--name", "carried", **away)
    assert (ended.code, ended.said["status"]) == (6, "handoff")
    with tarfile.open(ended.said["targets"][0]["handoff"]["path"]) as bundle:
        bundle.extractall(tmp_path, filter="data")
    folder = next(tmp_path.iterdir())
    for words in (["bash", "compile.sh"], ["python3", "device_run.py"]):
        there = subprocess.run(words, cwd=folder, env=site.environment, capture_output=True, text=True, timeout=120)
        assert there.returncode == 0, there.stderr
    resumed = subprocess.run(
        [sys.executable, "-m", "convert", "resume", str(folder), "--json"],
        cwd=site.folder,
        env={**site.environment, **away},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert resumed.returncode == 0, resumed.stderr
    result = json.loads(resumed.stdout)["targets"][0]
    assert (result["status"], result["soc"], result["validation"]["ran_on"]) == ("published", "Ascend910B3", "device")


def test_a_dry_run_prints_the_plan(site: Site) -> None:
    ended = site("--dry-run", "--soc", "Ascend910B1", "--precision", "fp32")
    assert ended.code == 0, ended.err
    assert "--precision_mode_v2=origin" in json.dumps(ended.said)


def test_a_conversion_asks_the_toolkit_beforehand_where_that_is_wanted(site: Site) -> None:
    ended = site("--option", "precheck=yes", "--no-publish")
    assert ended.code == 0, ended.err
    stages = [run["stage"] for run in ended.said["targets"][0]["stages"]]
    assert stages[stages.index("check") :][:3] == ["check", "precheck", "forecast"]
    assert ended.said["targets"][0]["status"] == "built"


def test_check_asks_the_toolkit_that_is_here(site: Site) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "convert", "check", "m.onnx", "--target", "Ascend910B", "--json"],
        cwd=site.folder,
        env=site.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    (target,) = json.loads(process.stdout)["targets"]
    assert [run["stage"] for run in target["stages"]][-1] == "precheck"
    assert target["support"]["supported"]


def test_an_operator_that_only_atc_refuses_is_learned_from_its_log(site: Site, tmp_path: Path) -> None:
    """The data have a kernel of Det on the AI CPU; the stand-in's plug-ins lack it, as a smaller installation may.

    ATC's refusal names one opset, so the graph is tried at another; refused there too, the operator is known to lack.
    """
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Det", ["a"], ["y"], name="the_det"),
    ]
    x, y = (helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [2, 3, 3]), ("y", [2])))
    graph = helper.make_graph(nodes, "g", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "det.onnx")
    own = {"CONVERT_OPS_OVERLAY": str(tmp_path / "site.csv"), "CONVERT_OUT": str(tmp_path / "out")}
    learned = []
    for _ in range(2):
        refused = site(model=str(tmp_path / "det.onnx"), **own)
        assert (refused.code, refused.error["code"]) == (7, "CNV-7261")
        assert "operator Det; node the_det" in refused.error["message"]
        learned.append(site.learn(refused.error["hint"], own))
    assert [row["opsets"] for row in learned] == ["17", "8-18"]
    assert {(row["op"], row["state"], row["versions"]) for row in learned} == {("Det", "refused", "==8.5.0")}
    known = site(model=str(tmp_path / "det.onnx"), **own)
    assert (known.code, known.error["code"]) == (5, "CNV-5001")
    (judged,) = known.said["targets"][0]["support"]["unsupported"]
    assert (judged["node"], judged["grade"]) == ("the_det", "site")
    assert "compile" not in [run["stage"] for run in known.said["targets"][0]["stages"]]
