"""What the machine has: the driver, its version, the card, and the Python that has the module."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from migraphx_requests import BACKEND

from convert.backends.base import Missing, Toolchain
from convert.backends.migraphx.probing import probe
from op_registry.targets import find_target


def found(target: str, **more: str) -> Toolchain | Missing:
    return probe(find_target(target), {**os.environ, **more})


def test_without_the_driver_the_hint_names_the_package(tmp_path: Path) -> None:
    missing = found("MI210", PATH=str(tmp_path))
    assert isinstance(missing, Missing)
    assert "migraphx-driver" in missing.reason and "ROCm" in missing.hint


@pytest.mark.parametrize("version", ["2.8.0", "2.15.0", "2.16.0"])
def test_the_version_is_read_from_either_stream(version: str, machine) -> None:
    machine(version)
    toolchain = found("migraphx-ref")
    assert isinstance(toolchain, Toolchain)
    assert toolchain.version == version
    assert toolchain.details["flavour"] == "rocm"
    assert toolchain.details["build"].startswith(version + ".2025")


def test_the_reference_target_needs_no_card_and_a_gpu_target_does(machine) -> None:
    machine()
    assert isinstance(found("migraphx-ref"), Toolchain)
    missing = found("MI210")
    assert isinstance(missing, Missing)
    assert missing.name == "MI210" and "MIGraphX 2.15.0 is here, but no card" in missing.reason
    assert "migraphx-ref" in missing.hint


def test_the_card_must_be_that_of_the_target(machine) -> None:
    machine(arch="gfx90a")
    toolchain = found("MI210")
    assert isinstance(toolchain, Toolchain)
    assert (toolchain.details["arch"], toolchain.details["card"]) == ("gfx90a", "AMD Instinct MI210")
    missing = found("MI300X")
    assert isinstance(missing, Missing)
    assert "gfx90a (AMD Instinct MI210), not gfx942" in missing.reason


@pytest.mark.parametrize("value", ["", "-1"])
def test_a_variable_that_hides_the_cards_is_named(value: str, machine) -> None:
    machine(arch="gfx90a")
    missing = found("MI210", HIP_VISIBLE_DEVICES=value)
    assert isinstance(missing, Missing)
    assert "HIP_VISIBLE_DEVICES" in missing.reason and missing.hint == "unset HIP_VISIBLE_DEVICES"


def test_a_hygon_card_needs_the_driver_of_dtk(machine) -> None:
    root = machine("2.15.0", arch="gfx936")
    missing = found("BW1000")
    assert isinstance(missing, Missing) and missing.name == "DTK"
    machine("4.0.0", arch="gfx936")
    (root / ".info").mkdir()
    (root / ".info" / "rocm_version").write_text("25.04.1\n")
    toolchain = found("BW1000")
    assert isinstance(toolchain, Toolchain)
    assert toolchain.details["flavour"] == "dtk" and toolchain.details["dtk"] == "25.04.1"


def test_hy_smi_tells_the_card_where_rocminfo_is_missing(machine) -> None:
    root = machine("4.0.0", arch="gfx928")
    (root / "bin" / "rocminfo").unlink()
    toolchain = found("K100_AI")
    assert isinstance(toolchain, Toolchain)
    assert (toolchain.details["arch"], toolchain.details["card"]) == ("gfx928", "K100_AI")


def test_rocminfo_tells_a_hygon_card_where_hy_smi_is_missing(machine) -> None:
    root = machine("4.0.0", arch="gfx936")
    (root / "bin" / "hy-smi").unlink()
    toolchain = found("BW1000")
    assert isinstance(toolchain, Toolchain) and toolchain.details["card"] == "BW1000"


def test_the_architectures_alone_tell_a_card_without_a_name(machine) -> None:
    root = machine(arch="gfx90a")
    (root / "bin" / "rocminfo").unlink()
    (root / "bin" / "rocm_agent_enumerator").write_text("#!/bin/sh\necho gfx000\necho gfx90a\n")
    (root / "bin" / "rocm_agent_enumerator").chmod(0o755)
    toolchain = found("MI210")
    assert isinstance(toolchain, Toolchain)
    assert toolchain.details["arch"] == "gfx90a" and "card" not in toolchain.details


def test_behind_a_launcher_the_driver_of_its_other_side_is_asked(machine, tmp_path: Path) -> None:
    machine("2.15.0", arch="gfx90a")
    other = tmp_path / "enter"
    other.write_text('#!/bin/sh\nMIGRAPHX_DOUBLE_VERSION=2.12.0 exec "$@"\n')
    other.chmod(0o755)
    toolchain = found("MI300X", CONVERT_LAUNCHER=str(other))
    assert isinstance(toolchain, Toolchain)
    assert (toolchain.version, toolchain.details["arch"]) == ("2.12.0", "gfx942")


def test_the_module_is_found_beside_the_driver_or_where_the_user_says(machine) -> None:
    root = machine()
    toolchain = found("migraphx-ref")
    assert isinstance(toolchain, Toolchain) and toolchain.details["pythonpath"] == str(root / "lib")
    named = found("migraphx-ref", CONVERT_MIGRAPHX_PYTHON="/usr/bin/python3.10")
    assert isinstance(named, Toolchain) and named.details["python"] == "/usr/bin/python3.10"


def test_a_module_built_for_one_python_names_that_python(machine) -> None:
    root = machine(module=False)
    number = f"3{sys.version_info[1]}"
    (root / "lib" / f"migraphx.cpython-{number}-x86_64-linux-gnu.so").touch()
    python = root / "bin" / f"python3.{sys.version_info[1]}"
    python.symlink_to(sys.executable)
    toolchain = found("migraphx-ref")
    assert isinstance(toolchain, Toolchain)
    assert toolchain.details["python"] == str(python)


def test_a_driver_that_tells_no_version_is_not_there(machine) -> None:
    root = machine()
    (root / "bin" / "migraphx-driver").write_text("#!/bin/sh\necho error while loading shared libraries\n")
    missing = found("migraphx-ref")
    assert isinstance(missing, Missing) and "error while loading shared libraries" in missing.reason


def test_what_is_assumed_is_said_to_be() -> None:
    assert BACKEND.assumed() == Toolchain(name="MIGraphX", version="2.15", assumed=True)
