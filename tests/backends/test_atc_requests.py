"""What the backend ``atc`` makes of any request: a plan that its version takes, or one error that says all."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from atc_kit import IMAGE, VERSIONS, ask_double, dims_of, graph_for, model_of, options_for, plan_for, toolchain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from convert.backends.atc import AtcBackend
from convert.backends.atc.flags import flags_of, table
from convert.errors import UsageError
from op_registry.targets import all_targets, find_target

TARGETS = [target.name for target in all_targets() if target.backend == "atc"]
FLAGS = sorted({name for group in table().group for name in group.flags} | {"keep_ops", "no_such_flag"})
VALUES = sorted(
    {value for version in VERSIONS for flag in flags_of(version).values() for value in flag.values}
    | {
        "x",
        "a;b",
        "Relu",
        "",
        "0",
        "7",
        "{}",
        "Gelu,Softmax",
        '{"black-list": {"to-add": ["Relu"]}}',
        "x=y",
        "/etc/a.cfg",
    }
)
SIZES = st.one_of(
    st.just(None),
    st.builds(lambda low, more: range(low, low + more + 2), st.integers(1, 4), st.integers(0, 9)),
    st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True).map(tuple),
)
DIM = st.sampled_from([1, 3, 16, "N", "H", "W"])
SHAPES = st.lists(DIM, max_size=5).map(tuple)
PREPROCESS = st.sampled_from(
    ["", "", "", '{"image": "bgr"}', '{"image": "gray"}', '{"pad": [1,1,1,1]}', "{", '{"x": 1}']
)


@st.composite
def requests(draw: st.DrawFn):
    inputs = draw(st.dictionaries(st.sampled_from(["x", "y.1", "in:0", "t"]), SHAPES, min_size=1, max_size=3))
    image = {"x": ("N", 3, 16, 16)}
    inputs = draw(st.sampled_from([inputs, image]))
    names = sorted({dim for shape in inputs.values() for dim in shape if isinstance(dim, str)})
    dims = {name: draw(SIZES) for name in names}
    options = draw(st.dictionaries(st.sampled_from(FLAGS), st.sampled_from(VALUES), max_size=3))
    more = {
        "precision": draw(st.sampled_from(["fp32", "fp16", "bf16", "mixed", "int8"])),
        "options": draw(st.sampled_from([{}, options, options])),
        "keep": draw(st.sampled_from([(), (), ("node0",), ("node0", "bad\nname")])),
        "preprocess": draw(PREPROCESS),
        "soc": draw(st.sampled_from(["", "", "", "Ascend910B3", "Ascend910B", "Ascend310P3"])),
    }
    return draw(st.sampled_from(VERSIONS)), draw(st.sampled_from(TARGETS)), inputs, dims, more


@given(requests())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_a_plan_of_any_request_is_taken_by_its_version(request_) -> None:
    version, target, inputs, dims, more = request_
    model = model_of(inputs)
    try:
        plan = plan_for(graph_for(model, dims_of(**dims)), options_for(target, **more), version)
    except UsageError as refusal:
        assert refusal.code in {"CNV-2072", *(f"CNV-220{number}" for number in range(1, 8))}
        assert refusal.hint
        return
    with tempfile.TemporaryDirectory() as folder:
        code, said = ask_double(plan, model, version, Path(folder))
    assert code == 0, (plan.argv, said)


def refused(**request) -> UsageError:
    version, target = request.pop("version", "8.5.0"), request.pop("target", "Ascend910B3")
    model = request.pop("model", None) or model_of(request.pop("inputs", IMAGE))
    graph = graph_for(model, dims_of(**request.pop("dims", {})))
    with pytest.raises(UsageError) as refusal:
        plan_for(graph, options_for(target, **request), version)
    return refusal.value


def test_all_faults_of_the_flags_are_told_at_once():
    options = {
        "precison_mode": "x",
        "soc_version": "Ascend310",
        "buffer_optimize": "l3",
        "jit_compile": "1",
        "auto_tune_mode": "GA",
        "modify_mixlist": "{}",
        "optypelist_for_implmode": "Gelu",
        "fusion_switch_file": "/home/me/fusion.cfg",
    }
    error = refused(options=options)
    assert error.code == "CNV-2204"
    for text in (
        "no flag precison_mode (did you mean precision_mode?)",
        "soc_version is not yours to set: use --soc",
        "buffer_optimize=l3: CANN 8.5.0 takes l2_optimize",
        "CANN 8.5.0 has no flag jit_compile (known in >=9.2)",
        "auto_tune_mode: atc no longer tunes",
        "modify_mixlist works only beside",
        "optypelist_for_implmode works only beside",
        "fusion_switch_file wants the content of the file",
    ):
        assert text in error.message


def test_a_flag_that_the_installed_atc_lists_is_taken_whatever_the_table_says():
    graph = graph_for(model_of(IMAGE))
    listed = " ".join([*flags_of("8.5.0"), "brand_new"])
    plan = plan_for(graph, options_for("Ascend910B3", options={"brand_new": "1"}), "8.5.0", flags=listed)
    assert "--brand_new=1" in plan.argv


def test_a_newer_flag_is_not_chosen_where_the_installed_atc_does_not_list_it():
    graph = graph_for(model_of(IMAGE))
    listed = " ".join(name for name in flags_of("6.2.RC2") if name != "precision_mode_v2")
    plan = plan_for(graph, options_for("Ascend910B3"), "6.2.RC2", flags=listed)
    assert "--precision_mode=force_fp16" in plan.argv


def test_all_faults_of_the_shapes_are_told_at_once():
    error = refused(
        target="Ascend310B1",
        inputs={"a;b": ("N", 3), "x": ("M", 0)},
        dims={"N": range(1, 9), "M": None},
        model=None,
    )
    assert error.code == "CNV-2203"
    for text in ("N, M are ranges", "take no shape ranges", "'a;b' can't be written", "x has a dimension of size 0"):
        assert text in error.message


@pytest.mark.parametrize("target", ["Ascend310", "Ascend310B1"])
def test_chips_without_shape_ranges_take_steps(target):
    version = "8.1.RC1"
    error = refused(target=target, version=version, inputs={"x": ("N", 8)}, dims={"N": range(1, 9)})
    assert "--dim N=1,4,8" in error.message
    graph = graph_for(model_of({"x": ("N", 8)}), dims_of(N=(1, 4, 8)))
    assert "--dynamic_batch_size=1,4,8" in plan_for(graph, options_for(target), version).argv


def test_more_steps_than_the_manual_allows_are_counted():
    sizes = tuple(range(1, 13))
    error = refused(inputs={"x": ("N", "T", 4)}, dims={"N": sizes, "T": sizes})
    assert "N (12) x T (12) make 144 steps, and atc takes 100 at most" in error.message


def test_free_dimensions_of_old_versions_have_four_places():
    inputs = {"x": ("N", "T"), "y": ("N", "T"), "z": ("T",)}
    error = refused(version="6.0.1", target="Ascend310P3", inputs=inputs, dims={"N": (1, 2), "T": (8, 16)})
    assert "5 places have steps, and CANN 6.0.1 takes 4" in error.message
    graph = graph_for(model_of(inputs), dims_of(N=(1, 2), T=(8, 16)))
    argv = plan_for(graph, options_for("Ascend310P3"), "8.5.0").argv
    assert "--dynamic_dims=1,8,1,8,8;1,16,1,16,16;2,8,2,8,8;2,16,2,16,16" in argv


def test_an_opset_that_no_plug_in_has_is_refused():
    assert "opset 21" in refused(model=model_of(IMAGE, opset=21)).message


def test_an_int8_graph_needs_something_that_amct_quantizes():
    error = refused(precision="int8")
    assert error.code == "CNV-2206"
    assert "AMCT" in error.message
    linear = refused(precision="int8", model=model_of(IMAGE, ops=["QuantizeLinear"]))
    assert "(QuantizeLinear), which atc does not take" in linear.message
    quantized = graph_for(model_of(IMAGE, ops=["AscendQuant"]))
    assert "--precision_mode_v2=fp16" in plan_for(quantized, options_for("Ascend310P3", "int8"), "8.5.0").argv


def test_an_int8_graph_has_no_steps():
    model = model_of({"x": ("N", 8)}, ops=["AscendQuant"])
    assert "can't have steps" in refused(precision="int8", model=model, dims={"N": (1, 2)}).message


def test_bf16_is_refused_where_the_version_or_the_part_has_none():
    assert refused(precision="bf16", version="6.0.1", target="Ascend910B3").code == "CNV-2206"
    assert refused(precision="bf16", target="Ascend310P3").code == "CNV-2072"


def test_a_precision_mode_must_give_the_precision():
    error = refused(precision="fp32", options={"precision_mode": "force_fp16"})
    assert "precision_mode=force_fp16 does not give fp32" in error.message
    both = refused(options={"precision_mode": "force_fp16", "precision_mode_v2": "fp16"})
    assert "precision_mode and precision_mode_v2 exclude each other" in both.message


def test_kept_nodes_must_be_lines_and_can_not_be_given_twice():
    error = refused(precision="mixed", keep=("a\nb",), options={"keep_dtype": "c\n"})
    assert "can't be written as a line" in error.message
    assert "keep_dtype is given twice" in error.message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "can't be had"),
        ('{"image": "rgb", "maen": [1]}', "maen"),
        ('{"mean": [1, 2]}', "mean and std need 3 values each"),
        ('{"std": [0, 1, 1]}', "std not 0"),
        ('{"size": [16, 16], "crop": [0, 0, 32, 32]}', "leaves the image"),
        ('{"size": [40, 40], "crop": [0, 0, 30, 30]}', "crop and pad give 30 x 30, and the model takes 32 x 32"),
        ('{"image": "gray"}', "the model has 3 channels, and gray has 1"),
        ('{"input": "other"}', "there is no input 'other'; inputs: image"),
    ],
)
def test_preprocessing_that_can_not_be_had_says_why(text, told):
    error = refused(preprocess=text)
    assert error.code == "CNV-2205"
    assert told in error.message


def test_preprocessing_excludes_free_dimensions():
    inputs = {"x": (1, 3, 32, 32), "t": (4, "T")}
    error = refused(inputs=inputs, dims={"T": (1, 2)}, preprocess='{"input": "x"}')
    assert "insert_op_conf and dynamic_dims exclude each other" in error.message


# ----------------------------------------------------------------------------------------------------------- the SoC


def test_the_family_910b_never_becomes_the_literal_part_by_itself():
    model = model_of(IMAGE)
    backend, target = AtcBackend(), find_target("Ascend910B")
    first_generation = toolchain("8.5.0", soc="Ascend910B")
    with pytest.raises(UsageError) as refusal:
        backend.plan(graph_for(model), target, options_for("Ascend910B"), first_generation)
    assert refusal.value.code == "CNV-2201"
    assert "Ascend910B1" in refusal.value.hint
    assert "--soc Ascend910B" in refusal.value.hint
    asked = backend.plan(graph_for(model), target, options_for("Ascend910B", soc="Ascend910B"), first_generation)
    assert "--soc_version=Ascend910B" in asked.argv


def test_a_family_takes_the_part_of_this_machine():
    plan = plan_for(graph_for(model_of(IMAGE)), options_for("Ascend910B"), "8.5.0", soc="Ascend910B4")
    assert "--soc_version=Ascend910B4" in plan.argv
    assert plan.needs == {"toolchain": "CANN", "version": "8.5.0", "soc": "Ascend910B4"}


def test_a_family_without_a_toolkit_leaves_the_part_open():
    plan = plan_for(graph_for(model_of(IMAGE)), options_for("Ascend310P"), "8.5.0")
    assert "--soc_version={soc}" in plan.argv
    assert plan.needs["soc_members"] == "Ascend310P1 Ascend310P3 Ascend310P5 Ascend310P7"


def test_a_part_that_is_not_of_the_family_is_refused():
    assert refused(target="Ascend910B", soc="Ascend310P3").code == "CNV-2202"
    assert refused(target="Ascend310P", soc="Ascend910B").code == "CNV-2202"
    assert refused(target="Ascend910B", soc="Ascend910B9").code == "CNV-2202"


def test_a_part_that_the_version_does_not_know_is_refused():
    error = refused(target="Ascend310", version="9.0.0")
    assert error.code == "CNV-2202"
    assert "<=8.4" in error.message


def test_parts_that_need_another_mode_are_refused():
    assert "--mode=30" in refused(target="Ascend035B", version="9.0.0").message


def test_the_version_of_a_plan_for_elsewhere_can_be_chosen():
    graph = graph_for(model_of(IMAGE))
    options = options_for("Ascend310P3", toolchain_version="5.1.RC2")
    backend = AtcBackend()
    plan = backend.plan(graph, find_target("Ascend310P3"), options, backend.assumed())
    assert "--precision_mode=force_fp16" in plan.argv
    assert plan.needs["version"] == "5.1.RC2"
    assert refused(version="4.9").code == "CNV-2207"


@pytest.mark.parametrize("value", ["op.ini", "./op.ini", "/etc/op", "fusion-switch.cfg"])
def test_a_path_in_the_place_of_a_files_content_is_told(value):
    error = refused(options={"op_precision_mode": value})
    assert f'op_precision_mode="$(cat {value})"' in error.message


def test_preprocessing_excludes_ranges():
    error = refused(inputs={"x": ("N", 3, 8, 8)}, dims={"N": range(1, 5)}, preprocess="{}")
    assert "no manual has a static AIPP beside ranges" in error.message


def test_a_question_before_compiling_takes_three_answers():
    assert "precheck=perhaps: it takes auto, yes, no" in refused(options={"precheck": "perhaps"}).message
    plan = plan_for(graph_for(model_of(IMAGE)), options_for("Ascend310P3", options={"precheck": "yes"}), "8.5.0")
    assert not any("precheck" in word for word in plan.argv)
