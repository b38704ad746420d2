"""``convert explain`` for codes, words, logs, and what is none of them."""

import json
from pathlib import Path

import pytest

from artifacts.cli import run_boundary
from convert.__main__ import cli

LOG = "ATC run failed, see the log\nE19010: No parser is registered for Op [a, optype [ai.onnx::1::B]].\n"


@pytest.fixture
def explain(capsys):
    def run(*words: str) -> tuple[int, str, str]:
        code = run_boundary(cli, ["explain", *words], prog="convert", usage_code="CNV-2000")
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_a_code_of_ours_shows_its_page(explain):
    code, out, _ = explain("7261")
    assert code == 0
    assert out.startswith("# CNV-7261: ")


def test_a_vendors_code_shows_what_it_means_before_and_since_a_version(explain):
    code, out, _ = explain("e10001")
    assert code == 0
    assert out.count("[atc") == 2


def test_a_word_shows_the_page_to_go_to_and_each_vendors_advice(explain):
    code, out, _ = explain("OP_NOT_SUPPORTED", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["code"] == "CNV-7261"
    assert {"atc", "magicmind", "migraphx", "tensorrt"} <= {cause["vendor"] for cause in document["causes"]}


def test_a_log_is_read_and_its_vendor_found_out(explain, tmp_path: Path):
    (tmp_path / "compile.log").write_text(LOG)
    code, out, _ = explain(str(tmp_path / "compile.log"), "--json")
    document = json.loads(out)
    assert code == 0
    assert (document["vendor"], document["known"], document["code"]) == ("atc", True, "CNV-7261")
    assert document["nodes"] == ["a"]
    assert document["also"]


def test_a_log_comes_from_standard_input(explain, monkeypatch, tmp_path: Path):
    (tmp_path / "log").write_text(LOG)
    with (tmp_path / "log").open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        code, out, _ = explain("-")
    assert code == 0
    assert "page      convert explain CNV-7261" in out


def test_a_large_log_is_read_at_both_ends(explain, tmp_path: Path):
    (tmp_path / "log").write_bytes(LOG.encode() + b"x\n" * (4 << 20))
    code, out, _ = explain(str(tmp_path / "log"), "--vendor", "atc")
    assert code == 0
    assert "CNV-7261" in out


def test_a_log_that_nothing_is_known_of_shows_its_last_lines(explain, tmp_path: Path):
    (tmp_path / "log").write_text("all is well\nerror: frob\n")
    code, out, _ = explain(str(tmp_path / "log"))
    assert code == 0
    assert "error: frob" in out
    assert "not known" in out


@pytest.mark.parametrize(
    ("what", "code", "hint"),
    [
        ("OP_NOT_SUPORTED", "CNV-2261", "OP_NOT_SUPPORTED"),
        ("E1901O", "CNV-2261", "E19010"),
        ("CNV-9999", "CNV-2008", "near it"),
        ("x" * 5000, "CNV-2261", "convert explain"),
        ("a\0b", "CNV-2261", "convert explain"),
    ],
)
def test_what_is_not_known_gets_the_nearest(explain, what, code, hint):
    exit_code, _, err = explain(what)
    assert exit_code == 2
    assert code in err and hint in err


def test_a_folder_is_no_log(explain, tmp_path: Path):
    exit_code, out, _ = explain(str(tmp_path), "--json")
    assert exit_code == 2
    assert json.loads(out)["error"]["code"] == "CNV-2262"


def test_an_unknown_vendor_gets_the_nearest(explain, tmp_path: Path):
    (tmp_path / "log").write_text(LOG)
    exit_code, _, err = explain(str(tmp_path / "log"), "--vendor", "migrafx")
    assert exit_code == 2
    assert "did you mean migraphx?" in err
