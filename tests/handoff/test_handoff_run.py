"""Without a toolkit a conversion ends in a bundle; compiled and measured elsewhere, it ends published."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from handoff_kit import Machine, bash, install_cann, members, pack, reseal, unpack

from artifacts.channels import Move, promote
from artifacts.errors import RegistryError
from convert.handoff.bundle import Bundle
from convert.handoff.resume import ResumeRequest, resume_bundle
from convert.request import Conversion, as_json

PREFLIGHT = ["load", "export", "simplify", "adapt", "check", "forecast"]


def resume(machine: Machine, place: Path, **options: object) -> Conversion:
    return resume_bundle(ResumeRequest(place=str(place), **options), machine.settings, host=machine.host)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------- the bundle


def test_without_the_toolkit_the_run_ends_in_exit_6_with_the_whole_preflight_and_a_bundle(handed: Conversion) -> None:
    assert (handed.status, handed.exit_code) == ("handoff", 6)
    (target,) = handed.targets
    assert [run.stage for run in target.stages] == PREFLIGHT
    assert target.support is not None and target.support.supported
    assert target.forecast is not None and target.forecast.holds
    document = as_json(handed)["targets"][0]
    assert document["handoff"].keys() >= {"path", "sha256", "needs"}
    assert document["handoff"]["needs"]["toolchain"] == "CANN"
    assert document["error"]["code"] == "CNV-6001"
    assert "Ascend910B4-1" in document["error"]["hint"]
    assert Path(target.folder, "report.html").is_file()


def test_the_bundle_is_one_folder_laid_out_as_promised(handed: Conversion, bundle: Path) -> None:
    assert bundle.name == "mlp-Ascend910B.handoff"
    names = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*")}
    assert names == {
        "bundle.json", "compile.sh", "verify.py", "README.md", "out", "measured",
        "model", "model/model.onnx", "samples", "samples/000.npz", "samples/000.reference.npz",
        "device_run.py", "device_job.json",
    }  # fmt: skip
    document = json.loads((bundle / "bundle.json").read_text())
    assert document["schema"] == 1
    assert {entry["name"] for entry in document["files"]} == {
        name for name in names if (bundle / name).is_file() and name != "bundle.json"
    }


def test_equal_inputs_give_an_equal_bundle_without_clock_owner_or_path(
    handed: Conversion, machine: Machine, mlp: Path, tmp_path: Path
) -> None:
    again = machine.convert(mlp, "Ascend910B", use_cache=False)
    first, second = (conversion.targets[0].handoff for conversion in (handed, again))
    assert first is not None and second is not None
    assert first["sha256"] == second["sha256"]
    assert Path(second["path"] + ".sha256").read_text().split()[0] == second["sha256"].removeprefix("sha256:")
    for member in members(Path(second["path"])):
        assert (member.mtime, member.uid, member.uname) == (0, 0, "")
        assert member.isreg() or member.isdir()
    content = Path(second["path"]).read_bytes()
    for place in (tmp_path, Path.home(), Path(machine.settings.cache_dir), mlp.parent):
        assert str(place).encode() not in content


def test_a_repeat_takes_all_from_the_cache_and_leaves_the_archive_alone(
    handed: Conversion, bare: Machine, mlp: Path
) -> None:
    assert handed.targets[0].handoff is not None
    path = Path(handed.targets[0].handoff["path"])
    before = path.stat().st_mtime_ns
    again = bare.convert(mlp, "Ascend910B")
    assert all(run.cached for run in again.targets[0].stages)
    assert again.targets[0].handoff == handed.targets[0].handoff
    assert path.stat().st_mtime_ns == before
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert bare.convert(mlp, "Ascend910B").targets[0].handoff == handed.targets[0].handoff


# --------------------------------------------------------------------------------------------------------- compile.sh


def test_the_script_takes_the_soc_of_the_machines_card(compiled: Path) -> None:
    assert json.loads((compiled / "compiled.json").read_text()) == {
        "schema": 1, "soc": "Ascend910B3", "version": "8.5.0", "card": "",
    }  # fmt: skip
    assert (compiled / "out" / "model.om").stat().st_size > 0


def test_the_script_takes_the_soc_that_it_is_told(bundle: Path, cann: dict[str, str]) -> None:
    assert bash(bundle, {**cann, "SOC": "Ascend910B4"}).returncode == 0
    assert json.loads((bundle / "compiled.json").read_text())["soc"] == "Ascend910B4"


@pytest.mark.parametrize(
    ("soc", "card", "said"),
    [
        ("", "", "no card of this machine tells"),
        ("", "Ascend310P3", "the card here is Ascend310P3"),
        ("Ascend910B", "", "SOC=Ascend910B is no part of Ascend910B"),
        ("x; touch oops", "", "is no part of Ascend910B"),
    ],
)
def test_without_a_fitting_soc_the_script_refuses_and_names_the_parts(
    bundle: Path, tmp_path: Path, soc: str, card: str, said: str
) -> None:
    machine = install_cann(tmp_path / "cann", "8.5.0", soc=card)
    ended = bash(bundle, {**machine, **({"SOC": soc} if soc else {})})
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Ascend910B1 Ascend910B2" in ended.stderr
    assert not (bundle / "compiled.json").exists()


@pytest.mark.parametrize(("version", "taken"), [("8.5.2", True), ("8.1.RC1", False), ("9.0.0", False)])
def test_another_toolkit_version_than_planned_is_refused_unless_asked_for(
    bundle: Path, tmp_path: Path, version: str, taken: bool
) -> None:
    machine = install_cann(tmp_path / "cann", version, soc="Ascend910B3")
    ended = bash(bundle, machine)
    assert ended.returncode == (0 if taken else 6), ended.stderr
    if not taken:
        assert f"--toolchain-version {version}" in ended.stderr
        assert "going on as asked" in bash(bundle, {**machine, "ANY_VERSION": "1"}).stderr


def test_without_the_toolkit_the_script_says_what_is_needed(bundle: Path) -> None:
    ended = bash(bundle, {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"})
    assert ended.returncode == 6
    assert "atc is not on PATH" in ended.stderr
    assert "CANN toolkit" in ended.stderr


def test_damaged_files_are_found_before_anything_is_compiled(bundle: Path, cann: dict[str, str]) -> None:
    (bundle / "model" / "model.onnx").write_bytes(b"something else")
    ended = bash(bundle, {**cann, "SOC": "Ascend910B3"})
    assert ended.returncode == 2
    assert "model/model.onnx: FAILED" in ended.stderr + ended.stdout


@pytest.mark.parametrize("fault", ["crash", "no_file", "empty"])
def test_a_compiler_that_fails_or_leaves_nothing_ends_in_7_with_its_log(
    bundle: Path, cann: dict[str, str], fault: str
) -> None:
    ended = bash(bundle, {**cann, "SOC": "Ascend910B3", "ATC_DOUBLE_FAULT": fault})
    assert ended.returncode == 7, ended.stderr
    assert (bundle / "compile.log").is_file()
    assert not (bundle / "compiled.json").exists()


# ------------------------------------------------------------------------------------------------------------- resume


def test_with_the_outputs_of_the_device_it_ends_published_and_may_go_to_prod(machine: Machine, measured: Path) -> None:
    ended = resume(machine, measured)
    assert (ended.status, ended.exit_code) == ("published", 0)
    (target,) = ended.targets
    assert (target.soc, target.report and target.report.ran_on) == ("Ascend910B3", "device")
    assert target.toolchain == {"CANN": "8.5.0"}
    assert [run.stage for run in target.stages] == [*PREFLIGHT, "compile", "validate", "publish"]
    moved = promote(Path(machine.settings.registry), "mlp:1.0.0", Move(channel="prod", actor="test", reason="measured"))
    assert moved.version == "1.0.0"


def test_without_them_the_forecast_judges_and_prod_is_refused(machine: Machine, compiled: Path) -> None:
    ended = resume(machine, compiled)
    assert (ended.status, ended.exit_code) == ("published", 0)
    assert ended.targets[0].report is not None
    assert ended.targets[0].report.ran_on == "forecast"
    assert any("has not spoken yet" in note.text for note in ended.targets[0].report.notes)
    root = Path(machine.settings.registry)
    promote(root, "mlp:1.0.0", Move(channel="staging", actor="test", reason="looks well"))
    with pytest.raises(RegistryError) as refusal:
        promote(root, "mlp:1.0.0", Move(channel="prod", actor="test", reason="in a hurry"))
    assert refusal.value.code == "CNV-9040"


def test_without_a_forecast_either_it_stays_built_and_says_so(machine: Machine, compiled: Path) -> None:
    reseal(compiled, forecast=None)
    ended = resume(machine, compiled)
    assert (ended.status, ended.exit_code) == ("built", 0)
    assert ended.targets[0].artifact is not None
    assert ended.targets[0].verdict is None
    assert "not judged" in ended.targets[0].notes[-1].text
    assert not Path(machine.settings.registry).exists()


def test_a_tar_of_the_folder_and_the_pieces_that_came_back_alone_are_resumed_alike(
    machine: Machine, measured: Path, handed: Conversion, tmp_path: Path
) -> None:
    assert handed.targets[0].handoff is not None
    whole = resume(machine, pack(measured, tmp_path / "back.tar"))
    pieces = resume(
        machine,
        Path(handed.targets[0].handoff["path"]),
        compiled=str(measured / "out" / "model.om"),
        measured=str(measured / "measured"),
        soc="Ascend910B3",
    )
    assert whole.status == pieces.status == "published"
    assert whole.targets[0].artifact is not None and pieces.targets[0].artifact is not None
    assert whole.targets[0].artifact.sha256 == pieces.targets[0].artifact.sha256
    assert whole.targets[0].report is not None and pieces.targets[0].report is not None
    assert whole.targets[0].report.outputs == pieces.targets[0].report.outputs


def test_pieces_without_their_soc_are_refused_with_the_parts(
    machine: Machine, handed: Conversion, compiled: Path
) -> None:
    assert handed.targets[0].handoff is not None
    ended = resume(machine, Path(handed.targets[0].handoff["path"]), compiled=str(compiled / "out" / "model.om"))
    assert ended.error is not None
    assert (ended.error["code"], ended.exit_code) == ("CNV-2310", 2)
    assert "Ascend910B2C" in ended.error["hint"]


def test_another_soc_than_the_script_noted_is_refused(machine: Machine, compiled: Path) -> None:
    ended = resume(machine, compiled, soc="Ascend910B1")
    assert ended.error is not None
    assert ended.error["code"] == "CNV-2307"


def test_wrong_numbers_fail_the_gate_and_publish_nothing(machine: Machine, measured: Path) -> None:
    with np.load(measured / "measured" / "000.npz") as stored:
        doubled = {name: 2 * stored[name] for name in stored.files}
    np.savez(measured / "measured" / "000.npz", **doubled)
    ended = resume(machine, measured)
    assert (ended.status, ended.exit_code) == ("failed", 8)
    assert not Path(machine.settings.registry).exists()
    assert resume(machine, measured, gate={"rel_l2": 2.0, "norm_ratio": 2.0, "worst_row_cosine": 0.5}).error is None


def test_outputs_by_name_and_by_numpys_own_names_are_taken(machine: Machine, measured: Path) -> None:
    path = measured / "measured" / "000.npz"
    with np.load(path) as stored:
        output = stored["0"]
    for named in ({"y": output}, {"arr_0": output}):
        np.savez(path, **named)
        assert resume(machine, measured, publish=False).status == "built"
    np.savez(path, logits=output)
    ended = resume(machine, measured)
    assert ended.error is not None
    assert ended.error["code"] == "CNV-2305"
    assert "'logits'" in ended.error["message"]


def test_outputs_that_unpack_to_far_more_than_their_reference_are_refused(machine: Machine, measured: Path) -> None:
    np.savez_compressed(measured / "measured" / "000.npz", **{"0": np.zeros(1 << 23)})
    ended = resume(machine, measured)
    assert ended.error is not None
    assert ended.error["code"] == "CNV-2305"
    assert "unpacks to" in ended.error["message"]


def test_a_bundle_that_was_never_compiled_says_how(machine: Machine, bundle: Path) -> None:
    ended = resume(machine, bundle)
    assert ended.error is not None
    assert (ended.error["code"], ended.exit_code) == ("CNV-6003", 6)
    assert "bash compile.sh" in ended.error["hint"]


def test_the_log_of_a_failed_compile_is_explained_at_resume(
    machine: Machine, bundle: Path, cann: dict[str, str]
) -> None:
    bash(bundle, {**cann, "SOC": "Ascend910B3", "ATC_DOUBLE_FAULT": "crash"})
    ended = resume(machine, bundle)
    assert ended.exit_code == 7
    assert ended.error is not None
    assert "compiled elsewhere, and failed" in ended.error["message"]


def test_an_empty_or_missing_compiled_file_is_refused(machine: Machine, compiled: Path, tmp_path: Path) -> None:
    (compiled / "out" / "model.om").write_bytes(b"")
    for ended in (resume(machine, compiled), resume(machine, compiled, compiled=str(tmp_path / "nowhere.om"))):
        assert ended.error is not None
        assert ended.error["code"] == "CNV-2306"


def test_the_backends_own_script_measures_on_the_device(machine: Machine, compiled: Path, cann: dict[str, str]) -> None:
    words = ["python3", str(compiled / "device_run.py")]
    ended = subprocess.run(words, cwd=compiled, env={**os.environ, **cann}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert (compiled / "measured" / "000.npz").is_file()
    resumed = resume(machine, compiled)
    assert (resumed.status, resumed.targets[0].report and resumed.targets[0].report.ran_on) == ("published", "device")


# ---------------------------------------------------------------------------------------------------------- verify.py


def test_the_script_for_the_device_compares_with_numpy_alone(measured: Path) -> None:
    def verify(*arguments: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, str(measured / "verify.py"), *arguments]
        return subprocess.run(words, cwd="/", capture_output=True, text=True, check=False)

    told = verify()
    assert (told.returncode, "within the gate of fp16" in told.stdout) == (0, True)
    assert "np.savez" in verify("--how").stdout
    with np.load(measured / "measured" / "000.npz") as stored:
        doubled = {name: 2 * stored[name] for name in stored.files}
    np.savez(measured / "measured" / "000.npz", **doubled)
    assert verify().returncode == 8
    (measured / "measured" / "000.npz").unlink()
    assert verify().returncode == 2


def test_the_metrics_of_a_bundle_are_named_and_never_run(machine: Machine, compiled: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\ndef metric(a, b): return 1.0\n")
    reseal(compiled, metrics=(f"{trap}:metric",))
    ended = resume(machine, compiled)
    assert not (tmp_path / "sprung").exists()
    assert "metrics are not taken from a bundle" in ended.targets[0].notes[0].text


def test_what_a_bundle_plans_is_never_executed(machine: Machine, bundle: Path, tmp_path: Path) -> None:
    plan = msgspec.json.decode((bundle / "bundle.json").read_bytes(), type=Bundle).plan
    reseal(bundle, plan=msgspec.structs.replace(plan, argv=("touch", str(tmp_path / "sprung"))))
    assert resume(machine, bundle).exit_code == 6
    assert not (tmp_path / "sprung").exists()


def test_the_bundle_of_an_exact_part_needs_no_soc(
    machine: Machine, mlp: Path, tmp_path: Path, cann: dict[str, str]
) -> None:
    ended = machine.convert(mlp, "Ascend910B", soc="Ascend910B4")
    assert ended.targets[0].handoff is not None
    assert ended.targets[0].soc == "Ascend910B4"
    folder = unpack(ended.targets[0].handoff["path"], tmp_path)
    assert bash(folder, cann).returncode == 0
    assert resume(machine, folder).targets[0].soc == "Ascend910B4"
