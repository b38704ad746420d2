"""A machine with the stand-ins for Cambricon's SDK on it."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from magicmind_kit import DOUBLES, dense

from artifacts.cli import run_boundary
from convert.__main__ import cli


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


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
def kept_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all: what comes before the compiler is done once."""
    return tmp_path_factory.mktemp("magicmind-cache")


@pytest.fixture
def convert(
    tmp_path: Path, kept_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, Any]]:
    """Convert a tiny graph (or what is named) for MLU370-X4 through the command line, in this process."""
    monkeypatch.setenv("CONVERT_CACHE_DIR", str(kept_cache))

    def run(*words: object, model: Path | None = None) -> tuple[int, Any]:
        if model is None:
            model = tmp_path / "tiny.onnx"
            onnx.save(dense(), model)
        target = () if "--target" in words else ("--target", "MLU370-X4")
        argv = [model, *target, "--json", "--out", tmp_path / "out", "--registry", tmp_path / "registry", *words]
        code = run_boundary(cli, list(map(str, argv)), prog="convert", usage_code="CNV-2000")
        return code, json.loads(capsys.readouterr().out)

    return run
