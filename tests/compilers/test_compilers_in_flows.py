"""The flow ``convert_model`` with compilers that nobody here wrote: what the command line does, as a run of Prefect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compiler_kit import RAN_ON, TARGETS, write_det

from convert.toolchains.place import installed_toolchain

pytestmark = [pytest.mark.compilers, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def installed() -> list[str]:
    found = [target for target, name in TARGETS.items() if installed_toolchain(name) is not None]
    if not found:
        pytest.skip("none of the toolchains is installed: make test-compilers installs them")
    return found


def places(folder: Path) -> dict[str, Any]:
    return {name: str(folder / name) for name in ("registry", "cache_dir", "out")}


def test_a_flow_run_converts_for_every_compiler_and_publishes_one_version(
    server: str, models: Path, tmp_path: Path, installed: list[str]
) -> None:
    from flows.convert_model import convert_model

    state = convert_model(str(models / "cnn.onnx"), installed, settings=places(tmp_path), return_state=True)
    assert state.is_completed(), state.message
    assert state.message == "cnn:1.0.0 published"
    document = state.result()
    assert {one["target"]: one["validation"]["ran_on"] for one in document["targets"]} == {
        target: RAN_ON[target] for target in installed
    }
    assert all(one["validation"]["passed"] for one in document["targets"])
    assert {one["artifact"]["ref"] for one in document["targets"]} == {f"cnn:1.0.0-{one.lower()}" for one in installed}


def test_a_flow_run_fails_with_what_the_compiler_refuses_and_publishes_nothing(
    server: str, tmp_path: Path, installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows.convert_model import convert_model

    write_det(tmp_path / "det.onnx")
    monkeypatch.setenv("CONVERT_OPS_OVERLAY", str(tmp_path / "site.csv"))
    (tmp_path / "site.csv").write_text(
        "vendor,versions,arch,domain,op,opsets,state,note,source\n"
        + "".join(f"{vendor},,,,Det,*,ok,,hearsay\n" for vendor in ("intel", "sophgo"))
    )
    state = convert_model(str(tmp_path / "det.onnx"), installed[:1], settings=places(tmp_path), return_state=True)
    assert state.is_failed()
    assert state.message is not None
    assert state.message.startswith("[CNV-7261]")
    assert "the_det" in state.message
    assert not (tmp_path / "registry" / "det").exists()
