"""``convert accept``: three stages, one report, kept by the registry and never overwritten."""

from __future__ import annotations

import json
import os
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from acceptance_kit import Ended, Site

from convert.acceptance.accept import faults_stage, precision_stage
from convert.acceptance.values import Accuracy, FaultResult
from convert.values import RanOn

Capture = pytest.CaptureFixture[str]
QUICK = ("--for", "1m", "--stress-runs", 6, "--runs", 3, "--workers", 1)


def accept(site: Site, place: object, capsys: Capture, *words: object, **more: str) -> Ended:
    return site("accept", place, *QUICK, *words, capsys=capsys, **more)


def states(said: Any) -> dict[str, str]:
    return {stage["stage"]: stage["state"] for stage in said["stages"]}


def faults(said: Any) -> dict[str, str]:
    return {one["fault"]: one["state"] for one in said["faults"]}


def attached(site: Site, tag: str) -> list[str]:
    """The files of an attachment, by its tag."""
    index = json.loads((site.folder / "registry" / "m" / "index.json").read_text())
    (digest,) = (
        one["digest"]
        for one in index["manifests"]
        if one.get("annotations", {}).get("org.opencontainers.image.ref.name") == tag
    )
    blob = site.folder / "registry" / "m" / "blobs" / "sha256" / digest.partition(":")[2]
    return [layer["annotations"]["org.opencontainers.image.title"] for layer in json.loads(blob.read_text())["layers"]]


def test_an_artifact_of_the_registry_is_accepted_and_its_reports_are_kept(cpu: Site, capsys: Capture) -> None:
    first = accept(cpu, "m:1.0.0", capsys, "--target", "cpu")
    assert first.code == 0, first.said["error"]
    assert states(first.said) == {"precision": "passed", "stress": "passed", "faults": "passed"}
    assert faults(first.said) == {
        "killed": "handled",
        "device-lost": "not-injected",
        "memory": "handled",
        "corrupt": "handled",
        "wrong-input": "handled",
    }
    assert first.said["soak"]["runs"] == 6 and first.said["ran_on"] == "device"
    kept = {path.name: path.read_bytes() for path in (cpu.folder / "out" / "acceptance").iterdir()}
    assert set(kept) == {"m-cpu-001.json", "m-cpu-001.html"}
    assert sorted(attached(cpu, first.said["attached"]["tag"])) == sorted(kept)
    second = accept(cpu, "m:1.0.0", capsys, "--target", "cpu")
    assert second.said["attached"]["tag"] != first.said["attached"]["tag"]
    assert {name: (cpu.folder / "out" / "acceptance" / name).read_bytes() for name in kept} == kept
    assert len(list((cpu.folder / "out" / "acceptance").iterdir())) == 4


class _Outside(HTMLParser):
    """What a page loads from elsewhere, or runs."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attributes if name in ("src", "href")]
        self.found += [tag] if tag == "script" else []

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_stands_alone_and_says_what_the_report_says(cpu: Site, tmp_path: Path, capsys: Capture) -> None:
    ended = accept(cpu, "out/m/cpu", capsys, "--out", tmp_path)
    assert ended.code == 0 and ended.said["attached"] is None
    page = _Outside()
    page.feed(Path(ended.said["report"]["html"]).read_text())
    assert set(page.found) == {"data:,", "#main"}
    text = " ".join(" ".join(page.text).split())
    for said in ("accepted", "precision", "wrong-input", "bit for bit", ended.said["sha256"], "CNV-8121"):
        assert said in text
    stored = json.loads(Path(ended.said["report"]["json"]).read_text())
    assert stored["stages"] == ended.said["stages"] and stored["passed"] is True


def test_without_reference_outputs_nothing_is_signed_off(
    cpu: Site, copied: Path, tmp_path: Path, capsys: Capture
) -> None:
    (copied / "samples.zip").unlink()
    ended = accept(cpu, copied, capsys, "--out", tmp_path)
    assert (ended.code, ended.said["error"]["code"]) == (8, "CNV-8126")
    assert states(ended.said) == {"precision": "not-judged", "stress": "passed", "faults": "passed"}
    assert (ended.said["accuracy"]["sampled"], ended.said["passed"]) == ("random", False)


def test_a_card_is_accepted_and_each_fault_ends_in_an_error(ascend: Site, tmp_path: Path, capsys: Capture) -> None:
    ended = accept(ascend, "out/m/Ascend910B", capsys, "--out", tmp_path)
    assert ended.code == 0, ended.said["error"]
    found = {one["fault"]: one for one in ended.said["faults"]}
    assert {one["state"] for one in found.values()} == {"handled"}
    assert {name: one["code"] for name, one in found.items()} == {
        "killed": "CNV-8122",
        "device-lost": "CNV-7005",
        "memory": "CNV-7005",
        "corrupt": "CNV-8121",
        "wrong-input": "CNV-7005",
    }
    assert all(one["next_run"].startswith("the outputs of the first run") for one in found.values())


def test_a_card_that_fails_leaves_a_report_too(ascend: Site, tmp_path: Path, capsys: Capture) -> None:
    ended = accept(ascend, "out/m/Ascend910B", capsys, "--out", tmp_path, ACL_DOUBLE_FAULT="execute")
    assert (ended.code, ended.said["ran_on"]) == (8, None)
    assert states(ended.said) == {"precision": "failed", "stress": "skipped", "faults": "skipped"}
    assert Path(ended.said["report"]["html"]).is_file()


def test_a_simulator_is_told_from_a_card(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from acceptance_kit import ROOT, tiny_model

    doubles, root = ROOT / "tests" / "doubles" / "migraphx", tmp_path / "rocm"
    (root / "bin").mkdir(parents=True)
    (root / "lib").mkdir()
    for name, words in {
        "migraphx-driver": f"{sys.executable} {doubles / 'driver.py'}",
        "python3": sys.executable,
    }.items():
        (root / "bin" / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (root / "bin" / name).chmod(0o755)
    (root / "lib" / "migraphx.py").symlink_to(doubles / "module.py")
    path = f"{root / 'bin'}:{os.environ['PATH']}"
    site = Site(tmp_path, {"PATH": path, "MIGRAPHX_DOUBLE_ARCH": "", "MIGRAPHX_DOUBLE_FAULT": ""})
    tiny_model(tmp_path / "m.onnx")
    assert site("m.onnx", "--target", "migraphx-ref", "--quiet", "--no-publish").code == 0
    ended = site("bench", "out/m/migraphx-ref", "--runs", 2, capsys=capsys)
    assert ended.code == 0, ended.said["error"]
    assert (ended.said["accuracy"]["ran_on"], ended.said["speed"]["clock"]) == ("simulator", "runtime")
    shutil.rmtree(root)
    gone = accept(site, "out/m/migraphx-ref", capsys)
    assert (gone.code, gone.said["error"]["code"]) == (6, "CNV-6002")
    assert not (tmp_path / "out" / "acceptance").exists()


def _fault(name: str, state: str, **more: str) -> FaultResult:
    return msgspec.convert({"fault": name, "done": "harm", "state": state, "said": "it ended", **more}, FaultResult)


def test_a_fault_that_is_not_handled_fails_its_stage_and_one_that_cannot_be_done_does_not() -> None:
    fine = faults_stage((_fault("killed", "handled"), _fault("device-lost", "not-injected")))
    assert (fine.state, fine.error) == ("passed", None)
    assert fine.said.startswith("1 of 2 faults") and fine.said.endswith("could not be injected here: device-lost")
    bad = faults_stage((_fault("killed", "handled"), _fault("corrupt", "failed", next_run="failed: no card")))
    assert bad.error is not None
    assert (bad.state, bad.error["code"], bad.error["exit_code"]) == ("failed", "CNV-8125", 8)
    assert bad.error["message"] == "corrupt: it ended, next run: failed: no card"


@pytest.mark.parametrize(("ran_on", "words"), [("simulator", "vendor's simulator"), ("host", "processor")])
def test_what_did_not_run_on_the_card_says_so(ran_on: RanOn, words: str) -> None:
    seen = Accuracy(samples=1, sampled="kept", ran_on=ran_on, judged_as="fp32")
    stage = precision_stage(seen, "m")
    assert stage.state == "not-judged" and words in stage.said and "the card itself has not spoken" in stage.said
