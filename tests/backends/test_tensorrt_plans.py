"""Golden plans of the backend ``tensorrt``, each accepted by the strict stand-in of its release."""

import importlib.util
import json
from pathlib import Path

import msgspec
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trt_kit import DOUBLES, graph_like, model_for, options_of, run_double, spec, toolchain_of

from convert.backends.base import Toolchain
from convert.backends.tensorrt import TensorrtBackend
from convert.backends.tensorrt.flags import flags, release_of
from convert.errors import UsageError
from convert.values import DimRange, OnnxGraph
from op_registry.targets import find_target

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "plans" / "tensorrt"
DOUBLE = "trtexec/trtexec.py"
RELEASES = ("8.4.1", "8.5.3", "8.6.1", "9.2.0", "10.0.1", "10.8.0", "10.15.1", "10.16.0", "11.0.0", "11.1.0")
IMAGE = graph_like(spec("images", 1, 3, 8, 8))
BATCH = graph_like(spec("images", "N", 3, 8, 8), dims=(DimRange(name="N", low=1, high=8),))
STEPS = graph_like(
    spec("ids", "N", "T", dtype="int64"),
    spec("mask", "N", "T"),
    spec("scale", 2),
    dims=(DimRange(name="N", sizes=(1, 4, 8)), DimRange(name="T", low=16, high=128)),
)
ODD = graph_like(spec("input:0", "N", 4), dims=(DimRange(name="N", sizes=(4,)),))
QDQ = graph_like(spec("images", 1, 3, 8, 8), ops={"QuantizeLinear": 1, "DequantizeLinear": 1})
SAMPLED = graph_like(spec("images", 1, 3, 8, 8), sample_count=2, calibration_count=2, ops={"Conv": 1})
UNSAMPLED = graph_like(spec("images", 1, 3, 8, 8), ops={"MatMul": 2})

CASES = {
    "8.4_fp16_static": ("8.4.1", IMAGE, "fp16", {}, ()),
    "8.4_fp32_batch": ("8.4.1", BATCH, "fp32", {"workspace": "2048"}, ()),
    "8.6_fp16_batch_cache": ("8.6.1", BATCH, "fp16", {"timingCacheFile": "/var/cache/trt.bin", "opt": "N:4"}, ()),
    "8.6_portable": (
        "8.6.1",
        IMAGE,
        "fp16",
        {"versionCompatible": "1", "hardwareCompatibilityLevel": "ampere+"},
        (),
    ),
    "8.6_mixed": ("8.6.1", IMAGE, "mixed", {}, ("/block/Relu_0", "sum")),
    "8.6_int8_cache": ("8.6.1", IMAGE, "int8", {"calib": "/data/ranges.cache"}, ()),
    "9.2_bf16": ("9.2.0", BATCH, "bf16", {"builderOptimizationLevel": "4"}, ()),
    "10.0_quoted_name": ("10.0.1", ODD, "fp16", {}, ()),
    "10.8_two_dims": ("10.8.0", STEPS, "fp16", {"opt": "T:64", "maxTactics": "100"}, ()),
    "10.15_int8_of_the_model": ("10.15.1", QDQ, "int8", {}, ()),
    "10.15_int8_by_pairs_to_come": ("10.15.1", SAMPLED, "int8", {}, ("sum",)),
    "10.15_fp32_with_tf32": ("10.15.1", IMAGE, "fp32", {"tf32": "on"}, ()),
    "10.15_mixed_prefer": ("10.15.1", IMAGE, "mixed", {"precisionConstraints": "prefer"}, ("sum",)),
    "10.15_typed": ("10.15.1", IMAGE, "fp16", {"stronglyTyped": "true"}, ()),
    "11.0_fp16_cast": ("11.0.0", BATCH, "fp16", {}, ()),
    "11.1_mixed_cast": ("11.1.0", IMAGE, "mixed", {"workspace": "4096"}, ("sum",)),
    "11.1_int8": ("11.1.0", QDQ, "int8", {"noTF32": "true"}, ()),
    "11.1_fp32": ("11.1.0", STEPS, "fp32", {}, ()),
}


def plan_for(version: str, graph: OnnxGraph, precision: str, options: dict[str, str], keep: tuple[str, ...] = ()):
    request = msgspec.structs.replace(options_of("tensorrt", "L20", precision, **options), keep=keep)
    return TensorrtBackend().plan(graph, find_target("L20"), request, toolchain_of("TensorRT", version))


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_what_it_was(name: str, request: pytest.FixtureRequest):
    plan = plan_for(*CASES[name])
    text = json.dumps(msgspec.to_builtins(plan), indent=2) + "\n"
    path = GOLDEN / f"{name}.json"
    if request.config.getoption("--update-goldens"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", CASES)
def test_each_golden_plan_is_accepted_by_trtexec_of_its_release(name: str, tmp_path: Path):
    version, graph, *_ = CASES[name]
    plan = plan_for(*CASES[name])
    words = list(plan.argv[1:])
    model = model_for(graph, quantized="QuantizeLinear" in graph.ops)
    (tmp_path / "out").mkdir()
    for path in ("model/model.onnx", "model/cast.onnx"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        onnx.save(model, tmp_path / path)
    if any("--calib=" in word for word in words):
        (tmp_path / "ranges.cache").write_text("TRT-8601-EntropyCalibration2\n")
        words = [word.replace("/data/ranges.cache", str(tmp_path / "ranges.cache")) for word in words]
    code, text = run_double(DOUBLE, words, tmp_path, DOUBLE_TRT_VERSION=version)
    assert code == 0, text
    assert "&&&& PASSED" in text
    assert (tmp_path / "out" / plan.output).stat().st_size > 0


def test_goldens_are_those_of_the_cases():
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(CASES)


# ---------------------------------------------------------------------------------------------------- properties


@pytest.fixture(scope="module")
def double():
    spec_ = importlib.util.spec_from_file_location("trtexec_double", DOUBLES / DOUBLE)
    module = importlib.util.module_from_spec(spec_)
    spec_.loader.exec_module(module)
    return module


VALUES = {
    "switch": st.sampled_from(["true", "false", "maybe"]),
    "number": st.sampled_from(["4", "x"]),
    "file": st.sampled_from(["/a/b", "b"]),
    "text": st.sampled_from(["fp16:chw", "workspace:64"]),
}


@st.composite
def requests(draw):
    names = draw(
        st.lists(st.sampled_from([*flags(), "workspace", "tf32", "opt", "frobnicate"]), max_size=4, unique=True)
    )
    options = {}
    for name in names:
        takes = flags()[name].takes if name in flags() else "text"
        values = VALUES[takes] if takes in VALUES else st.sampled_from(takes.split("|"))
        options[name] = draw(st.sampled_from(["on", "off"]) if name == "tf32" else values)
    graph = draw(st.sampled_from([IMAGE, BATCH, STEPS, ODD, QDQ, SAMPLED]))
    keep = draw(st.sampled_from([(), ("sum",), ("/block/Relu_0", "sum")]))
    precision = draw(st.sampled_from(["fp32", "fp16", "bf16", "int8", "mixed"]))
    return draw(st.sampled_from(RELEASES)), graph, precision, options, keep


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(request_=requests())
def test_no_plan_holds_an_option_that_its_release_lacks_or_that_another_excludes(request_, double):
    try:
        plan = plan_for(*request_)
    except UsageError as refused:
        assert refused.code in {"CNV-2071", "CNV-2072", "CNV-2075", "CNV-2265", "CNV-2266", "CNV-2268", "CNV-2269"}
        assert refused.hint
        return
    double.RELEASE = tuple(int(part) for part in request_[0].split("."))
    options = double.parse(list(plan.argv[1:]))
    double.check_options(options)
    assert plan == plan_for(*request_)
    assert plan.needs["version"] == request_[0]
    assert {"skipInference", "buildOnly"} & set(options)
    if release_of(request_[0]) >= (11, 0):
        assert not {"fp16", "bf16", "int8", "calib", "layerPrecisions"} & set(options)


def test_the_table_and_the_stand_in_agree_on_which_release_has_what(double):
    known = {**double.SWITCHES, **double.VALUES}
    for version in RELEASES:
        double.RELEASE = tuple(int(part) for part in version.split("."))
        ours = {name for name, flag in flags().items() if flag.there(release_of(version))}
        assert ours <= {name for name, span in known.items() if double.there(span)}, version


# ---------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("version", "graph", "precision", "options", "code", "words"),
    [
        ("10.15.1", IMAGE, "fp16", {"versionCompatibel": "true"}, "CNV-2071", "did you mean versionCompatible?"),
        ("8.4.1", IMAGE, "fp16", {"versionCompatible": "true"}, "CNV-2265", "from 8.6 on"),
        ("11.0.0", IMAGE, "fp16", {"precisionConstraints": "obey"}, "CNV-2265", "types are those of the ONNX model"),
        ("10.15.1", IMAGE, "fp16", {"saveEngine": "/x"}, "CNV-2265", "--out"),
        ("10.15.1", IMAGE, "fp16", {"timingCacheFile": "x"}, "CNV-2075", "an absolute path"),
        ("10.15.1", IMAGE, "fp16", {"builderOptimizationLevel": "9"}, "CNV-2075", "0, 1, 2, 3, 4, 5"),
        ("10.15.1", IMAGE, "fp16", {"workspace": "much"}, "CNV-2075", "a number of MiB"),
        ("10.15.1", IMAGE, "fp16", {"workspace": "1", "memPoolSize": "workspace:1"}, "CNV-2266", "is both"),
        ("10.15.1", IMAGE, "fp16", {"excludeLeanRuntime": "true"}, "CNV-2266", "versionCompatible"),
        ("8.6.1", IMAGE, "bf16", {}, "CNV-2269", "9.0"),
        ("8.2.0", IMAGE, "fp16", {}, "CNV-2269", "8.4"),
        ("10.15.1", IMAGE, "int8", {}, "CNV-2268", "leave --precision out"),
        ("10.15.1", UNSAMPLED, "int8", {}, "CNV-2268", "--option calib=FILE"),
        ("11.0.0", UNSAMPLED, "int8", {}, "CNV-2268", "--calibration"),
        ("10.15.1", BATCH, "fp16", {"opt": "N:99"}, "CNV-2075", "N=1..8"),
        ("10.15.1", BATCH, "fp16", {"opt": "N"}, "CNV-2075", "opt=N:4"),
        ("10.15.1", IMAGE, "fp32", {"tf32": "perhaps"}, "CNV-2075", "off"),
    ],
)
def test_what_cannot_be_done_is_refused_with_advice(version, graph, precision, options, code, words):
    with pytest.raises(UsageError) as refused:
        plan_for(version, graph, precision, options)
    assert refused.value.code == code
    assert words in refused.value.hint


def test_an_open_dimension_needs_an_end():
    graph = graph_like(spec("x", "N", "M"), dims=(DimRange(name="N", low=1, high=0),))
    with pytest.raises(UsageError, match="N, M have none") as refused:
        plan_for("10.15.1", graph, "fp16", {})
    assert refused.value.code == "CNV-2267"


@pytest.mark.parametrize("name", ["it's", "a*b", "a\nb"])
def test_a_name_that_trtexec_cannot_be_told_is_refused(name):
    graph = graph_like(spec(name, "N"), dims=(DimRange(name="N", sizes=(2,)),))
    with pytest.raises(UsageError) as refused:
        plan_for("10.15.1", graph, "fp16", {})
    assert refused.value.code == "CNV-2270"


def test_a_precision_that_the_card_lacks_is_refused():
    with pytest.raises(UsageError) as refused:
        TensorrtBackend().plan(
            IMAGE, find_target("T4"), options_of("tensorrt", "T4", "bf16"), toolchain_of("TensorRT", "10.15.1")
        )
    assert refused.value.code == "CNV-2072"


def test_a_plan_for_another_machine_holds_no_path_of_this_one():
    here = Toolchain(name="TensorRT", version="10.15.1", details={"program": "/opt/tensorrt/bin/trtexec"})
    request = options_of("tensorrt", "L20")
    assert TensorrtBackend().plan(IMAGE, find_target("L20"), request, here).argv[0] == "/opt/tensorrt/bin/trtexec"
    assumed = TensorrtBackend().plan(IMAGE, find_target("L20"), request, TensorrtBackend().assumed())
    assert not any(word.startswith("/") for word in assumed.argv)


def test_an_engine_says_what_it_is_bound_to():
    plan = plan_for("8.6.1", IMAGE, "fp16", {})
    assert plan.needs == {"toolchain": "TensorRT", "version": "8.6.1", "card": "L20", "arch": "sm_89"}
    assert plan.notes[-1].text == (
        "the engine runs with TensorRT 8.6.1 alone, on the model of card that it was built on"
    )
    newer = plan_for("11.4.0", IMAGE, "fp16", {})
    assert "is newer than 11.1" in newer.notes[-1].text
