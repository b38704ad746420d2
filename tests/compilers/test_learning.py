"""An operator that only the compiler refuses: exit 7 with its name, and exit 5 before it after `convert ops learn`."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiler_kit import TARGETS, command, write_det

from convert.toolchains.place import installed_toolchain
from op_registry.overlay import COLUMNS, read_overlay

pytestmark = pytest.mark.compilers
VENDORS = {"openvino-cpu": "intel", "BM1684X": "sophgo"}


@pytest.mark.parametrize("versions", ["", "=={version}"])
def test_what_only_the_compiler_refuses_is_learned_from_its_log(tmp_path: Path, target: str, versions: str) -> None:
    found = installed_toolchain(TARGETS[target])
    assert found is not None
    write_det(tmp_path / "det.onnx")
    overlay = tmp_path / "site.csv"
    # The site believes that the compiler takes Det: the shipped data know better, and would stop before it.
    believed = (VENDORS[target], versions.format(version=found.record.version), "", "", "Det", "*", "ok", "", "hearsay")
    overlay.write_text(",".join(COLUMNS) + "\n" + ",".join(believed) + "\n")
    place = {"CONVERT_OPS_OVERLAY": str(overlay)}

    refused = command(tmp_path, "convert", "det.onnx", "--target", target, **place)
    assert (refused.code, refused.document["error"]["code"]) == (7, "CNV-7261")
    assert "Det" in refused.document["error"]["message"]
    assert "the_det" in refused.document["error"]["message"]
    assert "convert ops learn" in refused.document["error"]["hint"]
    (log,) = (tmp_path / "out").rglob("failed/compile.log")

    learned = command(tmp_path, "convert", "ops", "learn", str(log), **place)
    assert learned.code == 0
    assert learned.document["vendor"] == VENDORS[target]
    assert found.record.version.startswith(learned.document["toolchain_version"])
    assert ("Det", "refused") in {(row.op, row.state) for row in read_overlay(overlay)}

    known = command(tmp_path, "convert", "det.onnx", "--target", target, **place)
    assert (known.code, known.document["error"]["code"]) == (5, "CNV-5001")
    (judged,) = known.target["support"]["unsupported"]
    assert (judged["node"], judged["grade"]) == ("the_det", "site")
    assert "compile" not in [run["stage"] for run in known.target["stages"]]
