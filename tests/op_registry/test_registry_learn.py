"""A site's overlay: reading, merging, learning from a toolkit or a log, and what it changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from op_registry.errors import MalformedData, UnreadableSource
from op_registry.judge import judge_model
from op_registry.learn import learn
from op_registry.overlay import (
    COLUMNS,
    SiteRow,
    merged,
    overlay_digest,
    overlay_path,
    overlay_text,
    read_overlay,
    rows_for,
    write_overlay,
)
from op_registry.query import list_ops
from op_registry.targets import find_target

HEAD = ",".join(COLUMNS)


def line(
    op: str, *, vendor: str = "ascend", versions: str = "==8.5.0", state: str = "ok", opsets: str = "8-18"
) -> SiteRow:
    return SiteRow(
        vendor=vendor, versions=versions, arch="", domain="", op=op, opsets=opsets, state=state, note="", source="us"
    )  # type: ignore[arg-type]


def relu_and_gelu() -> object:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="r"), helper.make_node("Gelu", ["a"], ["y"], name="g")]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_an_overlay_written_is_read_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "ops.csv"
    lines = tuple(sorted((line("Gelu"), line("Det", state="refused", opsets="*"))))
    assert read_overlay(write_overlay(lines, path)) == lines
    assert sorted(item.name for item in path.parent.iterdir()) == ["ops.csv"]


def test_no_overlay_is_an_empty_one(tmp_path: Path) -> None:
    assert read_overlay(tmp_path / "none.csv") == ()
    assert overlay_digest(tmp_path / "none.csv") == ""


def test_the_overlay_lies_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVERT_OPS_OVERLAY", str(tmp_path / "mine.csv"))
    assert overlay_path() == tmp_path / "mine.csv"
    monkeypatch.delenv("CONVERT_OPS_OVERLAY")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert overlay_path() == tmp_path / "model-convert" / "ops.csv"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("acme,,,,Relu,*,ok,,us", "column 'vendor' holds 'acme'"),
        ("ascend,>>8,,,Relu,*,ok,,us", "is no version range"),
        ("ascend,,,,Relu,,ok,,us", "column 'opsets' is empty"),
        ("ascend,,,,Relu,*,fine,,us", "column 'state' holds 'fine'"),
        ("ascend,,,,Relu,*,ok,,", "column 'source' is empty"),
    ],
)
def test_a_malformed_overlay_is_refused_with_its_line(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "ops.csv"
    path.write_text(f"{HEAD}\n{text}\n")
    with pytest.raises(MalformedData) as caught:
        read_overlay(path)
    assert "ops.csv, line 2: " in caught.value.message
    assert why in caught.value.message


def test_what_a_site_widens_is_shown_as_site_and_never_silently_ok() -> None:
    target = find_target("Ascend910B3")
    assert [one.op for one in judge_model(relu_and_gelu(), target).judged] == ["Gelu"]
    found = judge_model(relu_and_gelu(), target, site=[line("Gelu")])
    assert found.supported
    assert [(one.op, one.state, one.grade, one.source) for one in found.judged] == [("Gelu", "ok", "site", "us")]


def test_what_a_site_refuses_is_refused_whatever_the_table_says() -> None:
    found = judge_model(relu_and_gelu(), find_target("Ascend910B3"), site=[line("Relu", state="refused")])
    assert {(one.op, one.grade) for one in found.judged} == {("Relu", "site"), ("Gelu", "read")}


def test_a_line_holds_for_its_version_and_architecture_only() -> None:
    lines = [line("Gelu", versions=">=9.2")]
    assert rows_for(lines, "ascend", "8.5.0") == ()
    assert [row.op for row in rows_for(lines, "ascend", "9.2")] == ["Gelu"]
    assert rows_for(lines, "amd", "9.2") == ()


def test_the_list_shows_rows_of_the_site() -> None:
    entries = {
        e.op: (e.state, e.grade) for e in list_ops("ascend", "8.5.0", site=[line("Gelu")]).ops if e.grade == "site"
    }
    assert entries == {"Gelu": ("ok", "site")}


def test_news_of_an_operator_replace_what_was_said_before() -> None:
    assert merged([line("Gelu"), line("Det")], [line("Gelu", state="refused")]) == (
        line("Det"),
        line("Gelu", state="refused"),
    )


def cann(folder: Path, names: list[str], *, version: str = "8.1.RC1") -> Path:
    plugins = folder / "opp" / "built-in" / "framework" / "onnx"
    plugins.mkdir(parents=True)
    (plugins / "libops_all_onnx_plugin.so").write_bytes(
        b"\x7fELF\0" + b"\0".join(name.encode() for name in names) + b"\0"
    )
    (folder / "version.cfg").write_text(f"# version\nVersion={version}\n")
    return folder


def registered(version: str) -> list[str]:
    ops = [e for e in list_ops("ascend", version).ops if e.grade == "read" and e.state != "refused"]
    return [f"{e.domain or 'ai.onnx'}::{o}::{e.op}" for e in ops for o in e.opsets]


def test_an_installed_cann_that_is_as_the_table_has_it_teaches_nothing(tmp_path: Path) -> None:
    learned = learn(cann(tmp_path, registered("8.1.RC1")))
    assert (learned.kind, learned.toolchain_version, learned.lines) == ("installed CANN", "8.1.rc1", ())
    assert learned.agree > 200


def test_an_installed_cann_teaches_what_it_has_more_and_less(tmp_path: Path) -> None:
    names = [name for name in registered("8.1.RC1") if "::Det" not in name] + ["ai.onnx::17::Gelu", "mine::1::Special"]
    learned = learn(cann(tmp_path, names))
    told = {(item.domain, item.op, item.opsets, item.state) for item in learned.lines}
    assert told == {("", "Gelu", "17", "ok"), ("mine", "Special", "1", "ok"), ("", "Det", "8-18", "refused")}
    assert {item.versions for item in learned.lines} == {"==8.1.rc1"}


def test_a_part_of_a_registry_says_nothing_of_what_it_lacks(tmp_path: Path) -> None:
    learned = learn(cann(tmp_path, ["ai.onnx::17::Gelu"]))
    assert [(item.op, item.state) for item in learned.lines] == [("Gelu", "ok")]
    assert "nothing is concluded" in learned.notes[0]


def test_a_folder_without_plug_ins_teaches_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSource, match="holds no ONNX plug-ins") as caught:
        learn(tmp_path)
    assert caught.value.code == "CNV-2506"


def test_a_check_report_of_atc_teaches_every_operator_that_failed(tmp_path: Path) -> None:
    ops = [
        {
            "name": "a",
            "type": "ai.onnx::13::Resize",
            "result": "failed",
            "cause": [{"code": 1, "message": "type unknown"}],
        },
        {"name": "b", "type": "ai.onnx::13::Relu", "result": "success", "cause": []},
        {"name": "c", "type": "not a type", "result": "failed"},
    ]
    path = tmp_path / "check_result.json"
    path.write_text(json.dumps([{"name": "m", "result": "failed", "op": ops}]))
    learned = learn(path, version="8.5.0")
    told = {(item.op, item.opsets, item.state, item.note) for item in learned.lines}
    assert told == {("Resize", "13", "refused", "type unknown"), ("Relu", "13", "ok", "passed ATC's check")}


@pytest.mark.parametrize("content", ["{", "[]", '{"op": 3}', "[" * 100_000])
def test_a_report_that_says_nothing_is_an_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "check_result.json"
    path.write_text(content)
    with pytest.raises(UnreadableSource):
        learn(path, version="8.5.0")


@pytest.mark.parametrize(
    ("text", "vendor", "version", "told"),
    [
        (
            "E19010: No parser is registered for Op [n, optype [ai.onnx::13::Resize]]\n"
            "   No parser is registered for Op [m, optype [ai.onnx::13::Det]]",
            "ascend", "8.1.RC1", {("Resize", "13"), ("Det", "13")},
        ),
        (
            "E13010: No operator plugin is registered for Op: n, optype: ai.onnx::18::Gelu.",
            "ascend", "8.5", {("Gelu", "18")},
        ),
        ("what():  onnx_parser.cpp:625: parse_graph: Unknown operator: Det", "amd", "2.15", {("Det", "*")}),
        ("No importer registered for op: Det. Attempting to import as plugin.", "nvidia", "10.15", {("Det", "*")}),
        (
            "openvino_compile: openvino 2026.4.1-22\n-- No conversion rule found for operations: Det-17, my.ai.Foo\n",
            "intel", "", {("Det", "*"), ("Foo", "*")},
        ),
        (
            "INFO : TPU-MLIR v1.30.2-20260831\nRuntimeError: Op not support:{'Det', 'Selu'}",
            "sophgo", "", {("Det", "*"), ("Selu", "*")},
        ),
        ("my.ai:Foo(-1) is not a registered function/op", "qualcomm", "2.7.0", {("Foo", "*")}),
        ("No lowering found for: bad, node type = Det, use Custom", "rockchip", "2.5.0", {("Det", "*")}),
    ],
)  # fmt: skip
def test_a_failed_compile_teaches_what_it_refused(
    tmp_path: Path, text: str, vendor: str, version: str, told: set[tuple[str, str]]
) -> None:
    path = tmp_path / "compile.log"
    path.write_text(text)
    learned = learn(path, version=version)
    assert learned.vendor == vendor
    assert {(item.op, item.opsets) for item in learned.lines} == told
    assert {item.state for item in learned.lines} == {"refused"}


def test_a_missing_kernel_holds_for_the_chip_of_the_log_only(tmp_path: Path) -> None:
    path = tmp_path / "compile.log"
    path.write_text("EZ3003: No supported Ops kernel and engine are found for [n], optype [LogicalAnd].")
    assert "add --target" in learn(path, version="8.5").notes[0]
    (told,) = learn(path, version="8.5", target=find_target("Ascend310P3")).lines
    assert (told.op, told.arch, told.state) == ("And", "Ascend310P", "refused")


def test_a_list_of_migraphx_driver_teaches_what_differs(tmp_path: Path) -> None:
    names = sorted({e.op for e in list_ops("amd", "2.15").ops if e.any_opset} - {"Tan"} | {"Det"})
    path = tmp_path / "onnx.txt"
    path.write_text("\n".join(names))
    learned = learn(path, version="2.15")
    assert {(item.op, item.state) for item in learned.lines} == {("Det", "ok"), ("Tan", "refused")}
    hygon = learn(path, vendor="hygon", version="4.0")
    assert {item.state for item in hygon.lines} == {"ok"}


def test_what_is_learned_needs_a_version_to_hold_for(tmp_path: Path) -> None:
    path = tmp_path / "compile.log"
    path.write_text("Unknown operator: Det")
    with pytest.raises(UnreadableSource) as caught:
        learn(path)
    assert "--toolchain-version" in caught.value.hint


@pytest.mark.parametrize("text", ["", "hello\nworld\n", "Conv\nRelu\n"])
def test_a_file_with_nothing_to_learn_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(UnreadableSource, match="nothing to learn"):
        learn(path, version="2.15")


def test_an_overlay_is_text_that_people_can_read() -> None:
    assert overlay_text([line("Gelu")]).splitlines() == [HEAD, "ascend,==8.5.0,,,Gelu,8-18,ok,,us"]


def test_what_is_known_of_this_very_version_stands_over_what_is_said_of_all() -> None:
    lines = (
        line("Gelu", versions=""),
        line("Gelu", versions=">=8.0"),
        line("Gelu", versions="==8.5.0", state="refused"),
    )
    states = [row.state for row in rows_for(lines, "ascend", "8.5.0")]
    assert states == ["refused", "ok", "ok"]
    judged = judge_model(relu_and_gelu(), find_target("Ascend310P3"), toolchain_version="8.5.0", site=lines)
    assert [(node.node, node.state) for node in judged.judged] == [("g", "refused")]


REFUSED_FORM = (
    "TPU-MLIR v1.30.2-20260831\n<unknown>:0: error: loc(\"y_Einsum\"): 'top.Einsum' op attribute 'mode' failed"
)


def with_einsum(equation: str) -> object:
    node = helper.make_node("Einsum", ["x", "w"], ["y"], name="product", equation=equation)
    info = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [2, 3]), ("y", [2]))
    ]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    graph = helper.make_graph([node], "g", info[:1], info[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_a_refused_form_is_learned_with_its_attributes_and_no_other_form_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "compile.log"
    log.write_text(REFUSED_FORM)
    with pytest.raises(UnreadableSource, match="a form of Einsum, and which one isn't told"):
        learn(log)
    (tmp_path / "failing").mkdir()
    (tmp_path / "failing" / "model.onnx").write_bytes(with_einsum("ij,j->i").SerializeToString())  # type: ignore[attr-defined]
    learned = learn(log)
    assert [(line.op, line.when, line.versions) for line in learned.lines] == [
        ("Einsum", "attr equation is ij,j->i", "==1.30.2")
    ]
    path = write_overlay(merged((line("Gelu"),), learned.lines), tmp_path / "site.csv")
    site = read_overlay(path)
    assert site == merged((line("Gelu"),), learned.lines)
    target = find_target("BM1684X")
    known = judge_model(with_einsum("ij,j->i"), target, site=site)
    assert [(one.node, one.state, one.grade) for one in known.judged] == [("product", "refused", "site")]
    assert judge_model(with_einsum("ji,i->j"), target, site=site).supported


def test_a_form_that_openvino_refuses_is_learned_too(tmp_path: Path) -> None:
    log = tmp_path / "compile.log"
    log.write_text(
        "openvino_compile: openvino 2026.4.1-22\nSummary:\n-- Conversion is failed for: Einsum-17, Conv-17\n"
    )
    (tmp_path / "failing").mkdir()
    (tmp_path / "failing" / "model.onnx").write_bytes(with_einsum("ij,j->i").SerializeToString())  # type: ignore[attr-defined]
    learned = learn(log)
    assert [(line.vendor, line.op, line.when) for line in learned.lines] == [
        ("intel", "Einsum", "attr equation is ij,j->i")
    ]
    assert learned.notes == ("Conv: which form isn't told",)


def test_a_second_refusal_of_one_operator_tells_that_its_plug_in_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "compile.log"
    site: tuple[SiteRow, ...] = ()
    told = []
    for opset in (17, 13):
        path.write_text(f"E13010: No operator plugin is registered for Op: n, optype: ai.onnx::{opset}::Det.")
        learned = learn(path, version="8.5.0", site=site)
        site = merged(site, learned.lines)
        told.append([item.opsets for item in site])
    assert told == [["17"], ["8-18"]]


def test_an_overlay_with_a_condition_that_cannot_be_read_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text(f"{HEAD},when\nsophgo,,,,Einsum,*,refused,,us,attr equation looks odd\n")
    with pytest.raises(MalformedData, match=r"line 2.*'looks' can't be asked of attr"):
        read_overlay(path)
