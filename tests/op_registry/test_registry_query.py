"""Questions without a graph, surveys of one, and the pages made of the data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from op_registry import render
from op_registry.errors import UnknownOperator, UnknownTarget
from op_registry.overlay import SiteRow
from op_registry.query import diff_ops, list_ops, parse_side, show_op
from op_registry.support import installed_onnxruntime
from op_registry.survey import OUTCOMES, coverage, matrix, without_members
from op_registry.targets import all_targets, find_target

ROOT = Path(__file__).resolve().parents[2]


def model(*ops: str, opset: int = 17) -> object:
    nodes = [
        helper.make_node(op, ["x" if i == 0 else f"v{i - 1}"], [f"v{i}"], name=f"n{i}") for i, op in enumerate(ops)
    ]
    names = ("x", f"v{len(ops) - 1}")
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 4, 4]) for name in names]
    return helper.make_model(
        helper.make_graph(nodes, "g", info[:1], info[1:]), opset_imports=[helper.make_opsetid("", opset)]
    )


def test_a_list_for_a_chip_tells_the_engine() -> None:
    ops = {entry.op: entry.state for entry in list_ops("ascend", "8.5", target=find_target("Ascend310P3")).ops}
    assert (ops["Relu"], ops["Det"]) == ("ok", "slow")


def test_one_operator_is_shown_at_every_vendor_with_rules_and_second_evidence() -> None:
    shown = show_op("reducemax")
    views = {view.vendor: view for view in shown.vendors}
    assert shown.op == "ReduceMax"
    assert [entry.state for entry in views["ascend"].entries] == ["ok", "risk"]
    assert views["iluvatar"].entries[0].state == "unknown"
    assert any("axes of opset 18" in rule.reason for rule in views["ascend"].rules)
    assert {item.provider for item in shown.evidence} >= {"CANN", "MIGraphX", "OpenVINO", "QNN"}


def test_an_operator_is_shown_at_the_version_asked_for() -> None:
    (view,) = [v for v in show_op("ReduceMax", {"ascend": "9.2"}).vendors if v.vendor == "ascend"]
    assert [entry.state for entry in view.entries] == ["ok"]


def test_an_operator_of_another_domain_is_asked_for_with_it() -> None:
    (view,) = [v for v in show_op("npu::NPUMish").vendors if v.vendor == "ascend"]
    assert (view.entries[0].opsets, view.kernels[0].name) == ((1,), "Mish")


def test_an_unknown_operator_gets_the_nearest() -> None:
    with pytest.raises(UnknownOperator) as caught:
        show_op("Reducemaxx")
    assert caught.value.code == "CNV-2505"
    assert caught.value.hint.startswith("did you mean ReduceMax or ")


def test_two_versions_are_compared() -> None:
    found = diff_ops(parse_side("ascend@8.5"), parse_side("9.2", "ascend"))
    assert {change.op for change in found.changes} >= {"ReduceMax", "ReduceMean", "ScatterND"}
    assert {change.kind for change in found.changes} == {"changed"}
    assert next(c for c in found.changes if c.op == "ReduceMax").before == "ok 8-17, risk 18"


def test_two_chips_of_one_version_differ_where_their_engines_do() -> None:
    found = diff_ops(parse_side("Ascend310P3"), parse_side("Ascend910B3"))
    assert {change.op: change.kind for change in found.changes}["NonMaxSuppression"] == "lost"


def test_two_vendors_are_compared() -> None:
    found = diff_ops(parse_side("amd@rocm-7.2"), parse_side("nvidia"))
    kinds = {change.op: change.kind for change in found.changes}
    assert (kinds["BlackmanWindow"], kinds["BitwiseAnd"]) == ("gained", "lost")
    assert found.same > 100


def test_equal_sides_do_not_differ() -> None:
    assert diff_ops(parse_side("cambricon"), parse_side("MLU370")).changes == ()


def test_a_side_that_is_neither_vendor_nor_target_is_an_error() -> None:
    with pytest.raises(UnknownTarget):
        parse_side("nobody@1.0")


def test_the_matrix_has_every_target_and_one_outcome_for_each() -> None:
    found = matrix(model("Relu", "Det"), name="m.onnx", sha256="sha256:0")
    assert [row.target for row in found.rows] == [target.name for target in all_targets()]
    assert {row.outcome for row in found.rows} <= set(OUTCOMES)
    outcomes = {row.target: row.outcome for row in found.rows}
    assert outcomes["cpu"] == "runnable"
    assert outcomes["gfx942"] == "blocked"
    assert outcomes["Kunlun-K200"] == "no compiler"
    assert outcomes["BI-V100"] == "unknown"


def test_the_matrix_names_what_is_in_the_way() -> None:
    (row,) = matrix(model("Relu", "Det", "Det"), name="m", sha256="", targets=[find_target("MI300X")]).rows
    assert [(item.op, item.nodes) for item in row.blocked_by] == [("Det", 2)]


def test_a_graph_at_the_wrong_opset_is_judged_where_it_can_be_brought() -> None:
    asked: list[int] = []

    def at_opset(opset: int) -> object:
        asked.append(opset)
        return model("Relu", opset=opset)

    (row,) = matrix(
        model("Relu", opset=20), name="m", sha256="", targets=[find_target("Ascend910B")], at_opset=at_opset
    ).rows
    assert (row.outcome, row.opset, row.best_opset, row.blocked_by, asked) == ("with rewrites", 20, 17, (), [17])


def test_a_graph_that_can_be_brought_nowhere_is_blocked() -> None:
    wanted = [find_target("Ascend910B")]
    (row,) = matrix(model("Relu", opset=20), name="m", sha256="", targets=wanted, at_opset=lambda opset: None).rows
    assert (row.outcome, [item.op for item in row.blocked_by]) == ("blocked", ["Relu"])
    (row,) = matrix(model("Relu", "Gelu", opset=20), name="m", sha256="", targets=wanted).rows
    assert (row.outcome, [item.op for item in row.blocked_by]) == ("blocked", ["Gelu"])


def test_families_stand_for_their_parts() -> None:
    rows = without_members(matrix(model("Relu"), name="m", sha256="").rows)
    names = [row.target for row in rows]
    assert "Ascend910B" in names
    assert "Ascend910B3" not in names
    assert len(names) == len(set(names))


def test_coverage_tells_the_share_for_each_table() -> None:
    found = {
        (row.vendor, row.toolchain_version): row for row in coverage(model("Relu", "Det", "Gelu"), ["ascend", "amd"])
    }
    assert set(found) >= {("ascend", "6.0"), ("ascend", "9.2"), ("amd", "2.2"), ("amd", "2.16")}
    assert found["ascend", "9.2"].refused_ops == ("Gelu",)
    assert found["ascend", "9.2"].taken == pytest.approx(2 / 3)
    assert found["amd", "2.2"].refused_ops == ("Det", "Gelu")


@pytest.mark.parametrize("name", sorted(render.pages()))
def test_the_pages_in_docs_are_those_that_the_data_give(name: str) -> None:
    if name in ("onnxruntime.md", "README.md") and installed_onnxruntime() not in ("", "1.32.0"):
        pytest.skip("another ONNX Runtime is installed than the one written down")
    written = (ROOT / "docs" / "reference" / "operators" / name).read_text(encoding="utf-8")
    assert written == render.pages()[name], "run python -m op_registry.render"


def test_no_page_is_left_over() -> None:
    assert {path.name for path in render.DOCS.iterdir()} == set(render.pages())


def test_asking_without_a_graph_imports_no_onnx() -> None:
    code = (
        "import op_registry.query as q, op_registry.learn, op_registry.render, op_registry.targets as t, sys, json;"
        "q.list_ops('ascend'); q.show_op('Conv'); t.all_targets();"
        "kept_out = {'onnx', 'onnxruntime', 'numpy', 'torch', 'prefect', 'convert', 'artifacts'};"
        "print(json.dumps(sorted(kept_out & set(sys.modules))))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(run.stdout) == []


def test_a_sites_own_rows_come_first_in_what_is_shown_and_compared():
    lines = tuple(
        SiteRow(
            vendor="amd", versions=versions, arch=arch, domain="", op=op, opsets="*", state="refused", note=note,
            source="our own card",
        )
        for versions, arch, op, note in ((">=2.15", "", "Conv", "slow here"), ("", "gfx90a", "OurOwn", ""))
    )  # fmt: skip
    (view,) = [v for v in show_op("Conv", site=lines).vendors if v.vendor == "amd"]
    assert [(e.state, e.grade, e.note) for e in view.entries if e.grade == "site"] == [("refused", "site", "slow here")]
    (view,) = [v for v in show_op("ourown", site=lines).vendors if v.vendor == "amd"]
    assert [(e.state, e.note) for e in view.entries] == [("refused", "gfx90a only")]
    bare = diff_ops(parse_side("amd@2.14"), parse_side("amd@2.15"))
    told = diff_ops(parse_side("amd@2.14"), parse_side("amd@2.15"), site=lines)
    assert "Conv" in {c.op for c in told.changes} - {c.op for c in bare.changes}
