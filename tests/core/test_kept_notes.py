"""Whether a plan was honoured is told by the vendor's own output, and where that says nothing, so do the notes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from convert.backends.kept import OBEY, plan_notes, told_in
from convert.values import CompileOptions, Note

LOWERED = """#loc = loc(unknown)
module @model {
    %2 = "tpu.MatMul"(%1) {a = 1} : (tensor<4x16xf32>, none) -> tensor<4x16xf32> loc(#loc1)
    %3 = "tpu.Cast"(%2) {} : (tensor<4x16xf32>) -> tensor<4x16xf16> loc(#loc2)
    %4 = "tpu.Split"(%3) {} : (tensor<4x16xf16>) -> (tensor<4x8xf16>, tensor<4x8xf16>) loc(#loc3)
    %5 = "tpu.Conv2D"(%3) {} : (tensor<4x16xf16>) -> tensor<4x16x!quant.uniform<i8:f32, 0.004>> loc(#loc4)
    %6 = "tpu.Add"(%5) {} : (tensor<4x16xf16>) -> tensor<1xbf16> loc(#loc5)
}
#loc1 = loc("a_MatMul")
#loc2 = loc("a_MatMul_f16")
#loc3 = loc("s_Split")
#loc4 = loc("c_Conv")
#loc5 = loc("d_Add")
"""


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        ("steps: plan: 3 of 3 operations are F32; fused into others: r", "info",
         "plan: 3 of 3 operations are F32; fused into others: r (the graph)"),
        ("steps: plan: 2 of 3 operations are F32; not: a (f16)", "warning",
         "plan: 2 of 3 operations are F32; not: a (f16) (the graph)"),
        ("steps: plan: not told, as there is no lowered graph", "warning",
         "whether the plan was honoured is not told, as there is no lowered graph"),
    ],
)  # fmt: skip
def test_what_a_script_says_of_the_plan_becomes_a_note(line, level, text, tmp_path: Path):
    (tmp_path / "log").write_text(f"before\n{line}\nafter\n")
    assert told_in(tmp_path / "log", "the graph") == (Note(level=level, text=text),)


@pytest.mark.parametrize("text", ["", "steps: plan: 0 of 0 operations are F32\n", "plan of something\n"])
def test_nothing_said_is_no_note(text, tmp_path: Path):
    (tmp_path / "log").write_text(text)
    assert told_in(tmp_path / "log", "the graph") == ()


def _options(precision: str, *keep: str) -> CompileOptions:
    return CompileOptions(target="A100", backend="tensorrt", precision=precision, keep=keep)


def test_a_vendor_that_tells_nothing_is_said_to_tell_nothing():
    (note,) = plan_notes(_options("mixed", "a", "b"), ("atc",), (), "CANN")
    assert note.text == "plan: whether 2 nodes stay in fp32 is not told by CANN; the outputs on the card tell"
    (note,) = plan_notes(_options("mixed", "a"), ("trtexec", OBEY), (), "TensorRT")
    assert note.text.startswith("plan: one node stays in fp32: TensorRT was told to fail where it can't obey")


def test_a_plan_that_was_spoken_of_or_that_is_none_has_no_second_note():
    spoken = (Note(text="2 of 2 nodes of the plan stay in float32"),)
    assert plan_notes(_options("mixed", "a", "b"), (), spoken, "onnxruntime") == ()
    assert plan_notes(_options("mixed", "a"), (), (Note(text="plan: 1 of 1 operations are F32 (it)"),), "x") == ()
    assert plan_notes(_options("mixed"), (), (), "x") == plan_notes(_options("fp16", "a"), (), (), "x") == ()


def test_types_of_a_lowered_graph_are_read_by_the_names_of_its_operations():
    place = Path(importlib.util.find_spec("convert.backends.sophgo").submodule_search_locations[0])
    spec = importlib.util.spec_from_file_location("steps_under_test", place / "child_steps.py")
    steps = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(steps)
    assert steps.lowered_types(LOWERED) == {
        "a_MatMul": "f32",
        "a_MatMul_f16": "f16",
        "s_Split": "f16",
        "c_Conv": "i8",
        "d_Add": "bf16",
    }
