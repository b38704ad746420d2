"""Machines that deploy: the runtime without a compiler runs what was compiled elsewhere, and errors name only it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec
import numpy as np
import pytest
from atc_kit import dims_of, model_of, options_for
from install import install_cann

from artifacts.digest import file_entries
from convert.backends.atc import AtcBackend
from convert.backends.atc.find import find_cann, find_runtime
from convert.backends.base import CannotRun, Missing, Ran, RunRequest
from convert.stages.compile import prepare_folder, runner_for
from convert.values import CompiledArtifact, OnnxGraph
from op_registry.targets import find_target

SAMPLE = {"x": np.linspace(-2, 2, 12, dtype="f4").reshape(3, 4)}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Makes this process one on another machine: with the toolkit, or with the runtime alone."""

    def make(name: str, **more: object) -> Path:
        for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH", "PYTHONPATH"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        environment = install_cann(tmp_path / name, "8.1.RC1", soc="Ascend310P3", **more)
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        return Path(environment["ASCEND_HOME_PATH"])

    return make


def compiled(graph: OnnxGraph, folder: Path, **flags: str) -> CompiledArtifact:
    backend, target = AtcBackend(), find_target("Ascend310P3")
    found = backend.probe(target, os.environ)
    assert not isinstance(found, Missing), found
    plan = backend.plan(graph, target, options_for("Ascend310P3", options=flags), found)
    folder.mkdir()
    prepare_folder(graph, plan, folder)
    done = backend.compile(plan, graph, folder, runner_for(60.0, folder))
    return CompiledArtifact(
        parent=graph.digest,
        target="Ascend310P3",
        soc="Ascend310P3",
        backend="atc",
        precision="fp16",
        plan=plan,
        files=file_entries(folder / "out", list(done.files)),
        folder=str(folder / "out"),
    )


def run(graph: OnnxGraph, artifact: CompiledArtifact, folder: Path) -> Ran | CannotRun:
    folder.mkdir()
    request = RunRequest(artifact=artifact, graph=graph, folder=folder)
    return AtcBackend().run(request, [SAMPLE], runner_for(60.0, folder))


@pytest.mark.parametrize("more", [{}, {"acl": False, "ais_bench": True}], ids=["pyACL", "ais_bench"])
def test_the_runtime_alone_runs_an_artifact(machine, graph_of, tmp_path, more):
    machine("builds")
    graph = graph_of(model_of({"x": (3, 4)}), SAMPLE)
    artifact = compiled(graph, tmp_path / "work")
    machine("deploys", atc=False, **more)
    assert isinstance(AtcBackend().probe(find_target("Ascend310P3"), os.environ), Missing)
    answer = run(graph, artifact, tmp_path / "run")
    assert isinstance(answer, Ran), answer
    assert (answer.ran_on, answer.device) == ("device", "Ascend310P3")
    assert np.allclose(next(answer.outputs)[0], np.maximum(SAMPLE["x"], 0), atol=1e-2)


def test_an_artifact_that_is_bound_to_another_kind_of_host_is_not_run(machine, graph_of, tmp_path):
    machine("builds")
    graph = msgspec.structs.replace(graph_of(model_of({"x": ("N", 4)}), SAMPLE), dims=dims_of(N=range(1, 9)))
    other = {"x86_64": "aarch64"}.get(platform.machine(), "x86_64")
    artifact = compiled(graph, tmp_path / "work", host_env_os="linux", host_env_cpu=other)
    answer = run(graph, artifact, tmp_path / "run")
    assert isinstance(answer, CannotRun)
    assert answer.reason == f"the artifact holds code for {other} hosts, and this one is {platform.machine()}"


def test_without_a_runtime_only_what_running_needs_is_named(machine, graph_of, tmp_path):
    machine("builds")
    graph = graph_of(model_of({"x": (3, 4)}), SAMPLE)
    artifact = compiled(graph, tmp_path / "work")
    machine("deploys", atc=False, acl=False)
    answer = run(graph, artifact, tmp_path / "run")
    assert isinstance(answer, CannotRun)
    assert answer.reason == "python3 on PATH has neither pyACL (acl) nor ais_bench"
    assert "aclruntime" in answer.hint
    assert "atc" not in f"{answer.reason} {answer.hint}".replace("aclruntime", "").split()


def test_a_runtime_that_does_not_load_says_why(machine, graph_of, tmp_path):
    machine("builds")
    graph = graph_of(model_of({"x": (3, 4)}), SAMPLE)
    artifact = compiled(graph, tmp_path / "work")
    home = machine("deploys", atc=False)
    (home / "python/site-packages/acl.py").write_text("raise ImportError('libascendcl.so: cannot open')")
    answer = run(graph, artifact, tmp_path / "run")
    assert isinstance(answer, CannotRun)
    assert answer.reason == "pyACL is here and does not load: ImportError: libascendcl.so: cannot open"
    assert answer.hint.startswith(f"source {home}/set_env.sh: LD_LIBRARY_PATH must lead to libascendcl.so")


def test_a_runtime_is_found_at_its_usual_place_and_tells_its_version(tmp_path):
    home = tmp_path / "Ascend" / "nnrt" / "latest"
    for place in ("lib64", "x86_64-linux", "python/site-packages"):
        (home / place).mkdir(parents=True)
    (home / "lib64" / "libascendcl.so").touch()
    (home / "x86_64-linux" / "ascend_nnrt_install.info").write_text("package_name=Ascend-cann-nnrt\nversion=8.0.0\n")
    (home.parent / "set_env.sh").write_text("")
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin"}
    assert find_cann(environment) is None
    found = find_runtime(environment)
    assert found is not None
    assert (found.program, found.home, found.version) == ("", str(home), "8.0.0")
    assert found.set_env == str(home.parent / "set_env.sh")
