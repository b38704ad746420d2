"""What the backends of compilers from PyPI decide themselves: plans, types of operations, where an artifact departs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from convert.backends import load_backend, sophgo
from convert.backends.base import CannotRun, Inside
from convert.backends.sophgo import child_steps
from convert.backends.sophgo.inside import by_value, script_lines
from convert.backends.sophgo.script import BETWEEN, LOGICAL, PRODUCTS
from convert.causes import cause
from convert.errors import CompileFailed
from convert.stages import locate
from convert.values import (
    CompiledArtifact,
    CompileOptions,
    DimRange,
    Forecast,
    Located,
    NodeForecast,
    OnnxGraph,
    Plan,
    TensorSpec,
    ValidateOptions,
    Where,
)
from op_registry.targets import find_target

SQUARES = "agraph (float[1,4] x) => (float[1] y) { s = Mul(x, x) y = ReduceSum(s) }"


def plan_of(graph: OnnxGraph, target: str, **fields: Any) -> Plan:
    backend = load_backend(find_target(target).backend)
    options = CompileOptions(target=target, backend=backend.name, **fields)
    return backend.plan(graph, find_target(target), options, backend.assumed())


# ---------------------------------------------------------------------------------------------------------- the plans


def test_int8_of_sophgo_calibrates_and_keeps_what_the_forecast_keeps(graph_of: Callable[..., OnnxGraph]) -> None:
    graph = graph_of(SQUARES, {"x": np.ones((1, 4), np.float32)})
    plan = plan_of(graph, "BM1684X", precision="int8", keep=("b", "a"))
    steps = json.loads(plan.files["sophgo_steps.json"])
    assert (steps["keep"], steps["wide"], steps["calibrates"]) == (["a", "b"], "F32", True)
    script = plan.files["build.sh"].splitlines()
    words = (
        "steps.py lower",
        "model_transform.py --",
        "run_calibration.py",
        "steps.py table",
        "model_deploy.py",
        "mv ",
    )
    order = [next(number for number, text in enumerate(script) if word in text) for word in words]
    assert order == sorted(order)
    assert "--cali_method max" in plan.files["build.sh"]


def test_fp16_of_sophgo_needs_no_table_and_mixed_needs_one(graph_of: Callable[..., OnnxGraph]) -> None:
    graph = graph_of(SQUARES)
    assert "table" not in plan_of(graph, "BM1684X", precision="fp16").files["build.sh"]
    mixed = plan_of(graph, "BM1684X", precision="mixed", keep=("a",))
    assert "--quantize F16 --quantize_table ../out/wider.txt" in mixed.files["build.sh"]
    assert json.loads(mixed.files["sophgo_steps.json"])["products"] == []


def test_fp16_of_openvino_says_the_type_that_it_must_be_loaded_with(graph_of: Callable[..., OnnxGraph]) -> None:
    graph = graph_of(SQUARES)
    plan = plan_of(graph, "openvino-cpu", precision="fp16")
    assert json.loads(plan.files["openvino_compile.json"])["compute"] == "f16"
    assert "INFERENCE_PRECISION_HINT=f16" in plan.notes[0].text
    asked = plan_of(graph, "openvino-cpu", precision="fp16", options={"compute": "f32"})
    assert json.loads(asked.files["openvino_compile.json"])["compute"] == "f32"
    assert "INFERENCE_PRECISION_HINT=f32," in asked.notes[0].text


# ------------------------------------------------------------------------------------------- the types of operations

MLIR = """
  func.func @main(%arg0: tensor<1x3x8x8xf32> loc(unknown)) -> tensor<1x4xf32> {
    %1 = "top.Input"(%arg0) {shape = [1]} : (tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32> loc(#loc1)
    %2 = "top.Conv"(%1, %0, %0) {do_relu = false} : (tensor<1xf32>) -> tensor<1xf32> loc(#loc2)
    %3 = "top.Relu"(%2) : (tensor<1xf32>) -> tensor<1xf32> loc(#loc3)
    %4 = "top.Conv"(%3, %0, %0) : (tensor<1xf32>) -> tensor<1xf32> loc(#loc4)
    %5 = "top.Reshape"(%4) : (tensor<1xf32>) -> tensor<1xf32> loc(#loc5)
    %Y, %Y_h = "top.LSTM"(%5, %0) : (tensor<1xf32>) -> (none, tensor<1xf32>) loc(#loc8)
    return %Y_h : tensor<1xf32> loc(#loc)
#loc1 = loc("x")
#loc2 = loc("a_Conv")
#loc3 = loc("b_Relu")
#loc4 = loc("c_Conv")
#loc5 = loc("d_Reshape")
#loc6 = loc("y_LSTM")
#loc7 = loc("h_LSTM")
#loc8 = loc(fused[#loc6, #loc7])
"""
TYPES = {"products": PRODUCTS, "between": BETWEEN, "logical": LOGICAL}


def test_what_stands_between_two_products_is_int8_and_what_leads_away_is_not() -> None:
    found = child_steps.operations(MLIR)
    assert [one.name for one in found] == ["a_Conv", "b_Relu", "c_Conv", "d_Reshape", "y_LSTM"]
    assert child_steps.narrow_of(TYPES, found, set()) == {"a_Conv", "b_Relu", "c_Conv"}
    assert child_steps.narrow_of(TYPES, found, {"c_Conv"}) == {"a_Conv"}


def test_a_product_of_what_was_compared_is_not_in_int8() -> None:
    """tpu-mlir casts it by one scale and multiplies by another."""
    compared = child_steps.Operation("e_Equal", "Compare", ["%1"], ["%0"])
    product = child_steps.Operation("m_MatMul", "MatMul", ["%2"], ["%1", "%9"])
    after = child_steps.Operation("n_MatMul", "MatMul", ["%3"], ["%2", "%8"])
    assert child_steps.narrow_of(TYPES, [compared, product, after], set()) == {"n_MatMul"}


def test_a_scalar_is_a_tensor_of_one_element_for_tpu_mlir() -> None:
    scalar = TensorSpec(name="rate", dtype="int64", shape=())
    wide = TensorSpec(name="x", dtype="float32", shape=("N", 3))
    graph = OnnxGraph(
        parent="",
        stage="adapt",
        opset=17,
        inputs=(wide, scalar),
        outputs=(scalar,),
        dims=(DimRange(name="N", sizes=(2,)),),
    )
    assert sophgo._fixed_shapes(graph) == [[2, 3], [1]]
    (given,) = sophgo._cast([{"x": np.zeros((2, 3), np.float32), "rate": np.array(16000)}])
    assert {name: (array.shape, array.dtype.name) for name, array in given.items()} == {
        "x": ((2, 3), "float32"), "rate": ((1,), "int32")
    }  # fmt: skip
    (back,) = sophgo.in_order({"rate_Add": np.array([3], np.int32)}, (scalar,))
    assert (back.shape, back.dtype.name) == ((), "int64")


def test_a_node_that_was_fused_is_kept_by_the_name_of_its_last_part(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
        helper.make_node("Relu", ["a"], ["b"], name="act"),
    ]
    graph = helper.make_graph(nodes, "g", [], [])
    onnx.save(helper.make_model(graph), tmp_path / "lowered.onnx")
    settings = {"lowered": str(tmp_path / "lowered.onnx"), "keep": ["conv"]}
    assert child_steps.kept(settings, {"b_Relu", "z_Add"}) == {"b_Relu"}


def test_a_sequence_that_nothing_reads_is_read_without_changing_a_number() -> None:
    def info(name: str, shape: list[int]) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    lstm = helper.make_node("LSTM", ["x", "w", "r"], ["y", "h", ""], hidden_size=2, name="lstm")
    inputs = [info("x", [5, 1, 3]), info("w", [1, 8, 3]), info("r", [1, 8, 2])]
    model = helper.make_model(
        helper.make_graph([lstm], "g", inputs, [info("h", [1, 1, 2])]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    feed = {one.name: np.random.default_rng(0).normal(size=shape).astype(np.float32)
            for one, shape in zip(inputs, ([5, 1, 3], [1, 8, 3], [1, 8, 2]), strict=True)}  # fmt: skip
    before = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)[0]
    child_steps.revive(model.graph)
    onnx.checker.check_model(model)
    assert "y" in model.graph.node[1].input
    after = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)[0]
    assert before.tobytes() == after.tobytes()


# ----------------------------------------------------------------------------------------------------- where it departs


def test_the_script_for_values_inside_skips_what_is_known_and_runs_the_lowered_graph() -> None:
    build = ["set -e", "run_calibration.py m -o t", "model_deploy.py --mlir m", "mv model.bmodel ../out/model.bmodel"]
    lines = script_lines(build, calibrated=True)
    assert lines[:2] == ["set -e", "model_deploy.py --mlir m --debug"]
    assert "--dump_all_tensors" in lines[-1]
    assert "run_calibration.py m -o t" in script_lines(build, calibrated=False)
    assert list(by_value({"a/b_Conv": np.zeros(1), "x": np.zeros(1)})) == ["a/b"]


def located(
    graph: OnnxGraph, told: Inside | CannotRun, folder: Path, monkeypatch: pytest.MonkeyPatch, worst: float = 1e9
) -> Located:
    class Teller:
        def inside(self, *_: object) -> Inside | CannotRun:
            return told

    monkeypatch.setattr(locate, "load_backend", lambda name: Teller())
    plan = Plan(backend="sophgo", argv=("bash",), output="m")
    artifact = CompiledArtifact(
        parent="sha256:0", target="BM1684X", backend="sophgo", precision="fp16", plan=plan, files=(), folder=str(folder)
    )
    return locate.locate_departure(graph, artifact, ValidateOptions(), Where(sample=0, limit=5e-3, worst=worst), folder)


def test_the_first_node_that_makes_an_error_is_named_with_what_arrives(
    graph_of: Callable[..., OnnxGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.full((1, 4), 300.0, np.float32)
    text = "agraph (float[1,4] x) => (float[1] y) { s = Mul(x, x) z = Identity(s) y = ReduceSum(z) }"
    graph = graph_of(text, {"x": x})
    values = {"s": x * x, "z": x * x * 1.001, "y": np.array([np.inf], np.float32)}
    found = located(graph, Inside(values=values, how="the tool"), tmp_path / "run", monkeypatch)
    assert (found.op, found.output, found.error, found.high) == ("ReduceSum", "y", 1e9, 360000.0)
    assert found.compared == 3
    said = cause(found, None, "fp16")
    assert "first departs at ReduceSum" in said
    assert "up to 3.6e+05, which fp16 can't hold" in said


def test_a_value_told_in_another_form_is_no_cause_and_what_overflows_comes_before_what_was_rounded(
    graph_of: Callable[..., OnnxGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.full((1, 4), 300.0, np.float32)
    text = "agraph (float[1,4] x) => (float[1] y) { s = Mul(x, x) z = Abs(s) w = Relu(z) y = ReduceSum(w) }"
    graph = graph_of(text, {"x": x})
    # s: as integers of a table; z: right; w: rounded badly; y: too large for fp16.
    values = {"s": x, "z": x * x, "w": x * x * 1.01, "y": np.array([np.inf], np.float32)}
    found = located(graph, Inside(values=values, how="the tool"), tmp_path / "run", monkeypatch)
    assert (found.op, found.compared) == ("ReduceSum", 4)
    rounded = {**values, "y": np.array([363600.0], np.float32)}
    found = located(graph, Inside(values=rounded, how="the tool"), tmp_path / "again", monkeypatch)
    assert found.op == "Relu"


def test_values_that_end_in_worse_outputs_than_the_artifacts_own_are_not_believed(
    graph_of: Callable[..., OnnxGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(SQUARES, {"x": np.ones((1, 4), np.float32)})
    values = {"s": np.full((1, 4), 4.0, np.float32), "y": np.array([16.0], np.float32)}
    with pytest.raises(CompileFailed, match=r"outputs are off by 3, and the artifact's own by 0.01") as failed:
        located(graph, Inside(values=values, how="the tool"), tmp_path / "run", monkeypatch, worst=0.01)
    assert failed.value.code == "CNV-7341"


def test_values_that_are_not_told_leave_the_verdict_alone(
    graph_of: Callable[..., OnnxGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(SQUARES, {"x": np.ones((1, 4), np.float32)})
    with pytest.raises(CompileFailed) as failed:
        located(graph, CannotRun(reason="it stopped"), tmp_path / "run", monkeypatch)
    assert failed.value.code == "CNV-7341"
    fine = {"s": np.ones((1, 4), np.float32)}
    nowhere = located(graph, Inside(values=fine, how="the tool"), tmp_path / "again", monkeypatch)
    assert nowhere.node == ""
    assert "none of its 1 values" in cause(nowhere, None, "fp16")


def test_the_cause_says_whether_the_forecast_had_said_so() -> None:
    node = NodeForecast(node="sum", op="ReduceSum", reasons=("it overflows",))
    bad = Forecast(parent="", precision="fp16", holds=False, guilty=(node,))
    here = Located(parent="", how="the tool", compared=3, node="sum", op="ReduceSum", error=0.5, arriving=0.001)
    assert cause(here, bad, "fp16").endswith("the forecast blames that node, too: it overflows")
    assert cause(None, bad, "fp16") == "the forecast of fp16 blames ReduceSum 'sum': it overflows"
    good = msgspec.structs.replace(bad, holds=True)
    assert "the loss is the compiler's own" in cause(here, good, "fp16")
    assert cause(None, None, "fp16") == ""
