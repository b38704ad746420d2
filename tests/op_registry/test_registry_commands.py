"""``convert ops``, ``convert targets`` and ``convert matrix`` as users run them."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from convert.__main__ import main


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    monkeypatch.setenv("CONVERT_OPS_OVERLAY", str(tmp_path / "overlay.csv"))
    # A worker is a process of its own, and finds the program from any folder.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    monkeypatch.chdir(tmp_path)

    def call(*argv: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["convert", *argv])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return call


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="r"), helper.make_node("Det", ["a"], ["y"], name="d")]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 4]) for name in ("x", "y")]
    onnx.save(
        helper.make_model(
            helper.make_graph(nodes, "g", info[:1], info[1:]), opset_imports=[helper.make_opsetid("", 17)]
        ),
        path,
    )
    return path


def test_ops_list_prints_the_promised_document(run) -> None:
    code, out, _ = run("ops", "list", "--vendor", "ascend", "--toolchain-version", "8.5", "--json")
    document = json.loads(out)
    assert (code, document["schema"], document["vendor"], document["toolchain_version"]) == (0, 1, "ascend", "8.5")
    relu = next(op for op in document["ops"] if op["op"] == "Relu")
    assert {key: relu[key] for key in ("domain", "opsets", "state", "grade")} == {
        "domain": "",
        "opsets": list(range(8, 19)),
        "state": "ok",
        "grade": "read",
    }
    assert relu["source"].startswith("hicann/")


def test_ops_list_can_be_narrowed(run) -> None:
    _, out, _ = run("ops", "list", "--vendor", "ascend", "--state", "risk", "--match", "reduceM*", "--json")
    assert {op["op"] for op in json.loads(out)["ops"]} == {"ReduceMax", "ReduceMean", "ReduceMin"}
    code, out, _ = run("ops", "list", "--target", "Ascend910B3", "--match", "Det")
    assert (code, "slow" in out) == (0, True)


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["ops", "list"], "CNV-2000"),
        (["ops", "list", "--vendor", "acme"], "CNV-2503"),
        (["ops", "list", "--vendor", "ascend", "--toolchain-version", "new"], "CNV-2502"),
        (["ops", "show", "NoSuchOperator"], "CNV-2505"),
        (["ops", "diff", "ascend@8.5", "nobody"], "CNV-2501"),
        (["ops", "learn", "."], "CNV-2506"),
        (["targets", "Ascend910X"], "CNV-2501"),
        (["matrix", "none.onnx"], "CNV-3"),
    ],
)
def test_what_cannot_be_answered_is_an_error_with_a_code_and_a_page(run, argv: list[str], error: str) -> None:
    from convert.commands.explain import pages

    code, out, err = run(*argv, "--json")
    told = json.loads(out)["error"]
    assert told["code"].startswith(error)
    assert told["code"] in pages()
    assert code == told["exit_code"] == int(error[4])
    assert f"error [{told['code']}]" in err


def test_ops_show_and_diff_print_tables_and_json(run) -> None:
    _, out, _ = run("ops", "show", "ReduceMax", "--at", "ascend@9.2")
    assert "CANN 9.2" in out
    _, out, _ = run("ops", "show", "ReduceMax", "--json")
    assert json.loads(out)["op"] == "ReduceMax"
    _, out, _ = run("ops", "diff", "8.5", "9.2", "--vendor", "ascend")
    assert "ReduceMax" in out
    _, out, _ = run("ops", "diff", "ascend@8.5", "ascend@9.2", "--json")
    assert json.loads(out)["changes"][0]["kind"] == "changed"


def test_ops_learn_fills_the_overlay_and_the_list_shows_it(run, tmp_path: Path) -> None:
    log = tmp_path / "atc.log"
    log.write_text("E19010 No parser is registered for Op [n, optype [ai.onnx::17::Relu]]")
    argv = ("ops", "learn", str(log), "--toolchain-version", "8.5.0")
    code, out, _ = run(*argv, "--dry-run", "--json")
    assert (code, json.loads(out)["overlay"], (tmp_path / "overlay.csv").exists()) == (0, None, False)
    code, out, _ = run(*argv)
    assert (code, "written to" in out) == (0, True)
    _, out, _ = run("ops", "list", "--vendor", "ascend", "--match", "Relu", "--json")
    entries = [(op["state"], op["grade"], op["opsets"]) for op in json.loads(out)["ops"]]
    assert ("refused", "site", [17]) in entries


def test_a_malformed_overlay_stops_everything_that_would_use_it(run, tmp_path: Path) -> None:
    (tmp_path / "overlay.csv").write_text("vendor\nascend\n")
    code, _, err = run("ops", "list", "--vendor", "ascend")
    assert (code, "CNV-2504" in err, "line 1" in err) == (2, True, True)


def test_coverage_of_a_model_is_told_by_version(run, model: Path) -> None:
    code, out, _ = run("ops", "coverage", str(model), "--vendor", "amd", "--json")
    rows = json.loads(out)["coverage"]
    assert (code, {row["vendor"] for row in rows}) == (0, {"amd"})
    assert rows[-1]["refused_ops"] == ["Det"]


def test_the_matrix_prints_a_grid_a_document_and_a_page(run, model: Path, tmp_path: Path) -> None:
    code, out, _ = run("matrix", str(model), "--html", "m.html")
    assert code == 0
    assert "Det ×1" in out
    page = (tmp_path / "m.html").read_text(encoding="utf-8")
    assert "Ascend910B" in page
    assert "http" not in page
    assert "<script" not in page
    _, out, _ = run("matrix", str(model), "--target", "MI300X", "--target", "cpu", "--json")
    document = json.loads(out)
    assert [(row["target"], row["outcome"]) for row in document["rows"]] == [("MI300X", "blocked"), ("cpu", "runnable")]
    assert document["rows"][0]["precisions"]["fp16"] == "yes"


def test_the_page_escapes_what_strangers_named(run, model: Path, tmp_path: Path) -> None:
    hostile = tmp_path / "<img src=x>.onnx"
    hostile.write_bytes(model.read_bytes())
    run("matrix", str(hostile), "--target", "cpu", "--html", "m.html")
    assert "<img" not in (tmp_path / "m.html").read_text(encoding="utf-8")


def test_targets_are_listed_and_shown(run) -> None:
    _, out, _ = run("targets", "--vendor", "hygon")
    assert "K100_AI" in out
    _, out, _ = run("targets", "--json")
    assert len(json.loads(out)["targets"]) > 150
    _, out, _ = run("targets", "a2")
    assert "Ascend910B4-1" in out
    _, out, _ = run("targets", "K100", "--json")
    assert json.loads(out)["target"]["precisions"]["bf16"] == "partial"
