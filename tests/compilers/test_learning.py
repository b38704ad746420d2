"""What only the compiler refuses: exit 7 with its name, and known beforehand after `convert ops learn`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from compiler_kit import TARGETS, Answer, command, write_det, write_einsum

from convert.toolchains.place import installed_toolchain
from op_registry.overlay import COLUMNS, read_overlay

pytestmark = pytest.mark.compilers
VENDORS = {"openvino-cpu": "intel", "BM1684X": "sophgo"}


def taught(folder: Path, refused: Answer, place: dict[str, str]) -> Answer:
    """Run the command that the error's hint names."""
    (words,) = re.findall(r"`convert (ops learn [^`]+)`", refused.document["error"]["hint"])
    learned = command(folder, "convert", *shlex.split(words), **place)
    assert learned.code == 0, learned.document
    return learned


@pytest.mark.parametrize("versions", ["", "=={version}"])
def test_what_only_the_compiler_refuses_is_learned_from_its_log(tmp_path: Path, target: str, versions: str) -> None:
    """The data know every operator that these two lack, so a site's wrong belief stands for data that don't.

    tpu-mlir's list of operators is read whole from its front end, and OpenVINO was asked with each of ONNX's own.
    """
    found = installed_toolchain(TARGETS[target])
    assert found is not None
    write_det(tmp_path / "det.onnx")
    overlay = tmp_path / "site.csv"
    believed = (VENDORS[target], versions.format(version=found.record.version), "", "", "Det", "*", "ok", "", "hearsay")
    overlay.write_text(",".join(COLUMNS) + "\n" + ",".join(believed) + "\n")
    place = {"CONVERT_OPS_OVERLAY": str(overlay)}

    refused = command(tmp_path, "convert", "det.onnx", "--target", target, **place)
    assert (refused.code, refused.document["error"]["code"]) == (7, "CNV-7261")
    assert "Det" in refused.document["error"]["message"]
    assert "the_det" in refused.document["error"]["message"]

    learned = taught(tmp_path, refused, place)
    assert learned.document["vendor"] == VENDORS[target]
    assert found.record.version.startswith(learned.document["toolchain_version"])
    assert ("Det", "refused") in {(row.op, row.state) for row in read_overlay(overlay)}
    stops_before_the_compiler(command(tmp_path, "convert", "det.onnx", "--target", target, **place))


def stops_before_the_compiler(known: Answer) -> None:
    assert (known.code, known.document["error"]["code"]) == (5, "CNV-5001")
    (judged,) = known.target["support"]["unsupported"]
    assert (judged["node"], judged["grade"]) == ("the_det", "site")
    assert "compile" not in [run["stage"] for run in known.target["stages"]]


def test_a_form_that_only_tpu_mlir_refuses_is_learned_and_then_rewritten(tmp_path: Path) -> None:
    """Of tpu-mlir's Einsum only a list of equations is taken, which the data don't have: nobody helps here."""
    if installed_toolchain("sophgo") is None:
        pytest.skip("the toolchain sophgo is not installed: make test-compilers installs it")
    write_einsum(tmp_path / "product.onnx")
    place = {"CONVERT_OPS_OVERLAY": str(tmp_path / "site.csv")}
    words = ("convert", "product.onnx", "--target", "BM1684X")
    refused = command(tmp_path, *words, **place)
    assert (refused.code, refused.document["error"]["code"]) == (7, "CNV-7262")
    assert "operator Einsum" in refused.document["error"]["message"]
    assert "the_product" in refused.document["error"]["message"]
    (line,) = taught(tmp_path, refused, place).document["lines"]
    assert (line["op"], line["state"], line["when"]) == ("Einsum", "refused", "attr equation is ijk,lkj->il")
    again = command(tmp_path, *words, **place)
    assert again.code == 0, again.document["error"]
    assert again.document["status"] == "published"
    (adapted,) = [run for run in again.target["stages"] if run["stage"] == "adapt"]
    assert "einsum-to-matmul" in " ".join(note["text"] for note in adapted["notes"])


@pytest.mark.parametrize(("chosen", "toolchain"), [("RK3588", "rknn"), ("HTP-V73", "qnn")])
def test_what_only_a_toolchain_by_choice_refuses_is_learned_from_its_log(
    tmp_path: Path, chosen: str, toolchain: str
) -> None:
    """Nothing public lists what these take, so `check` lets Det through."""
    if installed_toolchain(toolchain) is None:
        pytest.skip(f"the toolchain {toolchain} is not installed: it has a licence of its own to agree to")
    write_det(tmp_path / "det.onnx")
    place = {"CONVERT_OPS_OVERLAY": str(tmp_path / "site.csv")}
    refused = command(tmp_path, "convert", "det.onnx", "--target", chosen, **place)
    assert (refused.code, refused.document["error"]["code"]) == (7, "CNV-7261"), refused.document["error"]
    assert "the_det" in refused.document["error"]["message"]
    taught(tmp_path, refused, place)
    stops_before_the_compiler(command(tmp_path, "convert", "det.onnx", "--target", chosen, **place))
