"""The handoff of the other vendors, and a graph that another target judges beforehand."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from handoff_kit import DOUBLES, Machine, bash, device_outputs, unpack

from artifacts.channels import Move, promote
from artifacts.errors import RegistryError
from convert.handoff.resume import ResumeRequest, resume_bundle
from convert.host import StageHost

MIGRAPHX = DOUBLES / "migraphx"


def rocm(folder: Path, *, arch: str = "gfx942", version: str = "2.15.0") -> dict[str, str]:
    """The environment of a machine with ROCm's MIGraphX, and a card of ``arch`` (empty: none)."""
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    programs = {"migraphx-driver": MIGRAPHX / "driver.py", "rocminfo": MIGRAPHX / "rocminfo.py", "python3": ""}
    for name, file in programs.items():
        program = folder / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {file} "$@"\n')
        program.chmod(0o755)
    (folder / "lib" / "migraphx.py").symlink_to(MIGRAPHX / "module.py")
    return {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "MIGRAPHX_DOUBLE_VERSION": version,
        "MIGRAPHX_DOUBLE_ARCH": arch,
    }


def same_as_fp16(reference: Path) -> list[np.ndarray]:
    with np.load(reference) as stored:
        return [stored[name].astype("f2").astype("f4") for name in stored.files]


def test_a_migraphx_bundle_is_compiled_on_the_card_and_published(machine: Machine, mlp: Path, tmp_path: Path) -> None:
    handed = machine.convert(mlp, "MI300X")
    assert (handed.status, handed.exit_code) == ("handoff", 6)
    assert handed.targets[0].handoff is not None
    folder = unpack(handed.targets[0].handoff["path"], tmp_path)
    without = bash(folder, {"PATH": "/usr/bin:/bin"})
    assert (without.returncode, "migraphx-driver is not on PATH" in without.stderr) == (6, True)
    ended = bash(folder, rocm(tmp_path / "rocm"))
    assert ended.returncode == 0, ended.stderr + (folder / "compile.log").read_text()
    device_outputs(folder, lambda artifact, feeds: same_as_fp16(folder / "samples" / "000.reference.npz"))
    resumed = resume_bundle(ResumeRequest(place=str(folder)), machine.settings, host=machine.host)
    assert resumed.error is None
    assert resumed.status == "published"
    assert resumed.targets[0].report is not None
    assert resumed.targets[0].report.ran_on == "device"
    assert resumed.targets[0].toolchain == {"MIGraphX": "2.15.0"}


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_without_outputs_of_the_card_a_migraphx_artifact_is_judged_on_the_forecast(
    machine: Machine, mlp: Path, tmp_path: Path, precision: str
) -> None:
    handed = machine.convert(mlp, "MI300X", precision=precision)
    assert handed.targets[0].handoff is not None and handed.targets[0].forecast is not None
    folder = unpack(handed.targets[0].handoff["path"], tmp_path)
    assert bash(folder, rocm(tmp_path / "rocm")).returncode == 0
    resumed = resume_bundle(ResumeRequest(place=str(folder)), machine.settings, host=machine.host)
    (target,) = resumed.targets
    assert (resumed.error, resumed.status, target.precision) == (None, "published", precision)
    assert target.report is not None and target.verdict is not None
    assert (target.report.ran_on, target.verdict.passed) == ("forecast", True)
    below_prod(machine)


@pytest.mark.parametrize(("card", "warned"), [("seen", False), ("not seen", True), ("", True)])
def test_an_artifact_that_was_compiled_where_no_card_was_seen_says_so(
    machine: Machine, mlp: Path, tmp_path: Path, card: str, warned: bool
) -> None:
    handed = machine.convert(mlp, "MI300X")
    assert handed.targets[0].handoff is not None
    folder = unpack(handed.targets[0].handoff["path"], tmp_path)
    assert bash(folder, rocm(tmp_path / "rocm")).returncode == 0
    told = json.loads((folder / "compiled.json").read_text())
    assert told["card"] == "seen"
    (folder / "compiled.json").write_text(json.dumps({**told, "card": card}))
    resumed = resume_bundle(ResumeRequest(place=str(folder)), machine.settings, host=machine.host)
    assert resumed.error is None
    notes = [note for run in resumed.targets[0].stages for note in run.notes if "no card was seen" in note.text]
    assert [note.level for note in notes] == ["warning"] * warned


def below_prod(machine: Machine) -> None:
    """What no device has spoken for goes to staging at most."""
    registry = Path(machine.settings.registry)
    promote(registry, "mlp:1.0.0", Move(channel="staging", actor="test", reason="looks right"))
    with pytest.raises(RegistryError) as refusal:
        promote(registry, "mlp:1.0.0", Move(channel="prod", actor="test", reason="looks right"))
    assert refusal.value.code == "CNV-9040"


def test_a_migraphx_bundle_refuses_another_card(machine: Machine, mlp: Path, tmp_path: Path) -> None:
    handed = machine.convert(mlp, "MI300X")
    assert handed.targets[0].handoff is not None
    folder = unpack(handed.targets[0].handoff["path"], tmp_path)
    ended = bash(folder, rocm(tmp_path / "rocm", arch="gfx90a"))
    assert (ended.returncode, "gfx90a" in ended.stderr) == (2, True)


def test_the_reference_target_judges_beforehand_and_never_marks_the_card(
    machine: Machine, mlp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in rocm(tmp_path / "rocm", arch="").items():
        monkeypatch.setenv(name, text)
    with StageHost(tmp_path / "workers.log") as machine.host:
        ended = machine.convert(mlp, "MI300X", gate_on="migraphx-ref")
        refused = machine.convert(mlp, "MI300X", gate_on="migraphx-ref", gate={"rel_l2": 0.0, "max_abs": 0.0})
    (target,) = ended.targets
    assert (ended.status, ended.exit_code) == ("handoff", 6), ended.error
    assert target.report is None
    assert target.rehearsal is not None
    assert (target.rehearsal["target"], target.rehearsal["ran_on"]) == ("migraphx-ref", "simulator")
    assert target.rehearsal["passed"] is True
    assert refused.exit_code == 8
    assert refused.targets[0].handoff is None


def test_without_its_toolchain_the_target_that_should_judge_is_named(machine: Machine, mlp: Path) -> None:
    ended = machine.convert(mlp, "Ascend910B", gate_on="migraphx-ref")
    assert ended.error is not None
    assert (ended.error["code"], ended.exit_code) == ("CNV-6004", 6)
    assert ended.error["hint"].startswith("leave --gate-on out")
    assert "carry" not in ended.error["hint"]
    assert ended.targets[0].handoff is None


def test_on_a_machine_with_the_toolkit_resume_compiles_by_itself(
    machine: Machine, bundle: Path, cann: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in cann.items():
        monkeypatch.setenv(name, text)
    with StageHost(tmp_path / "workers.log") as host:
        ended = resume_bundle(ResumeRequest(place=str(bundle)), machine.settings, host=host)
    assert ended.error is None
    assert ended.status == "published"
    (target,) = ended.targets
    assert (target.soc, target.report and target.report.ran_on) == ("Ascend910B3", "device")
    stages = [run.stage for run in target.stages]
    assert stages[-4:] == ["check", "compile", "validate", "publish"]
