"""Plans of the migraphx backend: goldens, each taken by the stand-in of its version, and what no plan may hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from migraphx_requests import BACKEND, accepted, graph_of, plan_of

from convert.backends.base import Toolchain
from convert.backends.migraphx.options import SWITCHES, VARIABLES, WORDS
from convert.backends.migraphx.planning import SCRIPT
from convert.backends.migraphx.versions import FLAGS, dialect_of
from convert.errors import UsageError
from convert.values import CompileOptions, Plan
from op_registry.targets import find_target

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "plans" / "migraphx"


class Case(NamedTuple):
    """One request. ``dims``: name → sizes."""

    target: str
    version: str
    precision: str
    graph: str = "fixed"
    dims: dict[str, str] = {}  # noqa: RUF012
    options: dict[str, str] = {}  # noqa: RUF012
    keep: tuple[str, ...] = ()
    calibration: int = 0


CASES = {
    "2.2-fp16": Case("MI50", "2.2.0", "fp16"),
    "2.2-fixed-batch": Case("MI50", "2.2.0", "fp32", "open", {"N": "4"}),
    "2.5-int8": Case("MI100", "2.5.0", "int8", calibration=2),
    "2.6-one-range": Case("MI210", "2.6.0", "fp16", "open", {"N": "1..8"}),
    "2.7-two-ranges": Case("MI210", "2.7.0", "fp16", "two", {"N": "1,2,4", "K": "16"}),
    "2.8-fp32": Case("MI210", "2.8.0", "fp32"),
    "2.9-fp8": Case("MI300X", "2.9.0", "fp32", options={"fp8": "on"}),
    "2.10-dim-param": Case("MI210", "2.10.0", "fp16", "two", {"N": "1..8", "K": "16"}),
    "2.11-int4": Case("MI210", "2.11.0", "fp16", options={"int4-weights": "on", "mlir": "on"}),
    "2.12-bf16": Case("MI210", "2.12.0", "bf16"),
    "2.13-tuned": Case("MI300X", "2.13.0", "fp16", options={"exhaustive-tune": "on", "disable-fast-math": "on"}),
    "2.14-device-buffers": Case("MI210", "2.14.0", "fp16", options={"enable-offload-copy": "off"}),
    "2.15-int8": Case("MI210", "2.15.0", "int8", "open", {"N": "4"}),
    "2.15-int8-rest-fp16": Case("MI210", "2.15.0", "int8", options={"fp16": "on", "calibration-samples": "8"}),
    "2.15-int8-driver": Case("MI210", "2.15.0", "int8", options={"calibration": "driver"}),
    "2.15-mixed": Case("MI210", "2.15.0", "mixed", keep=("last",)),
    "2.15-mixed-nothing-kept": Case("MI210", "2.15.0", "mixed"),
    "2.15-passes": Case("MI210", "2.15.0", "fp16", options={"apply-pass": "simplify_algebra,eliminate_identity"}),
    "2.15-ref": Case("migraphx-ref", "2.15.0", "fp32", "open", {"N": "1..8"}),
    "2.15-variable": Case("MI210", "2.15.0", "fp16", options={"MIGRAPHX_DISABLE_MLIR": "1"}),
    "2.16-range": Case("MI300X", "2.16.0", "fp16", "open", {"N": "1,4,8"}),
    "2.16-ref-int8": Case("migraphx-ref", "2.16.0", "int8", calibration=1),
    "2.16-symbols": Case("gfx942", "2.16.0", "bf16", options={"debug-symbols": "on"}),
    "dtk-fp16": Case("K100_AI", "4.0.0", "fp16", "open", {"N": "4"}),
    "dtk-range": Case("BW1000", "4.0.0", "fp16", "open", {"N": "1..8"}),
    "dtk-z100-int8": Case("Z100", "4.0.0", "int8"),
}


def planned(case: Case) -> tuple[Plan, Any]:
    graph = graph_of(case.graph, case.dims, case.calibration)
    plan = plan_of(case.target, case.version, graph, case.precision, options=case.options, keep=case.keep)
    return plan, graph


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_the_one_written_down(name: str, request: pytest.FixtureRequest) -> None:
    told = msgspec.to_builtins(planned(CASES[name])[0])
    if SCRIPT in told["files"]:
        told["files"][SCRIPT] = "<child_compile.py>"
    path = GOLDEN / f"{name}.json"
    text = json.dumps(told, indent=2, sort_keys=True) + "\n"
    if request.config.getoption("--update-goldens"):
        path.write_text(text)
    assert path.read_text() == text


def test_every_golden_has_its_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_driver_of_that_version_takes_the_plan(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    plan, graph = planned(case)
    monkeypatch.chdir(tmp_path)
    assert accepted(plan, case.graph, graph, case.version, find_target(case.target).arch) == ""


def test_the_file_stands_before_every_flag_that_takes_a_list() -> None:
    plan, _ = planned(CASES["2.10-dim-param"])
    assert plan.argv.index("model/model.onnx") == 2
    assert plan.argv[-2:] == ("-o", "out/model.mxr")


def test_each_number_of_a_shape_is_a_word_of_its_own() -> None:
    plan, _ = planned(CASES["2.2-fixed-batch"])
    assert plan.argv[plan.argv.index("--input-dim") :][:4] == ("--input-dim", "@x", "4", "8")


def test_a_range_has_both_forms_for_2_16_and_the_old_one_before() -> None:
    assert "[{min:1,max:8,optimals:[1,4,8],range:{min:1,max:8}}]" in planned(CASES["2.16-range"])[0].argv
    assert "[{min:1,max:8}]" in planned(CASES["2.10-dim-param"])[0].argv


def test_calibration_takes_the_data_made_for_it_else_the_samples_and_says_so() -> None:
    with_data, _ = planned(CASES["2.5-int8"])
    without, _ = planned(CASES["2.15-int8"])
    assert json.loads(with_data.files["migraphx_compile.json"])["calibration"] == ["calibration"]
    assert with_data.notes == ()
    assert json.loads(without.files["migraphx_compile.json"])["calibration"] == ["samples"]
    assert without.notes[0].level == "warning" and "--calibration" in without.notes[0].text


def test_pairs_of_the_graph_say_themselves_what_is_int8() -> None:
    graph = msgspec.structs.replace(graph_of("open", {"N": "1..8"}), ops={"QuantizeLinear": 1, "DequantizeLinear": 2})
    plan = plan_of("MI210", "2.15.0", graph, "int8")
    assert plan.argv[0] == "migraphx-driver" and "--int8" not in plan.argv
    assert "own pairs" in plan.notes[0].text


def test_nodes_that_int8_can_not_keep_in_float_are_told() -> None:
    plan = plan_of("MI210", "2.15.0", graph_of("fixed", calibration=1), "int8", keep=("last",))
    assert [note.level for note in plan.notes] == ["warning"]
    assert "not by nodes" in plan.notes[0].text


def test_a_mixed_plan_casts_the_graph_itself_and_says_why() -> None:
    plan, _ = planned(CASES["2.15-mixed"])
    assert plan.argv[2] == "model/mixed.onnx"
    assert "--fp16" not in plan.argv
    assert json.loads(plan.files["mixed.json"]) == {"keep": ["last"], "precision": "fp16"}
    assert "takes no list of nodes" in plan.notes[0].text


def test_what_is_for_a_card_is_left_out_on_the_reference_target_and_told() -> None:
    plan, _ = planned(Case("migraphx-ref", "2.15.0", "fp16", options={"exhaustive-tune": "on", "mlir": "on"}))
    assert plan.argv == ("migraphx-driver", "compile", "model/model.onnx", "--ref", "--fp16", "-o", "out/model.mxr")
    assert "for a card: exhaustive-tune, mlir" in plan.notes[0].text


def test_a_bundle_gets_the_script_that_measures_on_the_device() -> None:
    plan, graph = planned(CASES["2.15-mixed"])
    files = BACKEND.device_files(plan, graph)
    settings = json.loads(files["migraphx_run.json"])
    assert settings["samples"] == [["samples/000.npz", "measured/000.npz"]]
    assert (settings["artifact"], settings["host"]) == ("out/model.mxr", True)
    compile(files["migraphx_run.py"], "migraphx_run.py", "exec")


def test_an_artifact_is_tied_to_version_arch_and_format() -> None:
    needs = planned(CASES["2.16-range"])[0].needs
    assert {"version": "2.16", "arch": "gfx942", "card": "gfx942", "mxr": "8"}.items() <= needs.items()
    assert planned(CASES["dtk-fp16"])[0].needs["toolchain"] == "DTK"


def test_a_plan_for_another_machine_takes_the_version_that_is_asked_for() -> None:
    def assumed(target: str, version: str = "") -> Plan:
        options = CompileOptions(target=target, backend="migraphx", precision="fp16", toolchain_version=version)
        return BACKEND.plan(graph_of("fixed"), find_target(target), options, BACKEND.assumed())

    assert assumed("MI210").needs["version"] == "2.15"
    assert assumed("MI210", "rocm-6.0").needs["version"] == "2.8"
    assert assumed("K100").needs["toolchain"] == "DTK"
    assert assumed("K100").argv[0] == "migraphx-driver"


REFUSALS = [
    ("CNV-2071", Case("MI210", "2.15.0", "fp16", options={"exhaustve-tune": "on"})),
    ("CNV-2075", Case("MI210", "2.15.0", "fp16", options={"mlir": "yes"})),
    ("CNV-2075", Case("MI210", "2.15.0", "int8", options={"calibration-samples": "many"})),
    ("CNV-2241", Case("MI210", "2.8.0", "fp16", options={"fp8": "on", "mlir": "on"})),
    ("CNV-2241", Case("K100", "4.0.0", "fp16", options={"exhaustive-tune": "on"})),
    ("CNV-2242", Case("MI210", "2.15.0", "fp16", options={"skip-unknown-operators": "on"})),
    ("CNV-2242", Case("MI210", "2.15.0", "fp16", options={"--batch": "4"})),
    ("CNV-2243", Case("MI210", "2.15.0", "int8", "open", {"N": "1..8"})),
    ("CNV-2243", Case("MI300X", "2.15.0", "int8", options={"fp8": "on"})),
    ("CNV-2244", Case("MI210", "2.5.0", "fp16", "open", {"N": "1..8"})),
    ("CNV-2244", Case("MI210", "2.15.0", "fp16", "open", {"N": "1.."})),
    ("CNV-2244", Case("MI210", "2.15.0", "fp16", "open")),
    ("CNV-2245", Case("MI210", "2.11.0", "bf16")),
    ("CNV-2072", Case("Z100", "4.0.0", "bf16")),
    ("CNV-2072", Case("MI210", "2.15.0", "fp16", options={"fp8": "on"})),
]  # fmt: skip


@pytest.mark.parametrize(("code", "case"), REFUSALS)
def test_what_a_version_or_a_target_does_not_take_is_refused_before_anything_runs(code: str, case: Case) -> None:
    with pytest.raises(UsageError) as refusal:
        planned(case)
    assert refusal.value.code == code
    assert refusal.value.hint


def test_all_options_that_a_version_lacks_are_named_at_once() -> None:
    with pytest.raises(UsageError) as refusal:
        planned(Case("MI210", "2.5.0", "fp16", options={"fp8": "on", "mlir": "on", "exhaustive-tune": "on"}))
    assert all(name in refusal.value.message for name in ("fp8 (since 2.9)", "mlir (since 2.11)", "exhaustive-tune"))


VERSIONS = [f"2.{minor}.0" for minor in range(2, 17)]
REQUESTS = st.builds(
    Case,
    target=st.sampled_from(["MI210", "MI300X", "gfx1030", "migraphx-ref"]),
    version=st.sampled_from(VERSIONS),
    precision=st.sampled_from(["fp32", "fp16", "bf16", "int8", "mixed"]),
    graph=st.sampled_from(["fixed", "open", "two"]),
    dims=st.fixed_dictionaries({"N": st.sampled_from(["4", "1..8", "1,2,8"]), "K": st.sampled_from(["16", "2..16"])}),
    options=st.dictionaries(st.sampled_from(sorted(SWITCHES)), st.sampled_from(["on", "off"]), max_size=3),
    keep=st.sampled_from([(), ("last",)]),
    calibration=st.sampled_from([0, 1]),
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
@given(case=REQUESTS)
def test_no_plan_holds_an_unknown_flag_or_an_excluded_pair(
    case: Case, tmp_path_factory: pytest.TempPathFactory
) -> None:
    try:
        plan, graph = planned(case)
    except UsageError as refusal:
        assert refusal.code in {"CNV-2072", "CNV-2241", "CNV-2243", "CNV-2244", "CNV-2245"}
        return
    if plan.argv[0] == "migraphx-driver":
        flags = [word for word in plan.argv if word.startswith("-")]
        assert set(flags) <= dialect_of(case.version).flags
        assert len(flags) == len(set(flags))
        assert len({"--gpu", "--ref"} & set(flags)) == 1
        assert not {"--input-dim", "--dyn-input-dim"} <= set(flags)
    folder = tmp_path_factory.mktemp("plan")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert accepted(plan, case.graph, graph, case.version, find_target(case.target).arch) == ""


def test_every_option_is_a_flag_of_the_driver_or_told_in_words() -> None:
    assert {f"--{name}" for name in SWITCHES} <= set(FLAGS)
    assert not set(WORDS) & set(SWITCHES)
    assert all(name.startswith("MIGRAPHX_") for name in VARIABLES)


def test_a_driver_outside_of_its_folder_keeps_its_path() -> None:
    details = {"flavour": "rocm", "program": "/opt/rocm/bin/migraphx-driver"}
    options = CompileOptions(target="migraphx-ref", backend="migraphx", precision="fp32")
    found = Toolchain(name="MIGraphX", version="2.15.0", details=details)
    plan = BACKEND.plan(graph_of("fixed"), find_target("migraphx-ref"), options, found)
    assert plan.argv[0] == "/opt/rocm/bin/migraphx-driver"
