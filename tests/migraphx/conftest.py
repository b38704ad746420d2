"""A machine with the stand-ins for MIGraphX on it, and graphs to compile there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from migraphx_requests import DOUBLES, tiny_model

PROGRAMS = {"migraphx-driver": "driver.py", "rocminfo": "rocminfo.py"}
HYGON = ("gfx926", "gfx928", "gfx936", "gfx938")


def script(path: Path, words: str) -> None:
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Install the stand-ins: ``version`` of MIGraphX, ``arch`` of the card (empty: none), ``fault``."""

    def install(version: str = "2.15.0", arch: str = "", fault: str = "", *, module: bool = True) -> Path:
        root = tmp_path / "opt"
        (root / "bin").mkdir(parents=True, exist_ok=True)
        (root / "lib").mkdir(exist_ok=True)
        for name, file in PROGRAMS.items():
            script(root / "bin" / name, f"{sys.executable} {DOUBLES / file}")
        if arch in HYGON:
            script(root / "bin" / "hy-smi", f"{sys.executable} {DOUBLES / 'hy_smi.py'}")
        script(root / "bin" / "python3", sys.executable)
        if module and not (root / "lib" / "migraphx.py").exists():
            (root / "lib" / "migraphx.py").symlink_to(DOUBLES / "module.py")
        monkeypatch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("MIGRAPHX_DOUBLE_VERSION", version)
        monkeypatch.setenv("MIGRAPHX_DOUBLE_ARCH", arch)
        monkeypatch.setenv("MIGRAPHX_DOUBLE_FAULT", fault)
        for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"):
            monkeypatch.delenv(name, raising=False)
        return root

    return install


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.onnx"
    onnx.save(tiny_model(), path)
    return path


@pytest.fixture
def tiny_open(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.onnx"
    onnx.save(tiny_model(batch="N"), path)
    return path
