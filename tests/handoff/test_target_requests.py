"""Options that mean nothing for a target are refused before anything runs; what they mean otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from handoff_kit import Machine

from convert.__main__ import cli
from convert.backends.base import Missing, Toolchain
from convert.errors import UsageError
from convert.request import Request
from convert.settings import Settings
from convert.target_options import (
    check_request,
    judged_version,
    parse_preprocess,
    part_of,
    same_version,
    soc_asked,
    version_asked,
)
from convert.values import LoadOptions
from op_registry.targets import find_target


def request(*targets: str, **options: object) -> Request:
    return Request(load=LoadOptions(path="/m.onnx"), targets=targets, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "soc", "part"),
    [
        ("Ascend910B", "ascend910b3", "Ascend910B3"),
        ("Ascend910B", "Ascend910B", "Ascend910B"),
        ("Ascend910B", "Ascend310P3", ""),
        ("Ascend310P3", "Ascend310P3", "Ascend310P3"),
        ("Ascend310P3", "Ascend310P1", ""),
        ("cpu", "Ascend910B3", ""),
    ],
)
def test_a_soc_is_a_part_of_its_target_or_nothing(target: str, soc: str, part: str) -> None:
    assert part_of(find_target(target), soc) == part


@pytest.mark.parametrize(
    ("targets", "options", "code"),
    [
        (("cpu",), {"soc": "Ascend910B3"}, "CNV-2307"),
        (("Ascend310P3",), {"soc": "Ascend910B3"}, "CNV-2307"),
        (("cpu",), {"toolchain_version": "8.5.0"}, "CNV-2308"),
        (("Ascend910B",), {"toolchain_version": "newest"}, "CNV-2308"),
        (("cpu", "MLU370"), {"preprocess": "{}"}, "CNV-2309"),
        (("Ascend910B",), {"gate_on": "ascend910b"}, "CNV-2312"),
    ],
)
def test_what_means_nothing_is_refused(targets: tuple[str, ...], options: dict[str, object], code: str) -> None:
    with pytest.raises(UsageError) as refusal:
        check_request(request(*targets, **options), [find_target(name) for name in targets])
    assert refusal.value.code == code


@pytest.mark.parametrize(
    ("target", "refused", "taken"),
    [
        ("Ascend910B3", ("1.0", "10.0"), ("5.1", "8.1.RC1", "9.3")),
        ("MLU370-X4", ("0.12", "2.0"), ("0.13", "1.9")),
        ("MI210", ("2.1", "99.1"), ("2.2", "rocm-6.2", "2.20")),
        ("K100", ("3.9", "25.04"), ("4.0", "4.2")),
        ("A100", ("8.2", "12.0"), ("8.4.1", "11.3")),
        ("BI-V150", ("0.9", "2.0"), ("1.0", "1.4")),
        ("openvino-cpu", ("2025.4", "2027.0"), ("2026.5",)),
        ("BM1684X", ("1.2", "2.0"), ("1.30.2",)),
        ("RK3588", ("1.6", "3.0"), ("2.5.0",)),
        ("HTP-V75", ("1.9", "3.0"), ("2.7.0",)),
    ],
)
def test_a_toolchain_version_far_from_what_is_known_is_refused_in_the_same_words_everywhere(
    target: str, refused: tuple[str, ...], taken: tuple[str, ...]
) -> None:
    for version in refused:
        with pytest.raises(UsageError, match=r"is not known here \(known: ") as refusal:
            check_request(request(target, toolchain_version=version), [find_target(target)])
        assert refusal.value.code == "CNV-2308"
    for version in taken:
        check_request(request(target, toolchain_version=version), [find_target(target)])
        assert version_asked(find_target(target), request(target, toolchain_version=version)) == version


def test_a_toolchain_version_means_only_the_targets_that_have_it() -> None:
    both = request("MI210", "A100", toolchain_version="10.9")
    check_request(both, [find_target("MI210"), find_target("A100")])
    assert (version_asked(find_target("MI210"), both), version_asked(find_target("A100"), both)) == ("", "10.9")


def test_what_one_of_several_targets_takes_is_taken() -> None:
    several = [find_target("cpu"), find_target("Ascend910B")]
    check_request(
        request("cpu", "Ascend910B", soc="Ascend910B3", toolchain_version="8.1.RC1", preprocess="{}"), several
    )


def test_the_setting_serves_the_targets_that_it_fits() -> None:
    settings = Settings(soc="Ascend910B2")
    assert soc_asked(find_target("Ascend910B"), request(), settings) == "Ascend910B2"
    assert soc_asked(find_target("Ascend910B"), request(soc="Ascend910B3"), settings) == "Ascend910B3"
    assert soc_asked(find_target("Ascend310P"), request(), settings) == ""


def test_operators_are_judged_for_the_toolchain_that_is_here() -> None:
    target = find_target("Ascend910B")
    here = Toolchain(name="CANN", version="8.1.RC1")
    assert judged_version(target, "", here) == "8.1.rc1"
    assert judged_version(target, "9.0.0", here) == "9.0.0"
    assert judged_version(target, "", Missing(name="CANN", reason="", hint="")) == ""
    assert judged_version(target, "", Toolchain(name="CANN", version="unknown")) == ""


@pytest.mark.parametrize(
    ("asked", "here", "same"),
    [("8.1", "8.1.RC1", True), ("8.5.0", "8.5.0", True), ("8.5.1", "8.5.0", False), ("8.10", "8.1", False)],
)
def test_versions_are_the_same_as_far_as_they_are_told(asked: str, here: str, same: bool) -> None:
    assert same_version(find_target("Ascend910B"), asked, here) is same


def test_preprocessing_is_an_object_or_a_file_with_one(tmp_path: Path) -> None:
    path = tmp_path / "aipp.json"
    path.write_text('{"std": [1], "mean": [0]}')
    assert parse_preprocess(str(path)) == parse_preprocess('{"mean":[0],"std":[1]}') == '{"mean":[0],"std":[1]}'
    for text in ("[1]", "nowhere.json", '{"a":', "{" * 5000, "/dev/zero", "n" * 5000):
        with pytest.raises(UsageError) as refusal:
            parse_preprocess(text)
        assert refusal.value.code == "CNV-2309"


def test_the_plan_of_another_toolchain_version_is_shown_and_bundled(machine: Machine, mlp: Path) -> None:
    planned = machine.convert(mlp, "Ascend910B3", toolchain_version="8.1.RC1", until="plan")
    assert (planned.status, planned.exit_code) == ("planned", 0)
    assert planned.targets[0].plan is not None
    assert planned.targets[0].plan.needs["version"] == "8.1.RC1"
    assert planned.targets[0].support is not None
    assert planned.targets[0].support.toolchain_version == "8.1.rc1"


def test_a_handoff_beside_a_target_that_passes_is_a_handoff(machine: Machine, mlp: Path) -> None:
    from convert.pipeline import convert_model

    both = Request(load=LoadOptions(path=str(mlp)), targets=("cpu", "Ascend910B3"))
    ended = convert_model(both, machine.settings, host=machine.host)
    assert (ended.status, ended.exit_code) == ("handoff", 6)
    assert [target.status for target in ended.targets] == ["built", "handoff"]


def test_the_command_line_resumes_and_prints_one_document(
    machine: Machine, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVERT_CACHE_DIR", machine.settings.cache_dir)
    monkeypatch.setenv("CONVERT_OUT", machine.settings.out)
    monkeypatch.setenv("CONVERT_REGISTRY", machine.settings.registry)
    ended = CliRunner().invoke(cli, ["resume", str(measured), "--json", "--quiet", "--version", "2.0.0"])
    document = json.loads(ended.stdout)
    assert (document["status"], document["version"]) == ("published", "2.0.0")
    assert document["targets"][0]["validation"]["ran_on"] == "device"
    assert document["targets"][0]["artifact"]["ref"] == "mlp:2.0.0-ascend910b3"


def test_a_forecast_that_does_not_hold_is_said_and_handed_over_all_the_same(machine: Machine, mlp: Path) -> None:
    ended = machine.convert(mlp, "Ascend910B", gate={"rel_l2": 1e-9})
    assert ended.status == "handoff"
    assert any("does not keep the gate" in note.text for note in ended.targets[0].notes)
