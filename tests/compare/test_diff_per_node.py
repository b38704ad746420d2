"""``convert diff --per-node``: the first node that departs, made here or passed on, and vendors' dumps."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from artifacts.cli import run_boundary
from convert.__main__ import cli
from convert.precision import cast_model

BODY = """g (float[4,16] x) => (float[4,16] y) <float half = {{0.5}}, float two = {{2}}> {{
    [relu] a = Relu(x) [scale] b = Mul(a, half) [tanh] c = Tanh(b) {wrong} [sum] e = Add(d, x) [last] y = Neg(e) }}"""
RIGHT = BODY.format(wrong="[double] d = Mul(c, two)")
WRONG = BODY.format(wrong="[double] d = Mul(c, half)")
RNG = np.random.default_rng(5)


def _saved(path: Path, text: str) -> str:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {text}'), path)
    return str(path)


def _diff(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict]:
    code = run_boundary(cli, ["diff", *words, "--per-node", "--json"], prog="convert", usage_code="CNV-2000")
    return code, json.loads(capsys.readouterr().out)


def test_equal_graphs_have_no_departing_node(tmp_path: Path, capsys):
    code, found = _diff(capsys, _saved(tmp_path / "a.onnx", RIGHT), _saved(tmp_path / "b.onnx", RIGHT))
    assert (code, found["first"], found["departures"]) == (0, None, [])
    assert (found["aligned"], found["values"], found["by"]["name"]) == (6, 6, 6)


def test_the_node_that_makes_the_error_comes_before_those_that_pass_it_on(tmp_path: Path, capsys):
    code, found = _diff(capsys, _saved(tmp_path / "a.onnx", RIGHT), _saved(tmp_path / "b.onnx", WRONG))
    assert code == 8
    assert found["error"]["code"] == "CNV-8106"
    assert found["first"]["node"] == "double"
    rows = {row["node"]: row for row in found["departures"]}
    assert list(rows) == ["double", "sum", "last"]
    assert rows["double"]["made"] == pytest.approx(0.75)
    assert rows["double"]["arriving"] == 0.0
    assert rows["sum"]["made"] == pytest.approx(0.0, abs=1e-6)
    assert rows["sum"]["reason"].startswith("passed on")


def test_other_names_are_aligned_by_structure_and_numbers(tmp_path: Path, capsys):
    renamed = """g (float[4,16] inp) => (float[4,16] out) <float h = {0.5}, float t = {2}> {
        [n1] v1 = Relu(inp) [n2] v2 = Mul(v1, h) [n3] v3 = Tanh(v2) [n4] v4 = Mul(v3, h) [n5] v5 = Add(v4, inp)
        [n6] out = Neg(v5) }"""
    code, found = _diff(capsys, _saved(tmp_path / "a.onnx", RIGHT), _saved(tmp_path / "b.onnx", renamed))
    assert code == 8
    assert (found["first"]["node"], found["first"]["counterpart_node"]) == ("n4", "double")
    assert found["by"]["structure"] == 6


def test_a_value_that_a_rewrite_renamed_is_known_by_its_numbers(tmp_path: Path, capsys):
    rewritten = """g (float[4,16] x) => (float[4,16] y) <float half = {0.5}, float one = {1}, float k = {2}> {
        [relu] a = Relu(x) [scale] b = Mul(a, half) [tanh] c2 = Tanh(b) [again] c3 = Identity(c2)
        [double] d = Mul(c3, k) [sum] e2 = Sub(d, one) [last] y = Neg(e2) }"""
    code, found = _diff(capsys, _saved(tmp_path / "a.onnx", RIGHT), _saved(tmp_path / "b.onnx", rewritten))
    assert code == 8
    assert found["first"]["op"] in ("Sub", "Neg")
    assert found["first"]["made"] is not None
    assert found["by"]["structure"] + found["by"]["numbers"] >= 1


def test_a_graph_beside_its_fp16_form_departs_only_by_rounding(tmp_path: Path, capsys):
    a = _saved(tmp_path / "a.onnx", RIGHT)
    model = onnx.load(a)
    cast_model(model, "fp16")
    onnx.save(model, tmp_path / "b.onnx")
    code, found = _diff(capsys, a, str(tmp_path / "b.onnx"), "--gate", "rel_l2=0.005")
    assert (code, found["first"]) == (0, None)
    code, found = _diff(capsys, a, str(tmp_path / "b.onnx"), "--gate", "rel_l2=0.00001")
    assert code == 8
    assert found["first"]["error"] < 1e-3


def test_a_torch_side_is_refused(tmp_path: Path, capsys):
    npz = tmp_path / "x.npz"
    np.savez(npz, a=np.ones(3))
    import torch

    script = torch.jit.script(torch.nn.Linear(4, 4))
    torch.jit.save(script, str(tmp_path / "m.pt"))
    code, found = _diff(capsys, str(tmp_path / "m.pt"), str(tmp_path / "m.pt"), "--input", "x:float32[1,4]")
    assert (code, found["error"]["code"]) == (2, "CNV-2323")


def test_dumped_tensors_by_name_name_the_first_node(tmp_path: Path, capsys):
    x = RNG.standard_normal((4, 16)).astype(np.float32)
    np.savez(tmp_path / "s.npz", x=x)
    a = np.maximum(x, 0)
    np.savez(tmp_path / "dump.npz", a=a, b=a * 0.5 + 1, c=np.tanh(a * 0.5 + 1), unknown=x)
    model = _saved(tmp_path / "a.onnx", RIGHT)
    code, found = _diff(capsys, model, "--samples", str(tmp_path / "s.npz"), "--dump", str(tmp_path / "dump.npz"))
    assert code == 8
    assert (found["first"]["node"], found["aligned"], found["values"]) == ("scale", 3, 4)


def test_files_of_a_dump_may_be_called_after_nodes_and_without_slashes(tmp_path: Path, capsys):
    text = """<ir_version: 9, opset_import: ["" : 17]> g (float[4,16] x) => (float[4,16] y) <float half = {0.5}> {
        [_net_relu] _net_a = Relu(x) [_net_scale] _net_b = Mul(_net_a, half) [_net_tanh] y = Tanh(_net_b) }"""
    model = onnx.parser.parse_model(text)
    for node in model.graph.node:
        node.name = node.name.replace("_", "/")
        for names in (node.input, node.output):
            names[:] = [name.replace("_", "/") for name in names]
    onnx.save(model, tmp_path / "a.onnx")
    x = RNG.standard_normal((4, 16)).astype(np.float32)
    np.savez(tmp_path / "s.npz", x=x)
    (tmp_path / "dump").mkdir()
    np.save(tmp_path / "dump" / "_net_a.npy", np.maximum(x, 0))
    np.save(tmp_path / "dump" / "net.scale.npy", np.maximum(x, 0) * 0.4)
    words = ("--samples", str(tmp_path / "s.npz"), "--dump", str(tmp_path / "dump"))
    code, found = _diff(capsys, str(tmp_path / "a.onnx"), *words)
    assert code == 8
    assert (found["first"]["node"], found["first"]["output"]) == ("/net/scale", "/net/b")
    assert (found["aligned"], found["values"]) == (2, 2)


MSIT = """OpType,NPUDump,DataType,Address,GroundTruth,DataType,TensorIndex,Shape,Overflow,CosineSimilarity,\
MaxAbsoluteError,AccumulatedRelativeError,RelativeEuclideanDistance,CompareFailReason
Relu,Relu_1,float16,NaN,relu,float32,0,"[4,16]",NO,1.0,0.0,0.0,0.0001,
Mul,Mul_2,float16,NaN,scale,float32,0,"[4,16]",NO,0.91,3.5,0.4,0.41,
Tanh,Tanh_3,float16,NaN,tanh,float32,0,"[4,16]",NO,0.95,3.5,0.4,0.2,
"""
TRACE = """Run instruction: main:@0 = check_context::migraphx::gpu::context -> float_type
Time: 0.01ms, 0.02ms
Run instruction: main:#1 = gpu::code_object[code_object=4000] -> half_type
Run instruction: @2 = gpu::gemm[alpha=1] -> half_type, {4, 16}, {16, 1}
Time: 0.2ms, 0.3ms
Output has normal, zero
Output: 1, 2, 3
Run instruction: @3 = gpu::code_object[symbol_name=add_kernel](@2) -> half_type, {4, 16}, {16, 1}
Time: 0.2ms, 0.3ms
Output has inf, normal
Output: inf, 2, 3
Run instruction: @4 = gpu::code_object[symbol_name=softmax_kernel](@3) -> half_type, {4, 16}, {16, 1}
Output has nan
"""


@pytest.mark.parametrize(
    ("text", "node", "op", "rows"), [(MSIT, "Mul_2", "Mul", 2), (TRACE, "@3", "gpu::code_object", 2)]
)
def test_a_table_of_msit_and_a_trace_of_migraphx_are_read(tmp_path: Path, capsys, text, node, op, rows):
    (tmp_path / "dump.txt").write_text(text, encoding="utf-8")
    model = _saved(tmp_path / "a.onnx", RIGHT)
    code, found = _diff(capsys, model, "--dump", str(tmp_path / "dump.txt"))
    assert code == 8
    assert (found["first"]["node"], found["first"]["op"], len(found["departures"])) == (node, op, rows)


def test_something_else_is_no_dump(tmp_path: Path, capsys):
    (tmp_path / "dump.txt").write_text("hello", encoding="utf-8")
    code, found = _diff(capsys, _saved(tmp_path / "a.onnx", RIGHT), "--dump", str(tmp_path / "dump.txt"))
    assert (code, found["error"]["code"]) == (2, "CNV-2324")


def test_sides_of_which_nothing_is_known_are_not_called_alike(tmp_path: Path, capsys):
    a = _saved(tmp_path / "a.onnx", "g (float[4,16] x) => (float[4,16] y) { y = Exp(x) }")
    b = _saved(tmp_path / "b.onnx", "g (float[4,16] x) => (bool[4,16] z) { z = IsNaN(x) }")
    code, found = _diff(capsys, a, b)
    assert (code, found["error"]["code"]) == (2, "CNV-2325")
    np.savez(tmp_path / "dump.npz", elsewhere=np.ones(3))
    code, found = _diff(capsys, a, "--dump", str(tmp_path / "dump.npz"))
    assert (code, found["error"]["code"]) == (2, "CNV-2325")


def test_a_dump_that_promises_more_than_it_has_takes_no_memory(tmp_path: Path, capsys):
    model = _saved(tmp_path / "a.onnx", RIGHT)
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    lie = b"\x93NUMPY\x01\x00v\x00" + header
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "a.npy").write_bytes(lie)
    with zipfile.ZipFile(tmp_path / "lie.npz", "w") as archive:
        archive.writestr("a.npy", lie)
    np.save(tmp_path / "one.npy", np.ones(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    for dump in ("dump", "lie.npz", "one.npz", "/dev/zero"):
        code, found = _diff(capsys, model, "--dump", str(tmp_path / dump))
        assert (code, found["error"]["code"]) == (2, "CNV-2324")
