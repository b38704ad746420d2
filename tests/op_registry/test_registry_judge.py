"""Graphs judged node by node."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from op_registry.judge import judge_model
from op_registry.opsets import best_opset
from op_registry.targets import find_target
from op_registry.values import Judged, Judgement

FLOAT, INT64, DOUBLE = TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE


def model_of(
    *nodes: Any, opset: int = 17, shape: tuple[Any, ...] = (1, 3, 8, 8), dtype: int = FLOAT, **more: Any
) -> Any:
    """A model with input ``x`` and the last node's first output; ``tensors`` are initializers."""
    last = nodes[-1].output[0]
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info(last, dtype, None)],
        list(more.get("tensors", ())),
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(*item) for item in more.get("domains", ()))]
    return helper.make_model(graph, opset_imports=imports, functions=list(more.get("functions", ())))


def ints(name: str, *values: int) -> Any:
    return helper.make_tensor(name, INT64, [len(values)], values)


def judge(model: Any, target: str, version: str = "", **more: Any) -> Judgement:
    return judge_model(model, find_target(target), toolchain_version=version, **more)


def only(judgement: Judgement) -> Judged:
    assert len(judgement.judged) == 1, judgement.judged
    return judgement.judged[0]


def test_a_plain_graph_is_supported() -> None:
    found = judge(model_of(helper.make_node("Relu", ["x"], ["y"], name="r")), "Ascend910B3")
    assert (found.supported, found.nodes, found.counts, found.judged) == (True, 1, {"ok": 1}, ())
    assert (found.toolchain_version, found.assumed_version, found.opset) == ("8.5.0", True, 17)


def test_an_opset_above_the_registrations_is_refused_with_no_fall_back() -> None:
    found = judge(model_of(helper.make_node("Relu", ["x"], ["y"], name="r"), opset=19), "Ascend910B3", "9.2")
    one = only(found)
    assert (found.supported, one.op, one.node, one.state, one.grade) == (False, "Relu", "r", "refused", "read")
    assert one.reason == "not taken at opset 19; CANN 9.2 takes it at 8-18"
    assert one.hint == "convert the model to one of the opsets 8-18"
    assert found.best_opset == 17


@pytest.mark.parametrize(("version", "state"), [("8.5.0", "risk"), ("9.0.0", "risk"), ("9.1.0", None), ("9.2", None)])
def test_reduce_max_of_opset_18_is_named_where_its_axes_are_not_read(version: str, state: str | None) -> None:
    node = helper.make_node("ReduceMax", ["x", "axes"], ["y"], name="pool")
    found = judge(model_of(node, opset=18, tensors=[ints("axes", 1)]), "Ascend910B3", version)
    assert [one.state for one in found.judged] == ([state] if state else [])
    assert found.best_opset == (17 if state else 18)


def test_reduce_max_without_axes_reduces_over_all_axes_anyway() -> None:
    found = judge(model_of(helper.make_node("ReduceMax", ["x"], ["y"]), opset=18), "Ascend910B3", "8.5")
    assert found.judged == ()


def test_strict_makes_risks_and_unknowns_refusals() -> None:
    node = helper.make_node("ReduceMax", ["x", "axes"], ["y"], name="pool")
    model = model_of(node, opset=18, tensors=[ints("axes", 1)])
    assert judge(model, "Ascend910B3").supported
    strict = judge(model, "Ascend910B3", strict=True)
    assert not strict.supported
    assert strict.refusals == strict.judged
    assert not judge(model_of(helper.make_node("Relu", ["x"], ["y"])), "BI-V100", strict=True).supported


def test_every_refused_node_is_listed_at_once_and_not_only_the_first() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="r")]
    nodes += [helper.make_node("Det", [f"{'a' if i == 0 else f'd{i - 1}'}"], [f"d{i}"], name=f"n{i}") for i in range(5)]
    found = judge(model_of(*nodes), "MI210")
    assert [one.node for one in found.judged] == [f"n{i}" for i in range(5)]
    assert found.counts == {"ok": 1, "refused": 5}


def if_model() -> Any:
    branch = [
        helper.make_graph(
            [helper.make_node(op, ["x"], [name], name=name)],
            name,
            [],
            [helper.make_tensor_value_info(name, FLOAT, None)],
        )
        for op, name in (("Relu", "then"), ("Det", "else"))
    ]
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    node = helper.make_node("If", ["c"], ["y"], name="if", then_branch=branch[0], else_branch=branch[1])
    return model_of(node, tensors=[condition])


def test_nodes_inside_bodies_are_judged() -> None:
    found = judge(if_model(), "MI210")
    assert found.nodes == 3
    assert (only(found).op, only(found).node) == ("Det", "else")


def test_loops_are_refused_by_ascend_with_their_body_judged_too() -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["co"]), helper.make_node("Gelu", ["v"], ["vo"], name="inner")],
        "body",
        [helper.make_tensor_value_info(n, t, ()) for n, t in (("i", INT64), ("c", TensorProto.BOOL), ("v", FLOAT))],
        [helper.make_tensor_value_info(n, t, ()) for n, t in (("co", TensorProto.BOOL), ("vo", FLOAT))],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], name="loop", body=body)
    found = judge(model_of(loop, tensors=[helper.make_tensor("n", INT64, [], [3])]), "Ascend310P3")
    assert [(one.op, one.node) for one in found.judged] == [("Loop", "loop"), ("Gelu", "inner")]


def function_model() -> Any:
    body = [helper.make_node("Det", ["a"], ["b"], name="inside")]
    function = helper.make_function("mine", "Block", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    call = helper.make_node("Block", ["x"], ["y"], domain="mine", name="call")
    return model_of(call, domains=[("mine", 1)], functions=[function])


def test_a_local_function_is_named_where_it_is_not_expanded_and_its_body_is_judged() -> None:
    found = judge(function_model(), "MI210")
    assert [(one.op, one.node, one.module) for one in found.judged] == [
        ("mine::Block", "call", ""),
        ("Det", "inside", "Block"),
    ]
    assert found.judged[0].hint == "inline the model's functions first (onnx.inliner)"


def test_onnx_runtime_inlines_local_functions() -> None:
    assert judge(function_model(), "cpu").judged == ()


def test_a_custom_operator_is_refused_by_name_and_domain() -> None:
    node = helper.make_node("MMCVRoiAlign", ["x"], ["y"], domain="mmcv", name="roi")
    for target in ("Ascend910B3", "MI210", "A100", "cpu"):
        found = judge(model_of(node, domains=[("mmcv", 1)]), target, "9.2" if target == "Ascend910B3" else "")
        assert (only(found).op, only(found).node, only(found).state) == ("mmcv::MMCVRoiAlign", "roi", "refused")


def test_a_custom_operator_is_unknown_where_no_list_is_public() -> None:
    node = helper.make_node("MMCVRoiAlign", ["x"], ["y"], domain="mmcv", name="roi")
    assert only(judge(model_of(node, domains=[("mmcv", 1)]), "MLU370")).state == "unknown"


def test_migraphx_takes_a_known_name_of_any_domain_which_is_a_risk() -> None:
    found = judge(model_of(helper.make_node("Relu", ["x"], ["y"], domain="my.dom"), domains=[("my.dom", 1)]), "MI210")
    assert (only(found).state, only(found).grade) == ("risk", "measured")


def test_ascend_refuses_more_than_one_opset_import_up_to_9_2_beta_1() -> None:
    model = model_of(helper.make_node("Relu", ["x"], ["y"]), domains=[("npu", 1)])
    assert only(judge(model, "Ascend910B3", "9.2.0-beta.1")).op == "(graph)"
    assert judge(model, "Ascend910B3", "9.2.0-beta.2").judged == ()


def test_ascend_refuses_nodes_of_the_same_name() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="n"), helper.make_node("Abs", ["a"], ["y"], name="n")]
    one = only(judge(model_of(*nodes), "Ascend910B3"))
    assert ("unique" in one.reason, one.node) == (True, "n")


def test_operators_without_an_ai_core_kernel_are_slow_on_that_chip() -> None:
    node = helper.make_node("Det", ["x"], ["y"], name="det")
    found = judge(model_of(node), "Ascend910B3")
    assert (only(found).state, found.supported) == ("slow", True)
    assert "AI CPU" in only(found).reason


def test_a_kernel_that_no_list_has_is_refused_for_its_own_version_and_unknown_for_others() -> None:
    model = model_of(helper.make_node("NonMaxSuppression", ["x", "x"], ["y"], name="n"))
    assert only(judge(model, "Ascend910B3", "8.1.RC1")).state == "refused"
    assert only(judge(model, "Ascend910B3", "9.2")).state == "unknown"
    assert judge(model, "Ascend310P3", "9.2").judged == ()


@pytest.mark.parametrize(
    ("op", "attributes", "state"),
    [
        ("MaxPool", {"kernel_shape": [3, 3], "dilations": [2, 2]}, "risk"),
        ("MaxPool", {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER"}, "risk"),
        ("MaxPool", {"kernel_shape": [20, 20]}, "slow"),
        ("MaxPool", {"kernel_shape": [16, 16], "ceil_mode": 1}, "risk"),
        ("MaxPool", {"kernel_shape": [3, 3], "strides": [64, 64]}, "slow"),
        ("MaxPool", {"kernel_shape": [3, 3], "storage_order": 1}, "refused"),
        ("AveragePool", {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER"}, "risk"),
        ("IsInf", {"detect_negative": 0}, "refused"),
        ("Transpose", {}, "refused"),
        ("Mod", {"fmod": 1}, "risk"),
        ("ArgMax", {"select_last_index": 1}, "refused"),
        ("LRN", {"size": 4}, "refused"),
        ("Selu", {"alpha": 2.0}, "refused"),
        ("GatherND", {"batch_dims": 1}, "refused"),
    ],
)
def test_attributes_that_cann_refuses_or_ignores_are_named(op: str, attributes: dict[str, Any], state: str) -> None:
    inputs = ["x", "x"] if op in ("Mod", "GatherND") else ["x"]
    found = judge(model_of(helper.make_node(op, inputs, ["y"], name="n", **attributes)), "Ascend910B3", "9.2")
    assert only(found).state == state


def test_a_large_maxpool_kernel_is_no_matter_on_the_950() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[20, 20])
    assert judge(model_of(node), "Ascend950PR_9579", "9.2").judged == ()


def test_the_second_output_of_maxpool_is_refused() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y", "indices"], kernel_shape=[2, 2])
    assert "Indices" in only(judge(model_of(node), "Ascend910B3", "9.2")).reason


def test_types_that_follow_from_operators_are_judged_without_value_info() -> None:
    nodes = [helper.make_node("Cast", ["x"], ["a"], to=DOUBLE), helper.make_node("Neg", ["a"], ["b"])]
    nodes.append(helper.make_node("Acos", ["b"], ["y"], name="acos"))
    found = judge(model_of(*nodes), "cpu")
    assert (only(found).node, only(found).state) == ("acos", "refused")
    assert only(found).reason == "input 0 is float64; the types named are float32"


def test_an_unknown_type_refuses_nothing() -> None:
    node = helper.make_node("Acos", ["nowhere"], ["y"], name="acos")
    assert judge(model_of(node), "cpu").judged == ()


def test_half_precision_is_cast_around_by_onnx_runtime() -> None:
    assert judge(model_of(helper.make_node("Acos", ["x"], ["y"]), dtype=TensorProto.FLOAT16), "cpu").judged == ()


def test_a_constant_operand_is_told_from_one_that_is_computed() -> None:
    constant = helper.make_node("Constant", [], ["k"], value=ints("k", 2))
    top = helper.make_node("TopK", ["x", "k"], ["y", "i"], name="top")
    assert judge(model_of(constant, top), "MI210").judged == ()
    shape = helper.make_node("Shape", ["x"], ["k"], start=0, end=1)
    assert only(judge(model_of(shape, top), "MI210")).reason == "k must be constant"


def test_the_value_of_a_constant_is_read_where_a_limit_is_on_it() -> None:
    top = helper.make_node("TopK", ["x", "k"], ["y", "i"], name="top")
    assert judge(model_of(top, tensors=[ints("k", 100)]), "A100", "10.15").judged == ()
    assert only(judge(model_of(top, tensors=[ints("k", 4000)]), "A100", "10.15")).reason == "K must be below 3840"


def test_an_int64_initializer_outside_of_int32_is_named_where_it_is_clamped() -> None:
    node = helper.make_node("Gather", ["x", "index"], ["y"])
    for values, told in (([1, 2**31 - 1], []), ([0, 2**40], ["index"]), ([-(2**31) - 1], ["index"])):
        model = model_of(node, tensors=[ints("index", *values)])
        assert [one.node for one in judge(model, "A100", "8.6").judged] == told
        assert judge(model, "A100", "10.15").judged == ()


def test_magicmind_refuses_opset_13_and_shows_what_is_unknown() -> None:
    model = model_of(helper.make_node("Relu", ["x"], ["y"]), opset=13)
    assert only(judge(model, "MLU370")).state == "refused"
    assert judge(model_of(helper.make_node("Relu", ["x"], ["y"]), opset=11), "MLU370").judged == ()
    assert only(judge(model_of(helper.make_node("Round", ["x"], ["y"]), opset=11), "MLU370")).state == "unknown"


def test_c500_takes_what_onnx_runtime_takes_up_to_opset_17() -> None:
    assert judge(model_of(helper.make_node("Relu", ["x"], ["y"])), "C500").supported
    assert only(judge(model_of(helper.make_node("Relu", ["x"], ["y"]), opset=18), "C500")).state == "refused"


@pytest.mark.parametrize("state", ["unknown"])
@pytest.mark.parametrize("target", ["Kunlun-K200", "BR106M", "BI-V100"])
def test_where_nothing_is_public_everything_is_unknown(target: str, state: str) -> None:
    assert only(judge(model_of(helper.make_node("Relu", ["x"], ["y"])), target)).state == state


def test_a_part_that_a_toolchain_does_not_know_is_refused_as_a_whole() -> None:
    found = judge(model_of(helper.make_node("Relu", ["x"], ["y"])), "Ascend310", "8.5.0")
    assert (only(found).op, found.supported) == ("(graph)", False)


def test_the_module_path_is_told_where_an_exporter_left_it() -> None:
    node = helper.make_node("Det", ["x"], ["y"], name="node_det")
    scopes = node.metadata_props.add()
    scopes.key, scopes.value = "pkg.torch.onnx.name_scopes", "['', 'head', 'head.2', 'det']"
    assert only(judge(model_of(node), "MI210")).module == "head.2"
    named = helper.make_node("Det", ["x"], ["y"], name="/layer1/layer1.0/conv1/Det")
    assert only(judge(model_of(named), "MI210")).module == "layer1.0.conv1"


@pytest.mark.parametrize("value", ["[" * 3000, "__import__('os')", "", "{'a': 1}", "[1]"])
def test_scopes_written_by_a_stranger_do_no_harm(value: str) -> None:
    node = helper.make_node("Det", ["x"], ["y"])
    scopes = node.metadata_props.add()
    scopes.key, scopes.value = "pkg.torch.onnx.name_scopes", value
    assert only(judge(model_of(node), "MI210")).module == ""


def test_an_empty_model_and_one_without_imports_are_judged() -> None:
    assert judge(onnx.ModelProto(), "cpu").supported
    bare = onnx.ModelProto(graph=helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], []))
    assert only(judge(bare, "cpu")).state == "refused"


def test_a_node_without_a_name_is_told_by_its_output() -> None:
    assert only(judge(model_of(helper.make_node("Det", ["x"], ["y"])), "MI210")).node == "y"


def test_the_best_opset_keeps_the_current_one_where_it_is_as_good() -> None:
    model = model_of(helper.make_node("Relu", ["x"], ["y"]), opset=13)
    assert judge(model, "Ascend910B3").best_opset == 13
    assert judge(model, "cpu").best_opset == 13


def test_the_best_opset_keeps_layer_normalization_in_one_piece() -> None:
    names = [("", "LayerNormalization"), ("", "MatMul")]
    assert best_opset(names, find_target("Ascend910B"), toolchain_version="8.1.RC1") == 17
    assert best_opset((), find_target("Ascend910B")) == 17
    assert best_opset((), find_target("MLU370")) == 11
    assert best_opset([("", "ReduceMean")], find_target("Ascend910B"), toolchain_version="9.1") == 17


def test_an_opset_without_an_operator_is_not_the_best_one_for_it() -> None:
    assert best_opset([("", "GridSample")], find_target("Ascend910B"), toolchain_version="9.2") in (16, 17, 18)


def test_equal_nodes_are_judged_alike_however_many_there_are() -> None:
    nodes = [
        helper.make_node("Mod", ["x" if i == 0 else f"v{i - 1}", "x"], [f"v{i}"], name=f"n{i}", fmod=i % 2)
        for i in range(40)
    ]
    found = judge(model_of(*nodes), "Ascend910B3", "9.2")
    assert found.counts == {"ok": 20, "risk": 20}
    assert [one.node for one in found.judged] == [f"n{i}" for i in range(1, 40, 2)]
