"""The whole chain on compilers that nobody here wrote: OpenVINO on this CPU, tpu-mlir with its simulator of a chip.

``make test-compilers`` installs both and runs this; without them every test is skipped with the reason.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from compiler_kit import LEAST, RAN_ON, TARGETS, command, processes, variables, worst_cosine, write_det, write_wide

from artifacts.digest import FileEntry
from convert.arrays import load_npz
from convert.backends import load_backend
from convert.backends.base import Ran, RunRequest
from convert.errors import CompileFailed
from convert.stages.compile import runner_for
from convert.toolchains.place import installed_toolchain
from convert.values import CompiledArtifact, OnnxGraph, Plan, TensorSpec

pytestmark = pytest.mark.compilers


@pytest.fixture(scope="session")
def built(models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Conversions of the small CNN in fp16 that several tests look at, by target."""
    return {"folder": tmp_path_factory.mktemp("built"), "answers": {}}


def published(built: dict[str, Any], models: Path, target: str) -> Any:
    if target not in built["answers"]:
        words = (str(models / "cnn.onnx"), "--target", target, "--samples", str(models / "cnn"), "--precision", "fp16")
        answer = command(built["folder"], "convert", *words, "--name", f"cnn-{target.lower()}")
        assert answer.code == 0, answer.document["error"]
        built["answers"][target] = answer
    return built["answers"][target]


@pytest.mark.parametrize("precision", LEAST)
@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_a_small_model_is_converted_judged_and_published(
    models: Path, tmp_path: Path, target: str, name: str, precision: str
) -> None:
    samples = ("--samples", str(models / name), "--calibration", str(models / name))
    answer = command(
        tmp_path, "convert", str(models / f"{name}.onnx"), "--target", target, "--precision", precision, *samples
    )
    assert answer.code == 0, answer.document["error"]
    assert answer.document["status"] == "published"
    assert answer.target["validation"]["ran_on"] == RAN_ON[target]
    assert worst_cosine(answer.target) >= LEAST[precision]


BY_CHOICE = {"HTP-V73": ("qnn", "simulator"), "RK3588": ("rknn", "host")}
"""Toolchains behind licences of their own: tried where somebody has installed them."""


@pytest.mark.parametrize("precision", LEAST)
@pytest.mark.parametrize("name", ["cnn", "transformer"])
@pytest.mark.parametrize("chosen", BY_CHOICE)
def test_a_toolchain_by_choice_does_the_same_where_it_is_installed(
    models: Path, tmp_path: Path, chosen: str, name: str, precision: str
) -> None:
    toolchain, ran_on = BY_CHOICE[chosen]
    if installed_toolchain(toolchain) is None:
        pytest.skip(f"the toolchain {toolchain} is not installed: it has a licence of its own to agree to")
    samples = ("--samples", str(models / name), "--calibration", str(models / name))
    words = (str(models / f"{name}.onnx"), "--target", chosen, "--precision", precision)
    answer = command(tmp_path, "convert", *words, *samples)
    assert answer.code == 0, answer.document["error"]
    assert answer.target["validation"]["ran_on"] == ran_on
    assert worst_cosine(answer.target) >= LEAST[precision]


def rerun(answer: Any, folder: Path, models: Path, work: Path) -> list[Any]:
    """Run a pulled artifact on the samples it was judged with, through the backend alone."""
    manifest = json.loads((folder / "manifest.json").read_text())
    backend = load_backend(manifest["backend"])
    entries = tuple(msgspec.convert(entry, FileEntry) for entry in manifest["files"])
    artifact = CompiledArtifact(
        parent="",
        target=manifest["target"],
        backend=manifest["backend"],
        precision=manifest["precision"],
        plan=Plan(backend=manifest["backend"], argv=tuple(manifest["plan"]), output=entries[0].name),
        files=entries,
        folder=str(folder),
    )
    spec = TensorSpec(name="x", dtype="float32", shape=(1, 3, 32, 32))
    out = TensorSpec(name="y", dtype="float32", shape=(1, 10))
    graph = OnnxGraph(parent="", stage="simplify", opset=17, inputs=(spec,), outputs=(out,))
    work.mkdir()
    feeds = [load_npz(path) for path in sorted((models / "cnn").glob("*.npz"))]
    ran = backend.run(RunRequest(artifact=artifact, graph=graph, folder=work), feeds, runner_for(300, work))
    assert isinstance(ran, Ran)
    return [outputs[0] for outputs in ran.outputs]


def test_what_is_pulled_runs_again_with_the_same_numbers(
    built: dict[str, Any], models: Path, tmp_path: Path, target: str
) -> None:
    answer = published(built, models, target)
    ref = answer.target["artifact"]["ref"]
    pulled = command(built["folder"], "artifacts", "pull", ref, str(tmp_path / "pulled"), "--target", target)
    assert pulled.code == 0, pulled.document
    first, again = (rerun(answer, tmp_path / "pulled", models, tmp_path / work) for work in ("one", "two"))
    session = __import__("onnxruntime").InferenceSession(str(models / "cnn.onnx"))
    for path, one, two in zip(sorted((models / "cnn").glob("*.npz")), first, again, strict=True):
        assert one.tobytes() == two.tobytes()
        reference = session.run(None, dict(np.load(path)))[0]
        assert float(np.linalg.norm(one - reference) / np.linalg.norm(reference)) < 0.01


def test_a_damaged_artifact_is_refused_or_fails_its_numbers(
    built: dict[str, Any], models: Path, tmp_path: Path, target: str
) -> None:
    answer = published(built, models, target)
    pulled = command(
        built["folder"],
        "artifacts",
        "pull",
        answer.target["artifact"]["ref"],
        str(tmp_path / "got"),
        "--target",
        target,
    )
    assert pulled.code == 0, pulled.document
    manifest = json.loads((tmp_path / "got" / "manifest.json").read_text())
    largest = max(manifest["files"], key=lambda entry: entry["bytes"])["name"]
    path = tmp_path / "got" / largest
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CompileFailed) as failed:
        rerun(answer, tmp_path / "got", models, tmp_path / "work")
    assert failed.value.code == "CNV-7005"


def test_inputs_of_another_shape_end_in_an_error(
    built: dict[str, Any], models: Path, tmp_path: Path, target: str
) -> None:
    answer = published(built, models, target)
    ref = answer.target["artifact"]["ref"]
    assert command(built["folder"], "artifacts", "pull", ref, str(tmp_path / "got"), "--target", target).code == 0
    wrong = tmp_path / "models" / "cnn"
    wrong.mkdir(parents=True)
    np.savez(wrong / "0.npz", x=np.zeros((1, 3, 7), np.float32))
    with pytest.raises(CompileFailed) as failed:
        rerun(answer, tmp_path / "got", wrong.parent, tmp_path / "work")
    assert failed.value.code == "CNV-7005"


def test_an_operator_that_the_data_refuse_stops_before_the_compiler(tmp_path: Path, target: str) -> None:
    write_det(tmp_path / "det.onnx")
    answer = command(tmp_path, "convert", "det.onnx", "--target", target)
    assert answer.code == 5
    assert [one["node"] for one in answer.target["support"]["unsupported"]] == ["the_det"]
    assert "compile" not in [run["stage"] for run in answer.target["stages"]]


def test_a_compiler_that_takes_too_long_is_stopped_with_all_its_children(
    models: Path, tmp_path: Path, target: str
) -> None:
    words = (str(models / "transformer.onnx"), "--target", target, "--samples", str(models / "transformer"))
    warm = command(tmp_path, "convert", "check", *words[:3], *words[3:])
    assert warm.code == 0
    # Less than either compiler's own start takes; what comes before it is in the cache.
    answer = command(tmp_path, "convert", *words, "--timeout", "0.2")
    assert answer.code == 10, answer.document["error"]
    assert answer.document["error"]["code"] == "CNV-1001"
    assert gone(str(tmp_path))


def gone(marker: str) -> bool:
    """Whether no process is left that works in a folder, within five seconds."""
    for _ in range(50):
        if not processes(marker):
            return True
        time.sleep(0.1)
    return False


def test_ctrl_c_leaves_no_compiler_behind(models: Path, tmp_path: Path, target: str) -> None:
    words = ["convert", str(models / "cnn.onnx"), "--target", target, "--samples", str(models / "cnn"), "--json"]
    started = subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=tmp_path,
        env=variables(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    marker = {"BM1684X": "build.sh", "openvino-cpu": "openvino_compile.py"}[target]
    deadline = time.monotonic() + 120
    # Only of this run: the other test beside it may be compiling, too.
    while not any(marker in line for line in processes(str(tmp_path))):
        assert started.poll() is None, started.communicate()[1].decode()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 130, said.decode()
    assert gone(str(tmp_path))


def test_a_bundle_is_compiled_by_its_own_script_and_taken_up_again(models: Path, tmp_path: Path, target: str) -> None:
    words = (str(models / "cnn.onnx"), "--target", target, "--samples", str(models / "cnn"), "--name", "carried")
    handed = command(tmp_path, "convert", *words, CONVERT_TOOLCHAINS=str(tmp_path / "none"))
    assert handed.code == 6, handed.document["error"]
    with tarfile.open(handed.target["handoff"]["path"]) as archive:
        archive.extractall(tmp_path / "elsewhere", filter="data")
    (folder,) = (tmp_path / "elsewhere").iterdir()
    found = installed_toolchain(TARGETS[target])
    assert found is not None
    path = os.pathsep.join((str(found.python.parent), "/usr/bin", "/bin"))
    compiled = subprocess.run(
        ["bash", "compile.sh"], cwd=folder, env={"PATH": path, "HOME": str(tmp_path)}, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert compiled.returncode == 0, compiled.stdout + compiled.stderr
    resumed = command(tmp_path, "convert", "resume", str(folder))
    assert resumed.code == 0, resumed.document
    assert resumed.document["status"] == "published"
    assert resumed.target["validation"]["ran_on"] == RAN_ON[target]


def test_the_cost_of_the_simulator_is_told_before_and_its_gate_is_judged_elsewhere(
    models: Path, tmp_path: Path
) -> None:
    if installed_toolchain("sophgo") is None:
        pytest.skip("the toolchain sophgo is not installed: make test-compilers installs it")
    write_wide(tmp_path / "wide.onnx")
    words = ("wide.onnx", "--target", "BM1684X")
    planned = command(tmp_path, "convert", *words, "--dry-run")
    (note,) = planned.target["plan"]["notes"]
    assert (note["level"], "--option simulate=no" in note["text"]) == ("warning", True)
    here = command(tmp_path, "convert", *words, "--option", "simulate=no")
    assert (here.code, here.target["validation"]["ran_on"]) == (0, "forecast"), here.document["error"]
    assert here.target["plan"]["notes"] == []
    ref = here.target["artifact"]["ref"]
    there = tmp_path / "there"
    there.mkdir()
    place = {"CONVERT_REGISTRY": str(tmp_path / "registry")}
    judged = command(there, "convert", "bench", ref, "--runs", "1", "--warmup", "0", **place)
    assert judged.code == 0, judged.document
    assert "simulator" in json.dumps(judged.document)
