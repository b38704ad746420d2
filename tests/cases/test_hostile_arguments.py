"""Arguments that name no usable file: a pipe, a link in a circle, a name that is no UTF-8, a limit without end."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest
from onnx import parser

from artifacts.__main__ import cli as artifacts_cli
from artifacts.cli import run_boundary
from convert.__main__ import cli as convert_cli

ODD = os.fsdecode(b"caf\xe9.onnx")
LINES = [
    (convert_cli, ["ops", "learn", "pipe"], "CNV-2506"),
    (convert_cli, ["check", "pipe", "-t", "Ascend910B3"], "CNV-3002"),
    (convert_cli, ["graph", "lower", "loop", "--opset", "13", "-o", "o.onnx"], "CNV-3002"),
    (convert_cli, ["graph", "rewrite", "loop", "--rule", "sort-nodes", "-o", "o.onnx"], "CNV-3002"),
    (convert_cli, ["graph", "lint", ODD], "CNV-2063"),
    (convert_cli, ["soak", ODD, "--for", "1s"], "CNV-2063"),
    (convert_cli, ["bench", ODD], "CNV-2063"),
    (convert_cli, ["accept", ODD], "CNV-2063"),
    (convert_cli, ["model.onnx", "-t", "cpu", "--timeout", "inf"], "CNV-2002"),
    (convert_cli, ["model.onnx", "-t", "cpu", "--timeout", "1e400"], "CNV-2002"),
    (convert_cli, ["model.onnx", "-t", "cpu", "--registry", "loop"], "CNV-9003"),
    (artifacts_cli, ["copy", "oci-archive:pipe", "net"], "CNV-9004"),
    (artifacts_cli, ["sign", "net:1.0.0", "--sign-key", "pipe"], "CNV-2411"),
    (artifacts_cli, ["import", "pipe", "--name", "net", "--target", "cpu", "--toolchain", "a=1"], "CNV-9004"),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("command", "words", "code"), LINES, ids=[" ".join(words[:3]) for _, words, _ in LINES])
def test_an_argument_that_names_no_usable_file_is_an_error_of_two_lines(
    command: click.Command,
    words: list[str],
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))  # of the workers
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\ng (float[2] x) => (float[2] y) { y = Neg(x) }'
    )
    Path("model.onnx").write_bytes(model.SerializeToString())
    Path(ODD).write_bytes(model.SerializeToString())
    ended = run_boundary(command, words, prog="convert", usage_code="CNV-2000")
    said = capsys.readouterr().err
    assert f"error [{code}]: " in said
    assert "\nhint: " in said
    assert ended == {"2": 2, "3": 3, "9": 9}[code[4]]
