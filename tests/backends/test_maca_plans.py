"""C500 and C550: ONNX prepared for MetaX's own ONNX Runtime, through the backend ``onnxruntime``."""

import json
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from trt_kit import graph_like, options_of, spec

from convert.backends.onnxruntime import OnnxRuntimeBackend
from convert.errors import UsageError
from convert.stages.compile import compile_graph
from convert.values import CompileOptions
from op_registry.targets import find_target

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "plans" / "maca"
IMAGE = graph_like(spec("images", 1, 3, 8, 8))
SAMPLED = graph_like(spec("images", 1, 3, 8, 8), sample_count=2, ops={"Conv": 1})
CASES = {
    "C500_fp16": ("C500", IMAGE, "fp16", {}, ()),
    "C500_mixed": ("C500", IMAGE, "mixed", {"level": "off"}, ("head", "norm")),
    "C550_bf16": ("C550", IMAGE, "bf16", {"keep_fp32": "norm"}, ()),
    "C550_int8": ("C550", SAMPLED, "int8", {}, ()),
}
NET = """<ir_version: 9, opset_import: ["" : {opset}]>
net (float[N, 8] x) => (float[N, 8] y) {{ t = Tanh (x) y = MatMul (t, w) }}"""


def plan_for(target, graph, precision, options, keep=()):
    backend = OnnxRuntimeBackend()
    request = msgspec.structs.replace(options_of("onnxruntime", target, precision, **options), keep=keep)
    return backend.plan(graph, find_target(target), request, backend.assumed())


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_what_it_was(name, request):
    text = json.dumps(msgspec.to_builtins(plan_for(*CASES[name])), indent=2) + "\n"
    path = GOLDEN / f"{name}.json"
    if request.config.getoption("--update-goldens"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_a_graph_that_the_cards_onnx_runtime_cannot_read_is_refused():
    with pytest.raises(UsageError, match="reads opset 17, and the graph has 18") as refused:
        plan_for("C500", msgspec.structs.replace(IMAGE, opset=18), "fp16", {})
    assert refused.value.code == "CNV-2272"


def test_int8_without_data_is_refused():
    with pytest.raises(UsageError) as refused:
        plan_for("C500", IMAGE, "int8", {})
    assert refused.value.code == "CNV-2268"


@pytest.fixture
def net():
    model = onnx.parser.parse_model(NET.format(opset=17))
    weight = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model


@pytest.mark.parametrize("precision", ["fp16", "mixed"])
def test_what_is_made_is_readable_by_an_onnx_runtime_of_1_12(precision, net, graph_of, checked_of, tmp_path):
    graph = graph_of(net)
    options = CompileOptions(target="C500", backend="onnxruntime", precision=precision)
    artifact = compile_graph(graph, checked_of(graph), options, tmp_path / "made")
    made = onnx.load(artifact.path("model.onnx"))
    assert made.ir_version <= 8
    assert max(entry.version for entry in made.opset_import if not entry.domain) <= 17
    assert {node.domain for node in made.graph.node} <= {""}


def test_int8_keeps_the_pairs_that_the_graph_has_and_is_refused_without_them(graph_of, checked_of, tmp_path):
    text = """<ir_version: 9, opset_import: ["" : 17]>
    net (float[N, 8] x) => (float[N, 8] y) <float s = {0.1}, int8 z = {0}> {
        q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z) y = Tanh (d)
    }"""
    graph = graph_of(onnx.parser.parse_model(text))
    options = CompileOptions(target="C550", backend="onnxruntime", precision="int8")
    made = onnx.load(compile_graph(graph, checked_of(graph), options, tmp_path / "made").path("model.onnx"))
    assert {"QuantizeLinear", "DequantizeLinear"} <= {node.op_type for node in made.graph.node}
    assert made.ir_version == 8
    bare = msgspec.structs.replace(graph, ops={"MatMul": 1}, sample_count=1)
    with pytest.raises(UsageError, match="was not quantized"):
        compile_graph(bare, checked_of(bare), options, tmp_path / "bare")
