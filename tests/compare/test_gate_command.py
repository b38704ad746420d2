"""``convert gate``: a stored report judged again."""

import json
import os
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from convert.commands.gate import gate
from convert.errors import GateFailed, UsageError
from convert.gate import judge
from convert.metrics import OutputMetrics
from convert.validation_file import StoredValidation, read_validation, write_validation
from convert.values import ValidationReport


def stored(rel_l2: float = 0.002) -> StoredValidation:
    output = OutputMetrics(
        name="logits",
        dtype="float32",
        shape=(1, 10),
        state="compared",
        cosine=0.99999,
        rel_l2=rel_l2,
        norm_ratio=1.0,
        max_abs=0.1,
        samples=2,
    )
    report = ValidationReport(parent="sha256:0", ran_on="device", outputs=(output,), samples=2)
    return StoredValidation(precision="fp16", report=report, verdict=judge(report, "fp16"))


@pytest.fixture
def folder(tmp_path):
    write_validation(tmp_path, stored())
    return tmp_path


def run(*args):
    return CliRunner().invoke(gate, [str(arg) for arg in args])


def test_a_report_reads_back_as_it_was_written(folder):
    assert read_validation(folder / "validation.json") == stored()


def test_writing_again_leaves_a_file_linked_elsewhere_as_it_was(folder, tmp_path):
    kept = tmp_path / "blob"
    (folder / "validation.json").chmod(0o444)
    kept.hardlink_to(folder / "validation.json")
    before = kept.read_bytes()
    write_validation(folder, stored(rel_l2=0.004))
    assert kept.read_bytes() == before
    assert read_validation(folder) == stored(rel_l2=0.004)


def test_the_stored_gate_passes_with_a_table(folder):
    result = run(folder)
    assert result.exit_code == 0
    assert result.output.startswith("gate passed (fp16)\n")
    assert "logits  compared  0.99999" in result.output


def test_a_tighter_gate_fails_with_exit_code_8(folder):
    result = run(folder / "validation.json", "--gate", "rel_l2=0.001")
    assert isinstance(result.exception, GateFailed)
    assert result.exception.exit_code == 8
    assert "gate FAILED (fp16)\n  - output 'logits': relative L2 0.002 is above 0.001" in result.output


def test_json_is_one_document_that_holds_the_error_when_it_fails(folder):
    result = run(folder, "--gate", "rel_l2=0.001", "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 8
    assert (document["schema"], document["passed"], document["error"]["code"]) == (1, False, "CNV-8001")
    assert document["outputs"][0]["rel_l2"] == 0.002


def test_json_of_a_pass_has_no_error(folder):
    result = run(folder, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["error"] is None


def test_a_manifest_with_metrics_is_judged(tmp_path):
    outputs = msgspec.to_builtins(stored().report.outputs)
    manifest = {"schema": 1, "precision": "fp16", "target": "cpu", "validation": {"passed": True, "outputs": outputs}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert run(tmp_path).exit_code == 0
    assert isinstance(run(tmp_path, "--gate", "rel_l2=0.001").exception, GateFailed)


def test_unknown_metrics_are_refused(folder):
    assert run(folder, "--gate", "cosin=1").exception.code == "CNV-2051"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "\xff",
        '{"schema": 1}',
        '{"schema": 1, "precision": "fp64", "report": {}, "verdict": {}}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_files_that_are_no_report_are_refused_in_one_line(tmp_path, text):
    (tmp_path / "validation.json").write_text(text, encoding="latin-1")
    with pytest.raises(UsageError) as refusal:
        read_validation(tmp_path)
    assert refusal.value.code == "CNV-2054"
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "change", [{"schema": 2}, {"extra": 1}, {"precision": 3}, {"verdict": {"passed": "yes", "thresholds": {}}}]
)
def test_a_report_with_a_wrong_field_is_refused(tmp_path, change):
    content = msgspec.to_builtins(stored()) | change
    (tmp_path / "validation.json").write_text(json.dumps(content))
    with pytest.raises(UsageError):
        read_validation(tmp_path)


def test_a_report_that_is_not_there_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "nothing.json"):
        with pytest.raises(UsageError, match="no stored validation report"):
            read_validation(path)


def test_judging_imports_no_heavy_library(folder):
    import subprocess
    import sys

    code = (
        "import sys; from convert.commands.gate import gate; gate([sys.argv[1]], standalone_mode=False);"
        "print({'torch', 'onnx', 'onnxruntime', 'numpy', 'prefect'} & set(sys.modules))"
    )
    printed = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert printed.stdout.endswith("set()\n")


def test_a_pipe_in_place_of_a_report_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "validation.json")
    for place in (tmp_path / "validation.json", Path("/dev/zero")):
        with pytest.raises(UsageError, match="is a pipe or a device") as refused:
            read_validation(place)
        assert refused.value.code == "CNV-2054"
