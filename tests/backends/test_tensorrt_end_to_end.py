"""From the command line to an engine and its verdict, with a stand-in for trtexec that runs its engines."""

import json
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from trt_kit import put_on_path

from artifacts.cli import run_boundary
from convert.__main__ import cli
from convert.backends.base import Toolchain
from convert.backends.tensorrt.running import plan_version, read_outputs, unfit
from convert.errors import CompileFailed
from convert.stages.compile import compile_graph
from convert.values import CompileOptions, DimRange, Plan, TensorSpec

NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[N, 8] x) => (float[N, 4] y, float[N, 4] z) {
    h = MatMul (x, w)
    y = Add (h, b)
    z = Tanh (y)
}"""
NAMES = ("/head/MatMul", "/head/Add", "/act/Tanh")


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(NET)
    for node, name in zip(model.graph.node, NAMES, strict=True):
        node.name = name
    for name, shape in (("w", (8, 4)), ("b", (4,))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture
def convert(tmp_path, monkeypatch, card_machine, capsys, net):
    put_on_path(tmp_path / "bin", monkeypatch, trtexec="trtexec/trtexec.py")
    card_machine("l20")

    def run(*words: str, **environment: str) -> tuple[int, dict]:
        for name, text in environment.items():
            monkeypatch.setenv(f"DOUBLE_TRT_{name.upper()}", text)
        argv = [str(net), "--target", "L20", "--dim", "N=1..4", "--json", "--out", str(tmp_path / "out"), *words]
        code = run_boundary(cli, argv, prog="convert", usage_code="CNV-2000")
        return code, json.loads(capsys.readouterr().out)

    return run


def test_an_engine_is_built_run_judged_and_published(convert, tmp_path):
    code, document = convert("--registry", str(tmp_path / "registry"))
    (target,) = document["targets"]
    assert (code, document["status"], target["status"]) == (0, "published", "published"), document
    assert target["validation"]["ran_on"] == "device"
    assert Path(target["artifact"]["path"]).read_bytes()[:4] == b"ftrt"
    assert target["validation"]["passed"]


@pytest.mark.parametrize(
    ("precision", "version"),
    [("fp32", "8.4.1"), ("bf16", "9.2.0"), ("fp16", "11.0.0")],
)
def test_each_precision_passes_its_gate_in_a_release_that_has_it(convert, precision, version):
    code, document = convert("--precision", precision, "--no-publish", version=version)
    assert code == 0, document
    assert document["targets"][0]["validation"]["ran_on"] == "device"


def test_int8_takes_its_ranges_from_the_samples_and_says_so(convert, tmp_path):
    np.savez(tmp_path / "samples.npz", x=np.random.default_rng(3).normal(size=(4, 8)).astype(np.float32))
    code, document = convert("--precision", "int8", "--no-publish", "--calibration", str(tmp_path / "samples.npz"))
    assert code in (0, 8), document
    assert document["targets"][0]["validation"]["ran_on"] == "device"


def test_wrong_numbers_fail_the_gate(convert):
    code, document = convert(fault="wrong")
    assert code == 8
    assert document["targets"][0]["error"]["code"].startswith("CNV-8")


def test_a_hang_ends_at_the_time_limit(convert):
    code, document = convert("--timeout", "8", fault="hang")
    assert code == 10
    assert document["targets"][0]["error"]["code"] == "CNV-1001"


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("crash", "CNV-7002", "signal 11"),
        ("silent", "CNV-7002", "without its closing line"),
        ("lie", "CNV-7272", "no engine was built"),
        ("nofile", "CNV-7003", "is missing"),
        ("empty", "CNV-7003", "is empty"),
        ("oom", "CNV-7268", "memory"),
        ("flood", "", ""),
    ],
)
def test_a_compiler_that_fails_is_told_by_its_cause(
    fault, code, words, net, graph_of, checked_of, tmp_path, monkeypatch, card_machine
):
    put_on_path(tmp_path / "bin", monkeypatch, trtexec="trtexec/trtexec.py")
    card_machine("l20")
    monkeypatch.setenv("DOUBLE_TRT_FAULT", fault)
    graph = msgspec.structs.replace(graph_of(onnx.load(net)), dims=(DimRange(name="N", low=1, high=4),))
    options = CompileOptions(target="L20", backend="tensorrt", precision="fp16")
    if not code:
        compile_graph(graph, checked_of(graph), options, tmp_path / "made")
        assert (tmp_path / "made/compile.log").stat().st_size < 6 << 20
        return
    with pytest.raises(CompileFailed) as failure:
        compile_graph(graph, checked_of(graph), options, tmp_path / "made")
    assert (failure.value.code, failure.value.exit_code) == (code, 7)
    assert words in failure.value.message


def test_a_failing_node_is_named_cut_out_and_kept_with_the_log(convert, tmp_path):
    exit_code, document = convert(fault="nokernel")
    error = document["targets"][0]["error"]
    assert exit_code == 7
    assert "(nodes: /head/" in error["message"]
    assert "in module head" in error["message"]
    failed = tmp_path / "out/net/L20/failed"
    assert f"{failed}/failing/model.onnx" in error["hint"]
    assert "x:float32[N,8]" in error["hint"]
    assert (failed / "compile.log").is_file()
    rerun = (failed / "rerun.sh").read_text()
    assert f"cd {failed}" in rerun
    onnx.checker.check_model(str(failed / "failing/model.onnx"))
    exit_code, _ = convert("--no-publish", fault="")
    assert exit_code == 0
    assert not failed.exists()


def test_an_option_reaches_trtexec_and_a_wrong_one_is_refused_before_it(convert):
    code, document = convert("--option", "timingCacheFile=/tmp/none.bin", "--dry-run")
    assert "--timingCacheFile=/tmp/none.bin" in document["targets"][0]["plan"]["argv"]
    code, document = convert("--option", "fp17=true", "--dry-run")
    assert (code, document["targets"][0]["error"]["code"]) == (2, "CNV-2071")


def test_an_engine_says_which_tensorrt_and_card_it_is_of(tmp_path):
    engine = tmp_path / "model.plan"
    engine.write_bytes(b"ftrt" + bytes(20) + bytes([10, 15, 1, 0]))
    assert plan_version(engine) == "10.15.1"
    engine.write_bytes(b"\0" * 64)
    assert plan_version(engine) == ""
    plan = Plan(backend="tensorrt", argv=("trtexec",), output="model.plan", needs={"arch": "sm_89"})
    other = Toolchain(name="TensorRT", version="10.16.0", details={"arch": "sm_89"})
    assert "10.15.1" in unfit(plan, other, "10.15.1")
    portable = Plan(backend="tensorrt", argv=("trtexec", "--versionCompatible"), output="model.plan", needs={})
    assert unfit(portable, other, "10.15.1") == ""
    assert unfit(portable, other, "10.17.0")
    card = Toolchain(name="TensorRT", version="10.15.1", details={"arch": "sm_80"})
    assert "sm_89" in unfit(plan, card, "10.15.1")


def test_outputs_are_read_by_name_with_bare_nan_and_inf_in_the_graphs_dtypes():
    text = """[
  { "name" : "b"
  , "dimensions" : "2"
  , "values" : [ 1, 0 ]
  }
  , { "name" : "a"
  , "dimensions" : "1x3"
  , "values" : [ nan, -inf, 0.5 ]
  }
  , { "name" : "s"
  , "dimensions" : ""
  , "values" : [ 7 ]
  }
]"""
    specs = (
        TensorSpec(name="a", dtype="float16", shape=(1, 3)),
        TensorSpec(name="b", dtype="bool", shape=(2,)),
        TensorSpec(name="s", dtype="int64", shape=()),
    )
    a, b, s = read_outputs(text, specs)
    assert np.isnan(a[0, 0]) and a[0, 1] == -np.inf and a.dtype == np.float16
    assert b.tolist() == [True, False]
    assert (s.shape, s.dtype, int(s)) == ((), np.int64, 7)
    with pytest.raises(CompileFailed, match="3 outputs, and the graph has 1"):
        read_outputs(text, specs[:1])


@pytest.mark.parametrize("version", ["8.6.1", "10.15.1", "11.0.0"])
def test_bench_shows_what_trtexec_says_of_many_runs(convert, tmp_path, capsys, version):
    code, document = convert("--no-publish", version=version)
    assert code == 0, document
    argv = ["bench", document["targets"][0]["folder"], "--runs", "3", "--warmup", "1", "--json"]
    code = run_boundary(cli, argv, prog="convert", usage_code="CNV-2000")
    said = json.loads(capsys.readouterr().out)
    assert (code, said["vendor"]["tool"], said["vendor"]["p50"], said["vendor"]["per_second"]) == (
        0, "trtexec", 1.2, 812.4,
    )  # fmt: skip
