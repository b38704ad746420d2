"""``convert diff`` of two files of outputs."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from convert.commands.diff import diff
from convert.errors import GateFailed, ModelConvertError, UsageError
from convert.stages.diff import run_both
from convert.stages.diff_options import DiffOptions
from convert.values import LoadOptions

RNG = np.random.default_rng(2)
A = RNG.standard_normal((4, 5)).astype("float32")


def write(tmp_path, left, right):
    np.savez(tmp_path / "a.npz", **left)
    np.savez(tmp_path / "b.npz", **right)
    return str(tmp_path / "a.npz"), str(tmp_path / "b.npz")


def both(left, right, metrics=()):
    options = DiffOptions(left=LoadOptions(path=str(left)), right=LoadOptions(path=str(right)), metrics=metrics)
    return run_both(options, left)


def test_equal_files_exit_0_and_say_so(tmp_path):
    result = CliRunner().invoke(diff, list(write(tmp_path, {"y": A}, {"y": A})))
    assert result.exit_code == 0
    assert result.output.startswith("gate passed (fp32)\n")


def test_a_doubled_output_exits_8_and_names_scale_and_size(tmp_path):
    result = CliRunner().invoke(diff, list(write(tmp_path, {"y": A}, {"y": A * 2})))
    assert isinstance(result.exception, ModelConvertError)
    assert (result.exception.code, result.exception.exit_code) == ("CNV-8002", 8)
    assert "norm ratio 2" in str(result.exception) and "max_abs" in str(result.exception)


def test_json_has_both_sides_the_metrics_and_the_error(tmp_path):
    result = CliRunner().invoke(diff, [*write(tmp_path, {"y": A}, {"y": -A}), "--json"])
    document = json.loads(result.stdout)
    assert result.exit_code == 8
    assert (document["passed"], document["error"]["code"]) == (False, "CNV-8002")
    assert document["left"]["outputs"] == ["y"]
    assert document["outputs"][0]["cosine"] == pytest.approx(-1.0)


def test_a_gate_decides(tmp_path):
    files = write(tmp_path, {"y": A}, {"y": A * np.float32(1.001)})
    assert isinstance(CliRunner().invoke(diff, list(files)).exception, ModelConvertError)
    assert CliRunner().invoke(diff, [*files, "--gate", "rel_l2=0.01", "--gate", "norm_ratio=0.01"]).exit_code == 0


def test_an_output_lost_in_the_middle_is_named_and_the_others_keep_their_partner(tmp_path):
    result = both(*write(tmp_path, {"a": A, "b": A + 1, "c": A + 2}, {"a": A, "c": A + 2}))
    assert [(m.name, m.state) for m in result.report.outputs] == [
        ("a", "compared"),
        ("b", "missing"),
        ("c", "compared"),
    ]


def test_outputs_of_other_names_are_paired_by_position_and_that_is_said(tmp_path):
    result = both(*write(tmp_path, {"a": A, "b": A + 1}, {"x": A, "y": A + 1}))
    assert [m.rel_l2 for m in result.report.outputs] == [0.0, 0.0]
    assert "paired by position: 'a' with 'x', 'b' with 'y'" in result.report.notes[-1].text


def test_the_users_metric_is_loaded_from_a_file_and_gated_by_name(tmp_path):
    (tmp_path / "mine.py").write_text("def closeness(r, c):\n    return 1 - abs(r - c).max()\n")
    files = write(tmp_path, {"y": A}, {"y": A})
    arguments = [*files, "--metric", f"{tmp_path}/mine.py:closeness", "--gate"]
    assert CliRunner().invoke(diff, [*arguments, "closeness=1"]).exit_code == 0
    assert CliRunner().invoke(diff, [*arguments, "closeness=1.5"]).exception.exit_code == 8


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("def other(r, c): return 1.0", "CNV-2018"),
        ("this is no python", "CNV-2019"),
        ("m = 3", "CNV-2018"),
        ("def m(r, c): return 1 / 0", "CNV-2056"),
        ("def m(r, c): return float('nan')", "CNV-2056"),
        ("def m(r, c): return 'high'", "CNV-2056"),
    ],
)
def test_a_metric_that_cannot_be_used_is_told_with_its_reason(tmp_path, body, code):
    (tmp_path / "mine.py").write_text(body)
    with pytest.raises(UsageError) as refusal:
        both(*write(tmp_path, {"y": A}, {"y": A}), metrics=(f"{tmp_path}/mine.py:m",))
    assert refusal.value.code == code


@pytest.mark.parametrize("text", ["iou", "a:b:", ":f", "x.py:not-a-name"])
def test_texts_that_name_no_callable_are_refused_before_anything_runs(tmp_path, text):
    result = CliRunner().invoke(diff, [*write(tmp_path, {"y": A}, {"y": A}), "--metric", text])
    assert result.exception.code == "CNV-2055"


def test_objects_in_a_file_of_outputs_are_not_read(tmp_path):
    np.savez(tmp_path / "a.npz", y=np.array([{"a": 1}], dtype=object))
    np.savez(tmp_path / "b.npz", y=A)
    with pytest.raises(UsageError) as refusal:
        both(tmp_path / "a.npz", tmp_path / "b.npz")
    assert refusal.value.code == "CNV-2058"


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"\x00" * 100])
def test_damaged_files_of_outputs_are_told_in_one_line(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    np.savez(tmp_path / "b.npz", y=A)
    with pytest.raises(UsageError) as refusal:
        both(tmp_path / "a.npz", tmp_path / "b.npz")
    assert refusal.value.code == "CNV-2058" and "\n" not in str(refusal.value)


def test_a_model_against_a_file_of_outputs_is_refused(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"\x08\x08")
    np.savez(tmp_path / "b.npz", y=A)
    with pytest.raises(UsageError) as refusal:
        both(tmp_path / "model.onnx", tmp_path / "b.npz")
    assert refusal.value.code == "CNV-2057"


def test_the_command_runs_in_a_worker_and_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    result = CliRunner().invoke(diff, list(write(tmp_path, {"y": A}, {"y": -A})))
    assert isinstance(result.exception, GateFailed)
    # The user's own folder of temporary folders stays, and holds none.
    assert [path for path in (tmp_path / "scratch").glob("*/*") if path.is_dir()] == []


def test_a_crash_of_the_worker_is_an_expected_failure(tmp_path):
    (tmp_path / "mine.py").write_text("import os, signal\ndef m(r, c):\n    os.kill(os.getpid(), signal.SIGSEGV)\n")
    files = write(tmp_path, {"y": A}, {"y": A})
    result = CliRunner().invoke(diff, [*files, "--metric", f"{tmp_path}/mine.py:m"])
    assert (result.exception.code, "SIGSEGV" in str(result.exception)) == ("CNV-8003", True)


def test_every_code_of_the_gate_has_a_page():
    pages = Path(__file__).parents[2] / "convert" / "explain"
    for code in [f"CNV-{number}" for number in (*range(2051, 2061), 8001, 8002, 8003)]:
        text = (pages / f"{code}.md").read_text()
        assert text.startswith(f"# {code}: "), code
        assert [part for part in ("## What happened", "## What to do", "## Example") if part not in text] == [], code
