"""The examination of a machine: what belongs together, what is missing, what the cards say."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from convert.__main__ import cli
from convert.backends.base import Missing, Toolchain
from convert.doctor.ascend import KERNELS, check_ascend
from convert.doctor.compat import compat_rows, judge_pair
from convert.doctor.examine import CHECKERS, examine
from convert.doctor.machine import available_memory, examine_machine
from convert.doctor.others import check_cambricon, check_metax, check_migraphx, check_nvidia
from convert.doctor.values import Scene
from convert.settings import Settings
from op_registry.targets import find_target
from op_registry.vendors import all_vendors
from op_registry.versions import range_fault

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "doubles" / "atc"))

from install import install_cann


def scene(target: str, version: str = "", details: dict[str, str] | None = None, **more: object) -> Scene:
    found: Toolchain | Missing = Missing(name="x", reason="", hint="")
    if version:
        found = Toolchain(name="x", version=version, details=details or {})
    return Scene(target=find_target(target), found=found, **more)  # type: ignore[arg-type]


def levels(findings: object) -> dict[str, str]:
    return {finding.about: finding.level for finding in findings}  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------ what belongs together


def test_every_row_of_the_table_can_be_read_and_names_its_source() -> None:
    rows = compat_rows()
    assert len(rows) > 200
    assert [row for row in rows if range_fault(row.range) or not row.source.strip()] == []
    assert {row.rule for row in rows} == {"tested", "lower", "incompatible"}


@pytest.mark.parametrize(
    ("component", "version", "needs", "there", "level"),
    [
        ("cann", "8.5.0", "driver", "25.5.1", "ok"),
        ("cann", "8.5.0", "driver", "24.1.0", "warning"),
        ("cann", "9.1.0", "driver", "25.0.2", "blocked"),
        ("cann", "9.2.0", "driver", "25.2.3", "blocked"),
        ("torch_npu", "2.1.0.post12", "cann", "8.1.RC1", "ok"),
        ("torch_npu", "2.1.0.post12", "cann", "8.5.0", "warning"),
        ("torch_npu", "2.1.0.post12", "torch", "2.1.0+cpu", "ok"),
        ("magicmind", "1.7.0", "driver", "4.15.0", "blocked"),
        ("magicmind", "1.7.0", "driver", "5.10.22", "ok"),
        ("magicmind", "1.6.0", "python", "3.10.2", "warning"),
        ("torch_mlu", "1.25.0", "driver", "6.2.1", "blocked"),
        ("migraphx", "2.15.0", "rocm", "7.2.1", "ok"),
        ("migraphx", "2.15.0", "rocm", "6.4.0", "warning"),
        ("dtk", "25.04.4", "driver", "6.3.31-V1.5.0a", "ok"),
        ("dtk", "25.04.4", "driver", "6.2.9", "blocked"),
        ("cuda", "12.4", "driver", "520.61", "blocked"),
        ("cuda", "12.4", "driver", "550.54.14", "ok"),
        ("tensorrt", "10.15.0", "cuda", "11.8", "blocked"),
        ("torch", "2.8.0+metax3.5.3.9", "maca", "3.5.3.2", "ok"),
    ],
)
def test_a_tested_pair_that_differs_warns_and_a_stated_bound_blocks(
    component: str, version: str, needs: str, there: str, level: str
) -> None:
    finding = judge_pair(component, version, needs, there)
    assert finding is not None
    assert (finding.level, bool(finding.source)) == (level, True)
    assert level in ("ok",) or finding.hint


@pytest.mark.parametrize(
    "pair", [("cann", "5.0", "driver", "21.0"), ("cann", "8.5.0", "driver", "no version"), ("x", "1", "y", "2")]
)
def test_what_no_row_speaks_of_is_not_known(pair: tuple[str, str, str, str]) -> None:
    assert judge_pair(*pair) is None


# ------------------------------------------------------------------------------------------------------------- vendors


def test_an_ascend_machine_is_read_from_its_own_files(tmp_path: Path) -> None:
    driver = tmp_path / "usr/local/Ascend/driver"
    driver.mkdir(parents=True)
    (driver / "version.info").write_text("Version=24.1.0\nascendhal_version=7.35.23\n")
    home = tmp_path / "cann"
    (home / KERNELS / "ascend910b" / "ops_oam").mkdir(parents=True)
    details = {
        "home": str(home),
        "sourced": "no: source /x/set_env.sh",
        "python_missing": "sympy attrs",
        "python": "3.11.4",
    }
    parts = check_ascend(
        scene("Ascend910B", "8.5.0", details, root=str(tmp_path), packages={"torch_npu": "2.9.0", "torch": "2.9.0"})
    )
    assert parts.versions["driver"] == "24.1.0"
    found = levels(parts.findings)
    assert found == {"environment": "note", "Python packages": "warning", "kernels": "blocked"}
    assert "Ascend-cann-910b-ops 8.5.0" in next(one.hint for one in parts.findings if one.about == "kernels")
    (home / KERNELS / "ascend910b" / "ops_nn").mkdir()
    assert levels(check_ascend(scene("Ascend910B", "8.5.0", details)).findings)["kernels"] == "ok"


def test_before_8_5_missing_kernels_only_warn(tmp_path: Path) -> None:
    (tmp_path / "opp" / "built-in").mkdir(parents=True)
    parts = check_ascend(scene("Ascend310P3", "8.1.RC1", {"home": str(tmp_path)}))
    (kernels,) = (finding for finding in parts.findings if finding.about == "kernels")
    assert (kernels.level, kernels.hint) == ("warning", "install Ascend-cann-kernels-310p 8.1.RC1")


@pytest.mark.parametrize(
    ("target", "variable"),
    [("Ascend910B", "ASCEND_RT_VISIBLE_DEVICES"), ("MLU370", "MLU_VISIBLE_DEVICES"), ("MI300X", "HIP_VISIBLE_DEVICES"),
     ("K100", "ROCR_VISIBLE_DEVICES"), ("C500", "MACA_VISIBLE_DEVICES"), ("A100", "CUDA_VISIBLE_DEVICES")],
)  # fmt: skip
def test_a_variable_that_hides_every_card_is_named(target: str, variable: str) -> None:
    vendor = find_target(target).vendor
    for text, told in (("-1", True), ("", True), ("0,1", False)):
        findings = CHECKERS[vendor](scene(target, environment={variable: text})).findings
        assert any(variable in finding.text for finding in findings) is told


def test_the_other_vendors_tell_their_parts(tmp_path: Path) -> None:
    files = {
        "opt/rocm/.info/version": "7.2.1-43\n",
        "opt/maca/Version.txt": "Version:3.5.3.2\n",
        "usr/local/cuda/version.json": '{"cuda": {"version": "12.9.1"}}',
        "usr/local/neuware/version.txt": "Neuware Version 3.0.2\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    root = str(tmp_path)
    assert check_migraphx(scene("MI300X", "2.15.0", root=root)).versions["rocm"] == "7.2.1"
    assert check_metax(scene("C500", "1.12.0", root=root)).versions["maca"] == "3.5.3.2"
    assert check_nvidia(scene("A100", "10.15.0", root=root)).versions["cuda"] == "12.9.1"
    assert check_cambricon(scene("MLU370", "1.7.0", root=root)).versions["cntoolkit"] == "3.0.2"


def test_every_vendor_with_a_compiler_has_a_checker() -> None:
    others = {"onnxruntime", "intel", "sophgo", "qualcomm", "rockchip"}
    assert {vendor.name for vendor in all_vendors().values() if vendor.backend} - others <= set(CHECKERS)


# ------------------------------------------------------------------------------------------------------------- machines


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    places = {name: str(tmp_path / name) for name in ("cache_dir", "out", "registry")}
    return Settings(**places)


def test_a_machine_with_a_toolkit_and_a_card_is_usable(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, **install_cann(tmp_path, "8.5.0", soc="Ascend910B3")}
    found = examine([find_target("Ascend910B")], settings, environment, root=str(tmp_path))
    (health,) = found.vendors
    assert found.usable
    assert (health.toolchain, health.version, health.usable) == ("CANN", "8.5.0", True)
    assert [card.soc for card in health.cards] == ["Ascend910B3"]
    assert health.versions["driver"] == "24.1.0"
    pair = next(finding for finding in health.findings if finding.about == "cann 8.5.0, driver 24.1.0")
    assert (pair.level, bool(pair.source)) == ("warning", True)


def test_a_machine_without_anything_can_still_serve_the_cpu(settings: Settings) -> None:
    bare = {"PATH": "/nonexistent", "HOME": "/nonexistent"}
    assert examine([], settings, bare, root="/nonexistent").usable
    assert examine([find_target("cpu")], settings, bare).usable
    wanted = examine([find_target("Ascend910B")], settings, bare)
    assert not wanted.usable
    assert wanted.vendors[0].findings[0].level == "blocked"
    assert wanted.vendors[0].findings[0].hint


def test_sick_cards_are_named(card_machine: Callable[..., None], settings: Settings) -> None:
    card_machine("910b3", "mlu370")
    found = examine([find_target("Ascend910B"), find_target("MLU370")], settings)
    told = [finding for health in found.vendors for finding in health.findings if finding.about.startswith("card ")]
    assert [finding.level for finding in told] == ["ok", "warning", "ok", "warning"]
    assert "not healthy" in told[1].text


def test_a_hanging_card_tool_costs_its_time_limit_and_no_more(
    card_machine: Callable[..., None], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("artifacts.cards.SECONDS", 0.2)
    card_machine("910b3", fault="hang")
    assert examine([find_target("Ascend910B")], settings).vendors[0].cards == ()


def test_the_machine_tells_memory_disk_and_libraries(settings: Settings) -> None:
    health = examine_machine(settings)
    assert health.usable
    assert {finding.about.partition(" ")[0] for finding in health.findings} >= {"memory", "disk"}
    assert available_memory() > 0
    nowhere = Settings(cache_dir="/proc/nowhere", out=settings.out, registry=settings.registry)
    if os.geteuid():
        assert not examine_machine(nowhere).usable


def test_the_command_exits_0_or_6_and_prints_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("HOME", "/nonexistent")
    told = CliRunner().invoke(cli, ["doctor", "--target", "Ascend910B", "--json"], standalone_mode=False)
    document = json.loads(told.stdout)
    assert (told.return_value, document["usable"]) == (6, False)
    assert document["vendors"][0]["findings"][0]["level"] == "blocked"
    plain = CliRunner().invoke(cli, ["doctor"], standalone_mode=False)
    assert (plain.return_value, plain.stdout.strip().endswith("\nusable")) == (0, True)
    assert "nothing here of: Huawei Ascend (CANN)" in plain.stdout
