"""Whole conversions through the command line, with the stand-ins on PATH."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from migraphx_requests import BACKEND, tiny_model

from artifacts.digest import file_entries
from convert.arrays import save_npz
from convert.backends.base import CannotRun, Missing, RunRequest
from convert.errors import CompileFailed
from convert.graphs import facts
from convert.ort import run_samples
from convert.stages.compile import compile_graph, runner_for
from convert.values import CheckedGraph, CompiledArtifact, CompileOptions, DimRange, OnnxGraph, Support

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for this file: what comes before the compiler is done once."""
    return tmp_path_factory.mktemp("places")


@pytest.fixture
def convert(places: Path, tmp_path: Path):
    def run(*words: object) -> tuple[int, Any]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "CONVERT_CACHE_DIR": str(places / "cache"),
            "CONVERT_REGISTRY": str(tmp_path / "registry"),
            "CONVERT_OUT": str(tmp_path / "converted"),
        }
        ended = subprocess.run(
            [sys.executable, "-m", "convert", *map(str, words), "--json"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert "Traceback" not in ended.stderr
        return ended.returncode, json.loads(ended.stdout)

    return run


def test_the_reference_target_is_compiled_run_and_published_as_a_simulator(machine, tmp_path: Path, convert) -> None:
    machine("2.16.0")
    model = tiny_model("N", "Mish")
    model.opset_import[0].version = 18
    onnx.save(model, tmp_path / "mish.onnx")
    wanted = ("--target", "migraphx-ref", "--precision", "fp16", "--dim", "N=1..4")
    code, told = convert(tmp_path / "mish.onnx", *wanted)
    target = told["targets"][0]
    assert (code, told["status"], target["status"]) == (0, "published", "published")
    assert target["validation"]["ran_on"] == "simulator"
    assert 0 < target["validation"]["outputs"][0]["rel_l2"] < 0.005
    assert target["plan"]["needs"]["arch"] == "ref"
    blobs = [
        path.read_bytes() for path in (tmp_path / "registry").rglob("blobs/sha256/*") if path.stat().st_size < 1 << 20
    ]
    manifest = next(json.loads(blob) for blob in blobs if b'"chain"' in blob and blob.startswith(b"{"))
    (adapted,) = manifest["support"]["adapted"]
    assert (adapted["rewrite"], adapted["nodes"]) == ("mish-to-softplus", ["act"])
    assert adapted["evidence"]["max_abs_below"] == 0.0


def test_a_card_is_compiled_for_where_it_is_and_published_as_a_device(machine, tiny: Path, convert) -> None:
    machine(arch="gfx90a")
    code, told = convert(tiny, "--target", "MI210", "--precision", "int8")
    target = told["targets"][0]
    assert (code, target["status"]) == (0, "published")
    assert (target["validation"]["ran_on"], target["validation"]["device"]) == ("device", "AMD Instinct MI210")
    assert target["plan"]["argv"] == ["python3", "migraphx_compile.py", "migraphx_compile.json"]


def test_without_its_card_a_target_is_handed_off_and_the_reference_target_judges_the_graph(
    machine, tiny: Path, convert
) -> None:
    machine()
    code, told = convert(tiny, "--target", "MI210", "--gate-on", "migraphx-ref", "--option", "exhaustive-tune=on")
    target = told["targets"][0]
    assert (code, target["status"]) == (6, "handoff")
    assert "MIGraphX 2.15.0 is here, but no card" in target["error"]["message"]
    assert (target["rehearsal"]["target"], target["rehearsal"]["passed"]) == ("migraphx-ref", True)
    assert target["rehearsal"]["ran_on"] == "simulator"
    assert target["validation"] is None and target["artifact"] is None


def test_wrong_numbers_fail_at_the_gate(machine, tiny: Path, convert) -> None:
    machine(fault="wrong")
    code, told = convert(tiny, "--target", "migraphx-ref")
    assert code == 8
    assert told["targets"][0]["status"] == "failed"
    assert told["targets"][0]["validation"]["outputs"][0]["norm_ratio"] == pytest.approx(2)


def test_a_driver_that_hangs_is_ended_with_its_children(
    machine, tiny: Path, convert, tmp_path: Path, monkeypatch
) -> None:
    machine(fault="hang")
    monkeypatch.setenv("MIGRAPHX_DOUBLE_PIDS", str(tmp_path / "pids"))
    code, told = convert(tiny, "--target", "migraphx-ref", "--timeout", "10")
    assert (code, told["error"]["code"]) == (10, "CNV-1001")
    pids = (tmp_path / "pids").read_text().split()
    for _ in range(50):
        if not [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
            return
        time.sleep(0.1)
    pytest.fail("a process is left after five seconds")


# ------------------------------------------------------------------------------------------------- the stage by itself


@pytest.fixture
def stage(tmp_path: Path):
    """Compile the tiny graph through the stage, in this process."""

    def graph_in(folder: Path, model: onnx.ModelProto, dims: tuple[DimRange, ...]) -> OnnxGraph:
        folder.mkdir()
        onnx.save(model, folder / "model.onnx")
        sample = {"x": np.random.default_rng(1).normal(0, 1, (2, 8)).astype(np.float32)}
        save_npz(folder / "samples/000.npz", sample)
        outputs = run_samples(folder / "model.onnx", [sample])[0] if model.graph.node[1].op_type == "Relu" else []
        save_npz(folder / "reference/000.npz", {str(number): array for number, array in enumerate(outputs)})
        names = ["model.onnx", "samples/000.npz", "reference/000.npz"]
        return OnnxGraph(
            parent="sha256:" + "0" * 64,
            stage="export",
            sample_count=1,
            dims=dims,
            files=file_entries(folder, names),
            folder=str(folder),
            **facts(model),
        )

    def run(
        target: str = "migraphx-ref",
        precision: str = "fp32",
        model: onnx.ModelProto | None = None,
        dims: tuple[DimRange, ...] = (),
        **more: Any,
    ) -> tuple[OnnxGraph, CompiledArtifact]:
        graph = graph_in(tmp_path / "graph", model or tiny_model(), dims)
        support = Support(supported=True, nodes=graph.nodes, opset=graph.opset)
        checked = CheckedGraph(parent=graph.digest, target=target, support=support)
        options = CompileOptions(target=target, backend="migraphx", precision=precision, timeout=60, **more)  # type: ignore[arg-type]
        (tmp_path / "compiled").mkdir()
        return graph, compile_graph(graph, checked, options, tmp_path / "compiled")

    return run


def outputs_of(graph: OnnxGraph, artifact: CompiledArtifact, folder: Path) -> Any:
    folder.mkdir(exist_ok=True)
    feeds = [dict(np.load(graph.path("samples/000.npz")))]
    ran = BACKEND.run(RunRequest(artifact=artifact, graph=graph, folder=folder), feeds, runner_for(60, folder))
    return ran if isinstance(ran, CannotRun) else next(iter(ran.outputs))[0]


def reference(graph: OnnxGraph) -> Any:
    return np.load(graph.path("reference/000.npz"))["0"]


@pytest.mark.parametrize(
    ("fault", "code", "says"),
    [
        ("crash", "CNV-7", "memory fault"),
        ("flood", "CNV-7", ""),
        ("nofile", "CNV-7003", "is missing"),
        ("empty", "CNV-7003", "is empty"),
        ("soft", "CNV-7", ""),
        ("quiet", "CNV-7", "without the closing line of 2.15"),
    ],
)
def test_each_way_to_fail_is_a_failure_of_the_compiler(fault, code, says, machine, stage, tmp_path: Path) -> None:
    machine(fault=fault)
    with pytest.raises(CompileFailed) as failure:
        stage()
    assert failure.value.code.startswith(code) and failure.value.exit_code == 7
    assert says in failure.value.message
    assert (tmp_path / "compiled" / "compile.log").stat().st_size < 6 << 20


def test_an_operator_without_a_parser_is_named(machine, stage) -> None:
    machine()
    with pytest.raises(CompileFailed) as failure:
        stage(model=tiny_model(op="Mish"))
    assert "Mish" in failure.value.message


def test_a_mixed_artifact_keeps_its_node_in_fp32(machine, stage, tmp_path: Path) -> None:
    machine()
    graph, artifact = stage(precision="mixed", keep=("first", "act", "last"))
    assert any("takes no list of nodes" in note.text for note in artifact.notes)
    assert np.array_equal(outputs_of(graph, artifact, tmp_path / "run"), reference(graph))


def test_a_mixed_artifact_rounds_the_others(machine, stage, tmp_path: Path) -> None:
    machine()
    graph, artifact = stage(precision="mixed", keep=("last",))
    error = np.abs(outputs_of(graph, artifact, tmp_path / "run") - reference(graph)).max()
    assert 0 < error < 1e-2


def test_a_range_that_the_driver_does_not_read_is_found_by_asking_for_the_dimensions(
    machine, stage, monkeypatch
) -> None:
    machine("2.16.0")
    monkeypatch.setattr("convert.backends.migraphx.dims.json_of", lambda span, dialect: "{min:1,max:8}")
    with pytest.raises(CompileFailed) as failure:
        stage(model=tiny_model(batch="N"), dims=(DimRange(name="N", low=1, high=8),))
    assert "the input x a dimension of 0" in failure.value.message


PEAKS = """
import json, os, resource, subprocess, sys
ended = subprocess.run([sys.executable, "-m", "convert", *sys.argv[1:]], capture_output=True)
told = json.loads(ended.stdout)
print(json.dumps([ended.returncode, told["error"]["code"], resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))
"""


@pytest.mark.parametrize("size", [100, pytest.param(1000, marks=pytest.mark.long)], ids=["100MB", "1GB"])
def test_a_flood_of_output_costs_a_conversion_no_memory(machine, tiny: Path, tmp_path: Path, places, size: int) -> None:
    def run(fault: str) -> tuple[int, str, int]:
        machine(fault=fault)
        words = [
            sys.executable,
            "-c",
            PEAKS,
            str(tiny),
            "--target",
            "migraphx-ref",
            "--quiet",
            "--json",
            "--no-publish",
        ]
        own = {
            "CONVERT_CACHE_DIR": str(places / "cache"),
            "CONVERT_OUT": str(tmp_path / "out"),
            "PYTHONPATH": str(ROOT),
        }
        environment = {**os.environ, **own, "MIGRAPHX_DOUBLE_FLOOD": str(size)}
        ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        return tuple(json.loads(ended.stdout))

    # The first run fills the cache: its libraries take more than any output could.
    _, small, large = run("crash"), run("crash"), run("flood")
    assert (small[0], large[0]) == (7, 7)
    assert large[2] - small[2] < 24 << 10, f"{small[2]} KiB became {large[2]} KiB"
    log = tmp_path / "out" / "tiny" / "migraphx-ref" / "failed" / "compile.log"
    assert log.stat().st_size < 6 << 20
    assert b"bytes left out" in log.read_bytes() and b"bad_alloc" in log.read_bytes()[-2000:]


def test_a_scalar_input_stays_a_scalar(machine, tmp_path: Path) -> None:
    machine()
    text = """<ir_version: 8, opset_import: ["" : 17]>
    net (float[2, 8] x, float s) => (float[2, 8] y) { y = Mul (x, s) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    np.savez(tmp_path / "000.npz", x=np.ones((2, 8), np.float32), s=np.array(3, np.float32))
    driver = ["migraphx-driver", "compile", "model.onnx", "--ref", "--binary", "-o", "model.mxr"]
    subprocess.run(driver, cwd=tmp_path, check=True, capture_output=True)
    samples = [["000.npz", "out/0.npz"]]
    job = {"artifact": "model.mxr", "samples": samples, "host": True, "reshape": False}
    (tmp_path / "migraphx_run.json").write_text(json.dumps(job))
    script = ROOT / "convert" / "backends" / "migraphx" / "child_run.py"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "opt" / "lib")}
    ended = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    with np.load(tmp_path / "out" / "0.npz") as stored:
        assert np.allclose(stored["0"], 3)


@pytest.mark.parametrize("version", ["2.8.0", "2.15.0", "2.16.0"])
def test_the_drivers_own_timing_stands_beside_ours(machine, stage, tmp_path: Path, version: str) -> None:
    machine(version, arch="gfx90a")
    graph, artifact = stage("gfx90a", "fp16")
    (tmp_path / "run").mkdir()
    request = RunRequest(artifact=artifact, graph=graph, folder=tmp_path / "run")
    told = BACKEND.timing(request, {}, runner_for(60, tmp_path / "run"), warmup=1, runs=20)
    assert told is not None and (told.tool, told.runs, told.per_second) == ("migraphx-driver perf", 20, 123.4)
    machine(version, arch="gfx942")
    assert BACKEND.timing(request, {}, runner_for(60, tmp_path / "run"), warmup=1, runs=20) is None


def test_dtk_runs_samples_that_grow_and_shrink_up_to_what_it_was_built_for(machine, stage, tmp_path: Path) -> None:
    machine("4.0.0", arch="gfx926")
    graph, artifact = stage("K100", "fp16", tiny_model(batch="N"), (DimRange(name="N", low=1, high=8),))
    (tmp_path / "run").mkdir()
    feeds = [{"x": np.ones((size, 8), np.float32)} for size in (1, 4, 2, 8)]
    request = RunRequest(artifact=artifact, graph=graph, folder=tmp_path / "run")
    ran = BACKEND.run(request, feeds, runner_for(60, tmp_path / "run"))
    assert not isinstance(ran, CannotRun)
    assert [outputs[0].shape[0] for outputs in ran.outputs] == [1, 4, 2, 8]
    with pytest.raises(CompileFailed, match="larger than the program was built for"):
        BACKEND.run(request, [{"x": np.ones((9, 8), np.float32)}], runner_for(60, tmp_path / "run"))


def test_dtk_builds_the_greatest_shape_and_reshapes(machine, stage, tmp_path: Path) -> None:
    machine("4.0.0", arch="gfx936")
    graph, artifact = stage("BW1000", "fp16", tiny_model(batch="N"), (DimRange(name="N", low=1, high=8),))
    assert artifact.plan.environment["MIGRAPHX_DYNAMIC_SHAPE"] == "1"
    assert np.allclose(outputs_of(graph, artifact, tmp_path / "run"), reference(graph), atol=1e-2)


def test_an_artifact_of_another_format_or_arch_is_not_started(machine, stage, tmp_path: Path) -> None:
    machine(arch="gfx90a")
    graph, artifact = stage("gfx90a", "fp16")
    machine("2.16.0", arch="gfx90a")
    refused = outputs_of(graph, artifact, tmp_path / "run")
    assert isinstance(refused, CannotRun) and "file version 7, and 2.16.0 reads 8" in refused.reason
    machine("2.15.0", arch="gfx942")
    refused = outputs_of(graph, artifact, tmp_path / "run")
    assert isinstance(refused, CannotRun) and "gfx942" in refused.reason


def test_a_wrong_arch_at_load_is_a_clear_error(machine, stage, tmp_path: Path) -> None:
    machine(arch="gfx90a")
    graph, artifact = stage("gfx90a", "fp16")
    machine(arch="gfx942")
    lying = msgspec.structs.replace(
        artifact,
        target="gfx942",
        plan=msgspec.structs.replace(artifact.plan, needs={**artifact.plan.needs, "arch": "gfx942"}),
    )
    with pytest.raises(CompileFailed) as failure:
        outputs_of(graph, lying, tmp_path / "run")
    assert failure.value.code == "CNV-7005" and "Failed to load module" in failure.value.message


def test_another_version_of_the_same_format_runs_with_a_warning(machine, stage, tmp_path: Path) -> None:
    machine("2.14.0")
    graph, artifact = stage()
    machine("2.15.0")
    (tmp_path / "run").mkdir()
    request = RunRequest(artifact=artifact, graph=graph, folder=tmp_path / "run")
    ran = BACKEND.run(request, [dict(np.load(graph.path("samples/000.npz")))], runner_for(60, tmp_path / "run"))
    assert not isinstance(ran, CannotRun | Missing)
    assert ran.ran_on == "simulator" and "compiled with MIGraphX 2.14 and run with 2.15" in ran.notes[0].text


def test_without_the_module_the_artifact_can_not_be_run_here(machine, stage, tmp_path: Path) -> None:
    machine(module=False)
    graph, artifact = stage()
    refused = outputs_of(graph, artifact, tmp_path / "run")
    assert isinstance(refused, CannotRun) and "no module migraphx" in refused.reason


def test_int8_without_the_module_says_what_is_missing(machine, stage) -> None:
    machine(module=False)
    with pytest.raises(CompileFailed) as failure:
        stage(precision="int8")
    assert "CONVERT_MIGRAPHX_PYTHON" in failure.value.message + failure.value.hint


def test_a_bundle_is_compiled_and_measured_by_its_own_scripts_where_the_card_is(
    machine, tiny: Path, convert, tmp_path: Path, monkeypatch
) -> None:
    machine("2.16.0")
    code, told = convert(tiny, "--target", "MI210", "--precision", "mixed", "--gate", "rel_l2=0.0001")
    assert code == 6, told["error"]
    assert "model/mixed.onnx" in told["targets"][0]["plan"]["argv"]
    subprocess.run(["tar", "-xf", told["targets"][0]["handoff"]["path"], "-C", str(tmp_path)], check=True)
    (folder,) = tmp_path.glob("*.handoff")
    monkeypatch.setenv("ROCM_PATH", str(machine("2.15.0", arch="gfx90a")))
    ended = subprocess.run(["bash", str(folder / "compile.sh")], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    measured = subprocess.run(["python3", "migraphx_run.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert measured.returncode == 0, measured.stdout + measured.stderr
    machine()
    code, told = convert("resume", folder)
    assert (code, told["targets"][0]["validation"]["ran_on"]) == (0, "device")


def test_an_operator_that_only_the_driver_refuses_is_learned_from_its_log(
    machine, tmp_path: Path, convert, monkeypatch
) -> None:
    """Nothing public tells whether Hygon's build has Det, so `check` lets it through."""
    machine("4.0.0", arch="gfx928")
    monkeypatch.setenv("CONVERT_OPS_OVERLAY", str(tmp_path / "site.csv"))
    onnx.save(with_det(), tmp_path / "det.onnx")
    words = (tmp_path / "det.onnx", "--target", "K100_AI")
    code, told = convert(*words)
    error = told["targets"][0]["error"]
    assert (code, error["code"]) == (7, "CNV-7261"), error
    assert "operator Det" in error["message"]
    assert "the_det" in error["message"]
    (lesson,) = re.findall(r"`convert (ops learn [^`]+)`", error["hint"])
    code, learned = convert(*shlex.split(lesson))
    assert (code, learned["vendor"], [row["op"] for row in learned["lines"]]) == (0, "hygon", ["Det"])
    code, told = convert(*words)
    target = told["targets"][0]
    assert (code, target["error"]["code"]) == (5, "CNV-5001")
    assert [(one["node"], one["grade"]) for one in target["support"]["unsupported"]] == [("the_det", "site")]
    assert "compile" not in [run["stage"] for run in target["stages"]]


def with_det() -> onnx.ModelProto:
    """A graph with Det."""
    make = onnx.helper.make_node
    nodes = [make("Relu", ["x"], ["a"], name="first"), make("Det", ["a"], ["y"], name="the_det")]
    x, y = (onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [2, 3, 3]), ("y", [2])))
    graph = onnx.helper.make_graph(nodes, "g", [x], [y])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
