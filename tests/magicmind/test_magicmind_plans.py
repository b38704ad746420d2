"""Plans of the magicmind backend: goldens, each taken by the stand-in of its version, and what no plan may hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from magicmind_kit import BACKEND, built, graph_of, header, plan_of, toolchain_of

from artifacts.digest import FileEntry
from convert.backends.base import Toolchain
from convert.backends.magicmind.options import OWN, WIDE
from convert.backends.magicmind.planning import SCRIPT, SETTINGS
from convert.backends.magicmind.versions import keys, lacks, level_of
from convert.errors import UsageError
from convert.values import CompileOptions, Plan
from op_registry.targets import find_target

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "plans" / "magicmind"


class Case(NamedTuple):
    """One request. ``dims``: name → sizes."""

    target: str
    version: str
    precision: str = "fp16"
    graph: str = "dense"
    dims: dict[str, str] = {}  # noqa: RUF012
    options: dict[str, str] = {}  # noqa: RUF012
    keep: tuple[str, ...] = ()
    calibration: int = 0
    soc: str = ""


CASES = {
    "0.13-fp16": Case("MLU370-X4", "0.13.0"),
    "0.14-print-ir": Case("MLU370-X8", "0.14.0", "fp32", options={"print_ir": "true", "tfu_enable": "false"}),
    "0.14-int8": Case("MLU370-S4", "0.14.0", "int8", calibration=2, options={"weight_quant_granularity": "per_axis"}),
    "1.0-range": Case("MLU370-S4", "1.0.1", "fp16", "open", {"N": "1..8"}),
    "1.3-fixed-batch": Case("MLU370-X4", "1.3.0", "fp32", "open", {"N": "4"}),
    "1.5-family": Case("MLU370", "1.5.0", options={"computation_preference": "fast"}),
    "1.6-family-soc": Case("MLU370", "1.6.0", soc="MLU370-S4"),
    "1.7-fp16": Case("MLU370-X4", "1.7.0"),
    "1.7-fp32-no-fusion": Case("MLU370-X4", "1.7.0", "fp32", options={"fusion_enable": "false"}),
    "1.7-two-ranges": Case("MLU370-X8", "1.7.0", "fp16", "image-open", {"N": "1,4,8", "S": "6..12"}),
    "1.7-layouts": Case(
        "MLU370-X4", "1.7.0", "fp16", "image", options={"input_layout": "NHWC", "output_layout": "0:NHWC"}
    ),
    "1.7-layout-range": Case(
        "MLU370-X4", "1.7.0", "fp16", "image-open", {"N": "1..4", "S": "6"}, {"input_layout": "NHWC"}
    ),
    "1.7-int64": Case("MLU370-X4", "1.7.0", "fp16", "text-open", {"N": "1..4"}),
    "1.7-int8": Case("MLU370-X4", "1.7.0", "int8", "image", calibration=3),
    "1.7-int8-samples": Case("MLU370-X4", "1.7.0", "int8", options={"calibration_algo": "eqnm"}),
    "1.7-int8-range": Case("MLU370-X4", "1.7.0", "int8", "open", {"N": "1..8"}, calibration=2),
    "1.7-int8-keep": Case("MLU370-X4", "1.7.0", "int8", keep=("last",), calibration=1),
    "1.7-int8-remote": Case(
        "MLU370-X4", "1.7.0", "int8", calibration=2, options={"rpc_server": "10.0.0.7:9009", "calibration_samples": "1"}
    ),
    "1.7-qint16": Case("MLU370-X4", "1.7.0", "int8", options={"precision_mode": "qint16_mixed_float32"}),
    "1.7-int8-custom-nodes": Case(
        "MLU370-X4", "1.7.0", "int8", "image",
        options={"custom_nodes": '{"IConvNode":{"input":{"1":{"quant_granularity":"per_axis"}}}}',
                 "precision_config.activation_quant_algo": "asymmetric"},
    ),
    "1.7-mixed": Case("MLU370-X4", "1.7.0", "mixed", keep=("last", "first")),
    "1.7-mixed-nothing-kept": Case("MLU370-X4", "1.7.0", "mixed"),
    "1.7-mlu590": Case("MLU590", "1.7.0", options={"conv_scale_fold": "true", "compute_determinism": "true"}),
    "1.7-clusters": Case("MLU370", "1.7.0", options={"clusters": "2,6,8", "fusion_retry": "off"}),
    "1.7-any-clusters": Case("MLU370-X4", "1.7.0", options={"clusters": "any", "enable_refit": "true"}),
}  # fmt: skip


def planned(case: Case) -> tuple[Plan, Any]:
    graph = graph_of(case.graph, case.dims, calibration=case.calibration)
    more = {"options": case.options, "keep": case.keep, "soc": case.soc}
    return plan_of(case.target, case.version, graph, case.precision, **more), graph


def settings_of(name: str) -> dict[str, Any]:
    return dict(json.loads(planned(CASES[name])[0].files[SETTINGS]))


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_the_one_written_down(name: str, request: pytest.FixtureRequest) -> None:
    told = msgspec.to_builtins(planned(CASES[name])[0])
    told["files"][SCRIPT] = "<child_job.py>"
    told["files"][SETTINGS] = json.loads(told["files"][SETTINGS])
    path = GOLDEN / f"{name}.json"
    text = json.dumps(told, indent=2, sort_keys=True) + "\n"
    if request.config.getoption("--update-goldens"):
        path.write_text(text)
    assert path.read_text() == text


def test_every_golden_has_its_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_magicmind_of_that_version_takes_the_plan(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    plan, graph = planned(case)
    monkeypatch.chdir(tmp_path)
    said = built(plan, case.graph, graph, case.version)
    assert said["outputs"] == [f"main/{spec.name}" for spec in graph.outputs]
    wrote = header()
    assert wrote["kept"] == sorted(case.keep)
    assert wrote["mode"] == settings_of(name)["config"]["precision_config"]["precision_mode"]
    assert wrote["input_kinds"] == [{"float32": "FLOAT32", "int64": "INT32"}[spec.dtype] for spec in graph.inputs]


def test_a_card_has_its_clusters_and_a_family_those_of_all_its_cards() -> None:
    assert settings_of("1.0-range")["config"]["archs"] == [{"mtp_372": [6]}]
    assert settings_of("1.7-fp16")["config"]["archs"] == [{"mtp_372": [8]}]
    assert settings_of("1.5-family")["config"]["archs"] == [{"mtp_372": [6, 8]}]
    assert settings_of("1.6-family-soc")["config"]["archs"] == [{"mtp_372": [6]}]
    assert settings_of("1.7-mlu590")["config"]["archs"] == ["mtp_592"]
    assert settings_of("0.13-fp16")["config"]["archs"] == ["mtp_372"]


def test_a_range_is_told_in_the_inputs_own_layout_and_a_scalar_as_one_element() -> None:
    assert settings_of("1.7-layout-range")["config"]["dim_range"] == {"0": {"min": [1, 3, 6, 6], "max": [4, 3, 6, 6]}}
    assert settings_of("1.7-int64")["config"]["dim_range"]["1"] == {"min": [1], "max": [1]}


def test_a_list_of_sizes_is_a_range_and_the_plan_says_so() -> None:
    plan, _ = planned(CASES["1.7-two-ranges"])
    note = next(note for note in plan.notes if "range of sizes" in note.text)
    assert "N 1 to 8, S 6 to 12" in note.text and "no list of sizes" in note.text


def test_int8_on_the_samples_is_a_warning_and_calibration_data_are_none() -> None:
    assert [note.level for note in planned(CASES["1.7-int8-samples"])[0].notes] == ["warning"]
    assert planned(CASES["1.7-int8"])[0].notes == ()
    assert settings_of("1.7-int8-remote")["calibration"]["files"] == ["calibration/000.npz"]


def test_a_mixed_plan_says_what_is_not_public() -> None:
    notes = planned(CASES["1.7-mixed"])[0].notes
    assert [note.level for note in notes] == ["warning"] and "not public" in notes[0].text
    assert "force_float16 here" in planned(CASES["1.7-mixed-nothing-kept"])[0].notes[0].text


def test_an_opset_or_a_release_that_nothing_shows_is_a_warning() -> None:
    plan = plan_of("MLU370-X4", "2.1.0", graph_of("dense", opset=12))
    assert [note.level for note in plan.notes] == ["warning", "warning"]


def test_weights_beside_the_graph_are_a_warning() -> None:
    graph = graph_of("dense")
    beside = FileEntry(name="model.onnx.data", sha256="sha256:" + "0" * 64, bytes=1)
    plan = plan_of("MLU370-X4", "1.7.0", msgspec.structs.replace(graph, files=(*graph.files, beside)))
    assert "model.onnx.data" in {note.subject for note in plan.notes}


@pytest.mark.parametrize(
    ("case", "code", "words"),
    [
        (Case("MLU370-X4", "1.7.0", "bf16"), "CNV-2072", "bf16"),
        (Case("MLU290", "1.7.0"), "CNV-2222", "builds nothing for MLU290"),
        (Case("MLU590", "0.14.0"), "CNV-2222", "does not know MLU590"),
        (Case("MLU370-X4", "0.7.1"), "CNV-2227", "older than 0.13"),
        (Case("MLU370-X4", "1.7.0", "fp16", "open"), "CNV-2267", "N has none"),
        (Case("MLU370-X4", "1.7.0", options={"fusion_enabel": "false", "x": "1"}), "CNV-2071", "'fusion_enabel', 'x'"),
        (Case("MLU370-X4", "1.7.0", options={"fusion_enable": "no"}), "CNV-2075", "true, false"),
        (Case("MLU370-X4", "1.7.0", options={"clusters": "8,x"}), "CNV-2075", "clusters"),
        (Case("MLU370-X4", "1.7.0", "int8", options={"rpc_server": "host"}), "CNV-2075", "address"),
        (Case("MLU370-X4", "1.7.0", "int8", options={"custom_nodes": "[1]"}), "CNV-2075", "object"),
        (Case("MLU370-X4", "1.7.0", options={"precision_mode": "force_float32"}), "CNV-2075", "force_float16"),
        (Case("MLU370-X4", "1.7.0", options={"tfu_enable": "true"}), "CNV-2221", "seen with 0.13 to 0.14"),
        (Case("MLU370-X4", "0.14.0", options={"computation_preference": "fast"}), "CNV-2221", "1.0 to 1.7"),
        (Case("MLU370-X4", "0.14.0", options={"clusters": "8"}), "CNV-2221", "1.0 and later"),
        (Case("MLU370-X4", "1.7.0", options={"archs": "x", "dim_range": "y"}), "CNV-2224", "archs"),
        (Case("MLU370-X4", "1.7.0", options={"rpc_server": "a:1", "custom_nodes": "{}"}), "CNV-2223", "quantized"),
        (
            Case("MLU370-X4", "1.7.0", "fp16", "open", {"N": "1..8"}, {"graph_shape_mutable": "false"}),
            "CNV-2223",
            "fixed sizes",
        ),
        (
            Case("MLU370-X4", "1.7.0", "fp16", "text", options={"type64to32_conversion": "false"}),
            "CNV-2223",
            "64 bits",
        ),
        (Case("MLU370-X4", "1.7.0", "fp16", "image", options={"input_layout": "NCHW"}), "CNV-2226", "none of"),
        (Case("MLU370-X4", "1.7.0", options={"input_layout": "NHWC"}), "CNV-2226", "no tensor has 4"),
        (Case("MLU370-X4", "1.7.0", "fp16", "image", options={"output_layout": "0:NTC"}), "CNV-2226", "has 4 dim"),
        (Case("MLU370-X4", "1.7.0", "fp16", "image", options={"output_layout": "7:NHWC"}), "CNV-2226", "0 to 0"),
    ],
)
def test_what_can_not_be_done_is_refused(case: Case, code: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        planned(case)
    assert refused.value.code == code
    assert refused.value.hint


def test_int8_without_a_card_or_a_remote_is_refused_and_planned_for_another_machine() -> None:
    graph, target = graph_of("dense", calibration=1), find_target("MLU370-X4")
    options = CompileOptions(target=target.name, backend="magicmind", precision="int8")
    with pytest.raises(UsageError, match="no card") as refused:
        BACKEND.plan(graph, target, options, Toolchain(name="MagicMind", version="1.7.0"))
    assert refused.value.code == "CNV-2225" and "rpc_server" in refused.value.hint
    assert BACKEND.plan(graph, target, options, BACKEND.assumed()).needs["calibration"] == "a card"


def test_int8_without_any_data_is_refused() -> None:
    graph = msgspec.structs.replace(graph_of("dense"), files=(), sample_count=0)
    with pytest.raises(UsageError, match="calibrated on data"):
        plan_of("MLU370-X4", "1.7.0", graph, "int8")


def test_every_key_names_its_source() -> None:
    assert all(key.source and (key.takes or key.instead) for key in keys().values())


VALUES = {"true|false": ["true", "false", "yes"], "true": ["true", "false"], "json": ["{}", "[", '{"a":{}}']}
WORDS = {
    "input_layout": ["NHWC", "0:NHWC", "NTC", "NCHW"],
    "output_layout": ["NHWC", "0:NTC"],
    "clusters": ["6", "2,8", "any", "0", "x"],
    "fusion_retry": ["on", "off", "yes"],
    "precision_mode": ["force_float32", "qint8_mixed_float32", "qint16_mixed_float16", "fp16"],
    "calibration_algo": ["linear", "eqnm", "kl"],
    "calibration_samples": ["1", "0", "-1"],
    "device": ["0", "1", "x"],
    "rpc_server": ["10.0.0.7:9009", "x"],
}
GRAPHS = [("dense", {}), ("open", {"N": "1..8"}), ("open", {"N": "4"}), ("open", {}), ("image", {}), ("text", {}),
          ("image-open", {"N": "1,2", "S": "6..8"}), ("text-open", {"N": "1..4"})]  # fmt: skip
REFUSED = {f"CNV-{number}" for number in (2071, 2072, 2075, 2221, 2222, 2223, 2224, 2225, 2226, 2227, 2267)}


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, Any, str, dict[str, str]]:
    options = {}
    for name in draw(st.lists(st.sampled_from([*keys(), *OWN, "no_such_key"]), max_size=4, unique=True)):
        takes = keys()[name].takes if name in keys() else ""
        values = WORDS.get(name) or VALUES.get(takes) or [*takes.split("|"), "odd"]
        options[draw(st.sampled_from([name, name.rpartition(".")[2]]))] = draw(st.sampled_from(values))
    kind, dims = draw(st.sampled_from(GRAPHS))
    graph = graph_of(kind, dims, calibration=draw(st.sampled_from([0, 1])))
    version = draw(st.sampled_from(["0.7.1", "0.13.0", "0.14.0", "1.0.1", "1.5.0", "1.7.0", "2.0.0"]))
    target = draw(st.sampled_from(["MLU370", "MLU370-S4", "MLU370-X4", "MLU590", "MLU580", "MLU290"]))
    return target, version, graph, draw(st.sampled_from(["fp32", "fp16", "bf16", "int8", "mixed"])), options


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_no_plan_holds_an_unknown_key_or_an_excluded_pair(request_: tuple[str, str, Any, str, dict[str, str]]) -> None:
    target, version, graph, precision, options = request_
    keep = ("last",) if precision == "mixed" else ()
    wanted = CompileOptions(target=target, backend="magicmind", precision=precision, options=options, keep=keep)  # type: ignore[arg-type]
    try:
        plan = BACKEND.plan(graph, find_target(target), wanted, toolchain_of(version))
    except UsageError as refused:
        assert refused.code in REFUSED and refused.hint
        return
    job = json.loads(plan.files[SETTINGS])
    config, level = job["config"], level_of(version)
    outer = {"precision_mode", "archs", "dim_range", "convert_input_layout", "convert_output_layout"}
    for name, value in config.items():
        for path in [f"{name}.{inner}" for inner in value] if f"{name}" in OUTER else [name]:
            key = keys().get(path)
            assert path.rpartition(".")[2] in outer or (key is not None and not lacks(key, level))
    ranged = "dim_range" in config
    assert not (ranged and not config["graph_shape_mutable"])
    assert ranged == any(dim.low != dim.high and len(dim.sizes) != 1 for dim in graph.dims)
    quantized = config["precision_config"]["precision_mode"].startswith("qint")
    assert quantized == (precision == "int8") == ("calibration" in job)
    wide = any(spec.dtype in WIDE for spec in (*graph.inputs, *graph.outputs))
    assert config["opt_config"]["type64to32_conversion"] or not wide
    assert bool(job["retry"]) is not ("fusion_enable" in config.get("debug_config", {})) or not job["retry"]


OUTER = {"precision_config", "opt_config", "debug_config"}
