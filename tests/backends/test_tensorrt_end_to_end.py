"""From the command line to an engine and its verdict, with a stand-in for trtexec that runs its engines."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from trt_kit import put_on_path

from artifacts.cli import run_boundary
from convert.__main__ import cli

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
    [("fp32", "8.4.1"), ("bf16", "9.2.0"), ("fp16", "11.0.0"), ("mixed", "10.15.1")],
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
    ],
)
def test_a_compiler_that_fails_is_told_by_its_cause(convert, fault, code, words):
    exit_code, document = convert(fault=fault)
    error = document["targets"][0]["error"]
    assert (exit_code, error["code"]) == (7, code), error
    assert words in error["message"]


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


def test_an_engine_of_another_tensorrt_is_not_run(convert, monkeypatch, tmp_path):
    from convert.backends.base import Toolchain
    from convert.backends.tensorrt.running import plan_version, unfit

    _, document = convert("--no-publish")
    engine = Path(document["targets"][0]["artifact"]["path"])
    assert plan_version(engine) == "10.15.1"
    from convert.values import Plan

    plan = Plan(backend="tensorrt", argv=("trtexec",), output="model.plan", needs={"arch": "sm_89"})
    other = Toolchain(name="TensorRT", version="10.16.0", details={"arch": "sm_89"})
    assert "10.15.1" in unfit(plan, other, plan_version(engine))
    portable = Plan(backend="tensorrt", argv=("trtexec", "--versionCompatible"), output="model.plan", needs={})
    assert unfit(portable, other, plan_version(engine)) == ""
    card = Toolchain(name="TensorRT", version="10.15.1", details={"arch": "sm_80"})
    assert "sm_89" in unfit(plan, card, plan_version(engine))
