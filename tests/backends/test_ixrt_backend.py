"""The backend ``ixrt``: golden plans that the stand-in of their edition takes, refusals, and the way end to end."""

import json
import shlex
import sys
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trt_kit import DOUBLES, graph_like, model_for, options_of, put_on_path, run_double, spec

from artifacts.cli import run_boundary
from convert.__main__ import cli
from convert.backends.base import Toolchain
from convert.backends.ixrt import IxrtBackend
from convert.backends.ixrt.plan import EDITIONS, flags
from convert.backends.ixrt.probe import edition_in, interpreter_of
from convert.errors import UsageError
from convert.values import DimRange
from op_registry.targets import find_target

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "plans" / "ixrt"
DOUBLE = "ixrt/ixrtexec.py"
WEIGHT = ", ".join(str((7 * number % 11 - 5) / 8) for number in range(64))
NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[N, 8] x) => (float[N, 8] y) {
    w = Constant <value = float[8, 8] {WEIGHT}> ()
    t = Tanh (x)
    y = MatMul (t, w)
}"""
IMAGE = graph_like(spec("images", 1, 3, 8, 8))
BATCH = graph_like(spec("images", "N", 3, 8, 8), dims=(DimRange(name="N", low=1, high=8),))
TEXT = graph_like(
    spec("ids", "N", "T", dtype="int64"),
    spec("mask", "N", "T"),
    dims=(DimRange(name="N", sizes=(1, 4)), DimRange(name="T", low=16, high=128)),
)
QDQ = graph_like(spec("images", 1, 3, 8, 8), ops={"QuantizeLinear": 1, "DequantizeLinear": 1})
SAMPLED = graph_like(spec("images", 1, 3, 8, 8), sample_count=2, ops={"Gemm": 1})
CASES = {
    "2024-09_fp16": ("2024-09", IMAGE, "fp16", {}, ()),
    "2024-09_int8_of_the_model": ("2024-09", QDQ, "int8", {"log_level": "info"}, ()),
    "2025-06_fp32_batch": ("2025-06", BATCH, "fp32", {"timingCacheFile": "/var/cache/ixrt.bin", "opt": "N:4"}, ()),
    "2025-11_bf16_two_dims": ("2025-11", TEXT, "bf16", {"builderOptimizationLevel": "5"}, ()),
    "2025-12_mixed": ("2025-12", IMAGE, "mixed", {"plugins": "ixrt_plugin"}, ("sum",)),
    "2025-12_int8_by_pairs_to_come": ("2025-12", SAMPLED, "int8", {"gpus": "0"}, ()),
}


def plan_for(edition, graph, precision, options, keep=()):
    request = msgspec.structs.replace(options_of("ixrt", "BI-V150", precision, **options), keep=keep)
    toolchain = Toolchain(name="IxRT", version="1.1.0", details={"edition": edition})
    return IxrtBackend().plan(graph, find_target("BI-V150"), request, toolchain)


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_what_it_was_and_ixrtexec_of_its_edition_takes_it(name, request, tmp_path):
    plan = plan_for(*CASES[name])
    text = json.dumps(msgspec.to_builtins(plan), indent=2) + "\n"
    path = GOLDEN / f"{name}.json"
    if request.config.getoption("--update-goldens"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
    edition, graph, *_ = CASES[name]
    (tmp_path / "out").mkdir()
    (tmp_path / "model").mkdir()
    quantized = "int8" in plan.argv
    for file in ("model.onnx", "cast.onnx"):
        onnx.save(model_for(graph, quantized=quantized), tmp_path / "model" / file)
    code, said = run_double(DOUBLE, plan.argv[1:], tmp_path, DOUBLE_IXRT_EDITION=edition)
    assert code == 0, said
    assert (tmp_path / "out/model.engine").stat().st_size > 0


VALUES = {"switch": ["true", "off"], "number": ["0", "x"], "file": ["/a", "b"], "text": ["a:fp16", "-x"]}


@st.composite
def requests(draw):
    names = draw(st.lists(st.sampled_from([*flags(), "frob"]), max_size=3, unique=True))
    options = {}
    for name in names:
        takes = flags()[name].takes if name in flags() else "text"
        options[name] = draw(st.sampled_from(VALUES[takes] if takes in VALUES else takes.split("|")))
    graph = draw(st.sampled_from([IMAGE, BATCH, TEXT, QDQ, SAMPLED]))
    precision = draw(st.sampled_from(["fp32", "fp16", "bf16", "int8", "mixed"]))
    return draw(st.sampled_from(EDITIONS)), graph, precision, options


@settings(max_examples=200, deadline=None)
@given(request_=requests())
def test_no_plan_holds_a_flag_that_its_edition_lacks(request_):
    try:
        plan = plan_for(*request_)
    except UsageError as refused:
        assert refused.code in {"CNV-2071", "CNV-2075", "CNV-2265", "CNV-2268", "CNV-2269"}
        return
    used = {word.removeprefix("--") for word in plan.argv if word.startswith("--")}
    for name in used & set(flags()):
        assert flags()[name].since <= request_[0]
    assert "--strongly_typed" not in plan.argv or request_[0] >= "2025-12"
    assert ("--min_shape" in plan.argv) == any(
        isinstance(size, str) for one in request_[1].inputs for size in one.shape
    )


@pytest.mark.parametrize(
    ("edition", "graph", "precision", "options", "code"),
    [
        ("2024-09", IMAGE, "fp32", {}, "CNV-2269"),
        ("2025-06", IMAGE, "bf16", {}, "CNV-2269"),
        ("2025-11", IMAGE, "mixed", {}, "CNV-2269"),
        ("2024-09", IMAGE, "fp16", {"timingCacheFile": "/x"}, "CNV-2265"),
        ("2025-12", IMAGE, "int8", {}, "CNV-2268"),
        ("2025-12", graph_like(spec("scale")), "fp16", {}, "CNV-2271"),
        ("2025-12", graph_like(spec("x", 2, dtype="complex64")), "fp16", {}, "CNV-2271"),
        ("2025-12", graph_like(spec("a,b", "N"), dims=(DimRange(name="N", sizes=(1,)),)), "fp16", {}, "CNV-2270"),
        ("2025-12", graph_like(spec("x", "N"), dims=(DimRange(name="N"),)), "fp16", {}, "CNV-2267"),
        ("2025-12", IMAGE, "fp16", {"gpu": "0"}, "CNV-2071"),
    ],
)
def test_what_cannot_be_done_is_refused(edition, graph, precision, options, code):
    with pytest.raises(UsageError) as refused:
        plan_for(edition, graph, precision, options)
    assert refused.value.code == code
    assert refused.value.hint


@pytest.mark.parametrize("edition", EDITIONS)
def test_the_edition_is_found_in_the_help(edition, tmp_path):
    _, text = run_double(DOUBLE, ["--help"], tmp_path, DOUBLE_IXRT_EDITION=edition)
    assert edition_in(text) == edition


@pytest.mark.parametrize(
    ("first", "python"),
    [
        ("#!/usr/local/bin/python3.10", "/usr/local/bin/python3.10"),
        ("#!/usr/bin/env python3", "python3"),
        ("#!/bin/sh", "python3"),
        ("\x7fELF", "python3"),
    ],
)
def test_the_interpreter_of_a_script_is_that_of_its_first_line(first, python, tmp_path):
    (tmp_path / "ixrtexec").write_text(first + "\nimport x\n")
    assert interpreter_of(tmp_path / "ixrtexec") == python


# ---------------------------------------------------------------------------------------------------- end to end


@pytest.fixture
def convert(tmp_path, monkeypatch, card_machine, capsys):
    onnx.save(onnx.parser.parse_model(NET.replace("WEIGHT", WEIGHT)), tmp_path / "net.onnx")
    put_on_path(tmp_path / "bin", monkeypatch, ixrtexec=DOUBLE)
    card_machine("bi-v150")
    python = tmp_path / "bin" / "corex-python"
    modules = shlex.quote(str(DOUBLES / "ixrt/modules"))
    python.write_text(f'#!/bin/sh\nPYTHONPATH={modules} exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("CONVERT_IXRT_PYTHON", str(python))

    def run(*words, fault=""):
        monkeypatch.setenv("DOUBLE_IXRT_FAULT", fault)
        argv = [
            str(tmp_path / "net.onnx"),
            "--target",
            "BI-V150",
            "--dim",
            "N=1..4",
            "--json",
            "--out",
            str(tmp_path / "out"),
        ]
        code = run_boundary(cli, [*argv, *words], prog="convert", usage_code="CNV-2000")
        return code, json.loads(capsys.readouterr().out)

    return run


def test_an_engine_is_built_run_in_the_sdks_python_judged_and_published(convert, tmp_path):
    code, document = convert("--registry", str(tmp_path / "registry"))
    assert (code, document["status"]) == (0, "published"), document
    assert document["targets"][0]["validation"]["ran_on"] == "device"


def test_wrong_numbers_fail_the_gate(convert):
    code, _ = convert(fault="wrong")
    assert code == 8


@pytest.mark.parametrize(("fault", "code"), [("crash", "CNV-7002"), ("nofile", "CNV-7003"), ("build", "CNV-7272")])
def test_a_compiler_that_fails_is_told_by_its_cause(convert, fault, code):
    exit_code, document = convert("--no-publish", fault=fault)
    assert (exit_code, document["targets"][0]["error"]["code"]) == (7, code)


def test_int8_is_quantized_from_the_samples(convert, tmp_path):
    np.savez(tmp_path / "samples.npz", x=np.random.default_rng(3).normal(size=(4, 8)).astype(np.float32))
    code, document = convert("--precision", "int8", "--no-publish", "--samples", str(tmp_path / "samples.npz"))
    assert code in (0, 8), document
    assert document["targets"][0]["validation"]["ran_on"] == "device"


def test_bench_has_the_runtimes_clock_and_what_ixrtexec_says(convert, capsys):
    _, document = convert("--no-publish")
    argv = ["bench", document["targets"][0]["folder"], "--runs", "3", "--warmup", "1", "--json"]
    code = run_boundary(cli, argv, prog="convert", usage_code="CNV-2000")
    said = json.loads(capsys.readouterr().out)
    assert (code, said["speed"]["clock"], said["vendor"]["tool"], said["vendor"]["per_second"]) == (
        0, "runtime", "ixrtexec", 10.0,
    )  # fmt: skip
