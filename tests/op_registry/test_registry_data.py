"""The registry's numbers against the tables they were made from, where those lie beside this checkout."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from op_registry.query import list_ops, providers
from op_registry.support import installed_onnxruntime, load_support
from op_registry.tables import DATA, parse_opsets, read_csv
from op_registry.targets import PRECISIONS, all_socs, all_targets, find_target
from op_registry.vendors import all_vendors

SOURCES = Path(__file__).resolve().parents[3] / "shared" / "vendors"
needs_sources = pytest.mark.skipif(not SOURCES.is_dir(), reason="the source tables are not beside this checkout")
ASCEND = {
    "5.1": "opsets_2022_canndev",
    "6.0": "opsets_2022_canndev",
    "6.3.RC1": "opsets_msit_table",
    "7.0.0": "opsets_msit_table",
    "8.1.RC1": "opsets_msit_table",
    "8.4": "opsets_msit_table",
    "8.5.0": "opsets_8.5.0_open",
    "9.0.0": "opsets_8.5.0_open",
    "9.1.0": "opsets_9.1.0_open",
    "9.2.0-beta.1": "opsets_2026_master",
    "9.2": "opsets_2026_master",
}
TENSORRT = {"8.4": "8.4", "8.6": "8.6", "9.3": "9.3", "10.1": "10.1", "10.15": "10.15"}


def source(name: str) -> list[dict[str, str]]:
    with (SOURCES / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def read_set(vendor: str, version: str) -> set[tuple[str, str, int]]:
    listed = list_ops(vendor, version).ops
    return {(entry.domain, entry.op, o) for entry in listed if entry.grade == "read" for o in entry.opsets}


@needs_sources
@pytest.mark.parametrize("version", ASCEND)
def test_every_opset_read_for_a_cann_version_is_that_of_its_table(version: str) -> None:
    expected = set()
    for row in source("ascend/onnx_ops.csv"):
        cell = re.sub(r"\(.*?\)", "", row[ASCEND[version]]).strip()
        domain = "" if row["domain"] == "ai.onnx" else row["domain"]
        expected |= {(domain, row["op_type"], opset) for opset in parse_opsets(cell) or ()}
    assert read_set("ascend", version) == expected


@needs_sources
def test_what_closed_libraries_may_hold_is_expected_and_not_read() -> None:
    rows = source("ascend/onnx_ops.csv")
    closed = {
        (r["domain"].replace("ai.onnx", ""), r["op_type"])
        for r in rows
        if r["opsets_2026_master"] and not r["opsets_8.5.0_open"]
    }
    found = {(e.domain, e.op): (e.state, e.grade) for e in list_ops("ascend", "8.5").ops}
    listed = {name: found[name] for name in closed}
    assert {("", "Conv"), ("", "Gemm"), ("", "MaxPool")} < closed
    assert set(listed.values()) == {("ok", "inferred")}


@needs_sources
def test_every_operator_known_to_be_absent_from_cann_is_refused_with_a_source() -> None:
    absent = {row["op_type"] for row in source("ascend/onnx_ops_absent.csv")}
    refused = {e.op for e in list_ops("ascend", "9.2").ops if e.state == "refused" and e.source}
    assert refused == absent


@needs_sources
def test_the_kernels_of_every_ascend_operator_are_those_of_the_map() -> None:
    table = load_support("ascend", "8.5.0")
    for row in source("ascend/onnx_op_ascend_map.csv"):
        domain = "" if row["domain"] == "ai.onnx" else row["domain"]
        expected = {}
        for part in row["ascend_ir_ops_and_8.1.RC1_kernel_coverage"].split("; "):
            name, inner = re.fullmatch(r"(\w+)\[(.*)\]", part).groups()
            core = re.search(r"AICore:([\w/]+)", inner)
            expected[name] = (
                frozenset(core[1].split("/")) if core else frozenset(),
                bool(re.search("AICPU|TFk", inner)),
            )
        found = {k.name: (k.aicore, k.aicpu) for k in table.kernels[domain, row["op_type"]]}
        assert found == expected, row["op_type"]


@needs_sources
def test_all_soc_names_of_the_platform_lists_are_parts() -> None:
    names = [row["soc_version"] for row in source("ascend/soc.csv")]
    assert [soc.name for soc in all_socs() if soc.vendor == "ascend"] == names
    assert len(names) == 89


@needs_sources
def test_members_of_an_ascend_family_are_the_parts_of_its_short_name() -> None:
    rows = source("ascend/soc.csv")
    for family in (t for t in all_targets() if t.vendor == "ascend" and t.kind == "family"):
        assert set(family.members) == {r["soc_version"] for r in rows if r["short_soc_version"] == family.name}


@needs_sources
@pytest.mark.parametrize("version", ["2.2", "2.4", "2.7", "2.8", "2.11", "2.15", "2.16"])
def test_migraphx_takes_what_it_has_registered_since_that_version_or_before(version: str) -> None:
    expected = set()
    for row in source("migraphx/onnx_ops.csv"):
        since = re.match(r"(<=)?(\d+\.\d+)", row["since_migraphx"])
        if since and int(since[2].split(".")[1]) <= int(version.split(".")[1]):
            expected.add(row["op_type"])
    assert {entry.op for entry in list_ops("amd", version).ops if entry.any_opset} == expected


@needs_sources
def test_every_operator_that_migraphx_has_no_parser_for_is_refused() -> None:
    missing = {row["op_type"] for row in source("migraphx/onnx_ops.csv") if row["supported"] == "no"}
    assert missing == {e.op for e in list_ops("amd").ops if e.state == "refused" and e.grade == "read"}


@needs_sources
def test_silently_wrong_values_of_migraphx_are_risks_that_were_measured() -> None:
    wrong = {row["op_type"] for row in source("migraphx/onnx_ops.csv") if row["silent_wrong"]}
    rules = load_support("amd", "2.15").rules
    for op in wrong:
        assert any(rule.state == "risk" and rule.grade == "measured" for rule in rules["", op]), op


@needs_sources
@pytest.mark.parametrize("version", TENSORRT)
def test_tensorrt_takes_and_refuses_what_its_page_says(version: str) -> None:
    rows = [row for row in source("tensorrt/onnx_ops.csv") if row["tensorrt_version"] == TENSORRT[version]]
    listed = list_ops("nvidia", version).ops
    taken = {row["op"] for row in rows if row["supported"] == "yes"}
    assert {e.op for e in listed if e.any_opset} == taken
    # The page of 8.4 has HardSwish both ways; it is taken from 8.6 on at the latest.
    assert {e.op for e in listed if e.state == "refused"} == {r["op"] for r in rows if r["supported"] == "no"} - taken


@needs_sources
def test_magicmind_tiers_stand_as_they_are() -> None:
    tiers = {
        r["op_type"]: re.match(r"E\dp?", r["source"])[0]
        for r in source("cambricon/onnx_ops.csv")
        if r["op_type"][0] != "("
    }
    states = {"E1": "ok", "E1p": "ok", "E2": "unknown", "E0": "unknown"}
    found = {}
    for line in read_csv(DATA / "cambricon" / "ops.csv", ("op", "tier", "state")):
        found.setdefault(line.text("op"), (line.text("tier"), line.text("state")))
    assert found == {op: (tier, states[tier]) for op, tier in tiers.items()}


@needs_sources
def test_second_evidence_holds_every_line_of_the_providers() -> None:
    expected = {
        (r["op"], r["provider"], r["listed"], mode) for r in source("versions/ort_ep_ops.csv") for mode in [r["mode"]]
    }
    found = {(e.op, e.provider, e.listed, mode) for e in providers() for mode in e.modes.split()}
    assert {item for item in found if item[1] != "TPU-MLIR"} == expected


@needs_sources
def test_second_evidence_holds_every_name_of_the_tpu_compiler() -> None:
    names = json.loads((SOURCES / "pypi" / "tpu_mlir_onnx_ops.json").read_text(encoding="utf-8"))
    assert {item.op for item in providers() if item.provider == "TPU-MLIR"} == set(names)


CARDS = {
    "310": "Ascend310", "310P": "Ascend310P3", "310B": "Ascend310B1", "910A": "Ascend910A", "910B (A2)": "Ascend910B",
    "A3 (910C)": "Ascend910_9392", "MLU370": "MLU370-X4", "MLU590": "MLU590", "Z100 (gfx906)": "Z100",
    "K100_AI (gfx928)": "K100_AI", "BW100/BW150/BW1000 (gfx936)": "BW1000", "C500": "C500", "A100 (8.0)": "A100",
    "MI210 (gfx90a)": "MI210", "MI300X (gfx942)": "MI300X", "BI-V150": "BI-V150",
}  # fmt: skip


@needs_sources
@pytest.mark.parametrize("card", CARDS)
def test_the_precisions_of_a_card_are_those_of_its_row(card: str) -> None:
    words = {"part": "partial", "hf32": "partial"}
    row = next(row for row in source("versions/precision.csv") if row["card"] == card)
    assert find_target(CARDS[card]).precisions == {name: words.get(row[name], row[name]) for name in PRECISIONS}


def test_bf16_on_k100_is_partial_whatever_a_lesser_table_says() -> None:
    assert find_target("K100").precisions["bf16"] == "partial"


@pytest.mark.parametrize(
    ("version", "at_risk"),
    [
        ("8.5.0", {"Max", "Min", "Mean", "Prod", "LogSum", "LogSumExp", "SumSquare"}),
        ("9.0.0", {"Max", "Min", "Mean", "Prod", "LogSum", "LogSumExp", "SumSquare"}),
        ("9.1.0", {"Mean", "SumSquare"}),
        ("9.2", set()),
        ("8.1.RC1", set()),
    ],
)
def test_reduce_at_opset_18_is_a_risk_exactly_where_axes_are_not_read(version: str, at_risk: set[str]) -> None:
    risky = {e.op for e in list_ops("ascend", version).ops if e.state == "risk" and e.opsets == (18,)}
    assert risky == {f"Reduce{name}" for name in at_risk}


def test_every_row_and_rule_of_every_vendor_names_its_source() -> None:
    for vendor in all_vendors().values():
        table = load_support(vendor.name, vendor.default_version)
        assert all(row.source for rows in table.rows.values() for row in rows)
        assert all(rule.source and rule.reason for rules in table.rules.values() for rule in rules)


def test_every_rule_is_about_an_operator_that_some_version_takes() -> None:
    for vendor in all_vendors().values():
        names = {(line.get("domain"), line.text("op")) for line in _lines(vendor.name, "ops.csv")}
        for line in _lines(vendor.name, "rules.csv"):
            for op in line.text("op").split():
                assert op in ("(graph)", "*") or (line.get("domain"), op) in names, f"{vendor.name}: {op}"


def _lines(vendor: str, name: str) -> list:
    path = DATA / vendor / name
    return list(read_csv(path, ("op", "domain"))) if path.exists() else []


def test_the_cpu_table_written_down_is_that_of_the_installed_onnx_runtime() -> None:
    from op_registry.generate import installed_rows, table_text

    written = load_support("onnxruntime", "")
    if written.version != "1.32.0" or installed_onnxruntime() != "1.32.0":
        pytest.skip("another ONNX Runtime is installed; its own table is read instead")
    rows, newest = installed_rows()
    assert table_text(rows) == (DATA / "onnxruntime" / "ops.csv").read_text(encoding="utf-8")
    assert newest == written.newest_opset


def test_another_onnx_runtime_than_the_one_written_down_is_read_from_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("op_registry.support.installed_onnxruntime", lambda: "9.9.9")
    table = load_support.__wrapped__("onnxruntime", "")
    assert table.version == "9.9.9"
    assert table.rows["", "Conv"][0].types["0"] >= {"float32"}


def test_makers_without_a_public_compiler_are_listed_without_a_backend() -> None:
    assert {target.vendor for target in all_targets() if not target.backend} == {"kunlunxin", "biren"}
