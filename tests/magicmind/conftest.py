"""A machine with the stand-ins for Cambricon's SDK on it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from magicmind_kit import BACKEND, DIGEST, DOUBLES, dense, dim_of, script

from artifacts.cli import run_boundary
from artifacts.digest import file_entries
from convert.__main__ import cli
from convert.arrays import save_npz
from convert.backends.base import CannotRun, RunRequest
from convert.graphs import facts
from convert.ort import run_samples
from convert.stages.compile import compile_graph, runner_for
from convert.values import CheckedGraph, CompileOptions, OnnxGraph, Support

Arrays = dict[str, np.ndarray]


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card_machine: Callable[..., None]) -> Callable[..., Path]:
    """Install the SDK's Python (with the package magicmind of a version), ``cnmon`` for ``card``, and ``mm_run``."""

    def install(version: str = "1.7.0", card: str = "mlu370", *, module: bool = True, fault: str = "") -> Path:
        home = tmp_path / "neuware"
        told = home / "site" / f"magicmind-{version}.dist-info"
        told.mkdir(parents=True, exist_ok=True)
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: magicmind\nVersion: {version}\n")
        if module and not (home / "site" / "magicmind").exists():
            (home / "site" / "magicmind").symlink_to(DOUBLES / "magicmind" / "magicmind")
        (home / "version.txt").write_text("Neuware Version 3.7.2\n")
        site = f"PYTHONPATH={shlex.quote(str(home / 'site'))} " if module else ""
        python = shlex.quote(sys.executable)
        script(home / "python" / "python3", f'{site}exec {python} "$@"')
        script(home / "bin" / "mm_run", f'exec {python} {shlex.quote(str(DOUBLES / "magicmind" / "mm_run.py"))} "$@"')
        card_machine(*([card] if card else ["none"]))
        monkeypatch.setenv("NEUWARE_HOME", str(home))
        monkeypatch.setenv("PATH", f"{home / 'python'}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("MAGICMIND_DOUBLE_VERSION", version)
        monkeypatch.setenv("MAGICMIND_DOUBLE_DEVICES", "1" if card else "0")
        monkeypatch.setenv("MAGICMIND_DOUBLE_FAULT", fault)
        for name in ("MLU_VISIBLE_DEVICES", "CONVERT_MAGICMIND_PYTHON"):
            monkeypatch.delenv(name, raising=False)
        return home

    return install


@pytest.fixture(scope="session")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds what comes before the compiler, for the dense graph."""
    folder = tmp_path_factory.mktemp("magicmind-begun")
    onnx.save(dense(), folder / "tiny.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONVERT_CACHE_DIR", str(folder / "cache"))
        argv = [str(folder / "tiny.onnx"), "--target", "MLU370-X4", "--dry-run", "--json"]
        assert run_boundary(cli, argv, prog="convert", usage_code="CNV-2000") == 0
    return folder / "cache"


@pytest.fixture
def convert(
    tmp_path: Path, begun: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, Any]]:
    """Convert the dense graph for MLU370-X4 through the command line, in this process."""
    shutil.copytree(begun, tmp_path / "cache", symlinks=True)
    monkeypatch.setenv("CONVERT_CACHE_DIR", str(tmp_path / "cache"))
    onnx.save(dense(), tmp_path / "tiny.onnx")
    capsys.readouterr()

    def run(*words: object) -> tuple[int, Any]:
        own = ("--json", "--out", tmp_path / "out", "--registry", tmp_path / "registry")
        argv = [tmp_path / "tiny.onnx", "--target", "MLU370-X4", *own, *words]
        code = run_boundary(cli, list(map(str, argv)), prog="convert", usage_code="CNV-2000")
        return code, json.loads(capsys.readouterr().out)

    return run


class Stage:
    """Compiling and running by the stages' own functions, without what comes before and after them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def graph(self, model: onnx.ModelProto, *samples: Arrays, calibration: tuple[Arrays, ...] = (), **dims: str) -> Any:
        """A graph with samples, their reference outputs, and inputs to calibrate with."""
        folder = self.folder / "graph"
        folder.mkdir()
        onnx.save(model, folder / "model.onnx")
        names = ["model.onnx"]
        for number, outputs in enumerate(run_samples(folder / "model.onnx", samples)):
            names += [f"samples/{number:03d}.npz", f"reference/{number:03d}.npz"]
            save_npz(folder / names[-2], samples[number])
            save_npz(folder / names[-1], {str(place): array for place, array in enumerate(outputs)})
        for number, arrays in enumerate(calibration):
            names.append(f"calibration/{number:03d}.npz")
            save_npz(folder / names[-1], arrays)
        return OnnxGraph(
            parent=DIGEST,
            stage="adapt",
            sample_count=len(samples),
            calibration_count=len(calibration),
            dims=tuple(dim_of(name, sizes) for name, sizes in dims.items()),
            files=file_entries(folder, names),
            folder=str(folder),
            **facts(model),
        )

    def compile(self, graph: OnnxGraph, precision: Any = "fp16", target: str = "MLU370-X4", **more: Any) -> Any:
        """The artifact; raises what the stage raises."""
        (self.folder / "compiled").mkdir(exist_ok=True)
        checked = CheckedGraph(
            parent=graph.digest, target=target, support=Support(supported=True, nodes=graph.nodes, opset=11)
        )
        options = CompileOptions(target=target, backend="magicmind", precision=precision, timeout=60, **more)
        return compile_graph(graph, checked, options, self.folder / "compiled")

    def run(self, graph: OnnxGraph, artifact: Any, *samples: Arrays) -> Any:
        """What the backend gives for samples, its outputs read."""
        folder = self.folder / "run"
        folder.mkdir(exist_ok=True)
        request = RunRequest(artifact=artifact, graph=graph, folder=folder)
        ran = BACKEND.run(request, iter(samples), runner_for(60, folder))
        return ran if isinstance(ran, CannotRun) else (ran, list(ran.outputs))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)
