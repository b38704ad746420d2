"""Machines that have a vendor's toolkit and card: the environments of the stand-ins, one per vendor."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from pages import ROOT

DOUBLES = ROOT / "tests" / "doubles"
sys.path.insert(0, str(DOUBLES / "atc"))

from install import install_cann  # noqa: E402


def machine_of(vendor: str, folder: Path) -> dict[str, str]:
    """What a shell of such a machine has in its environment."""
    return {"ascend": _ascend, "cambricon": _cambricon, "hygon": _hygon, "metax": _metax}[vendor](folder)


def _ascend(folder: Path) -> dict[str, str]:
    return install_cann(folder, "8.5.0", soc="Ascend910B3")


def _cambricon(folder: Path) -> dict[str, str]:
    told = folder / "site" / "magicmind-1.7.0.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: magicmind\nVersion: 1.7.0\n")
    (folder / "site" / "magicmind").symlink_to(DOUBLES / "magicmind" / "magicmind")
    (folder / "version.txt").write_text("Neuware Version 3.7.2\n")
    _program(folder / "bin" / "python3", f"PYTHONPATH={shlex.quote(str(folder / 'site'))} exec", sys.executable)
    _program(folder / "bin" / "mm_run", "exec", sys.executable, str(DOUBLES / "magicmind" / "mm_run.py"))
    (folder / "bin" / "cnmon").symlink_to(DOUBLES / "cards" / "card_tool.py")
    return {
        **_path(folder / "bin"),
        "NEUWARE_HOME": str(folder),
        "MAGICMIND_DOUBLE_VERSION": "1.7.0",
        "MAGICMIND_DOUBLE_DEVICES": "1",
        "DOUBLE_CARDS": "mlu370",
    }


def _hygon(folder: Path) -> dict[str, str]:
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "migraphx.py").symlink_to(DOUBLES / "migraphx" / "module.py")
    for name, file in {"migraphx-driver": "driver.py", "rocminfo": "rocminfo.py", "hy-smi": "hy_smi.py"}.items():
        _program(folder / "bin" / name, "exec", sys.executable, str(DOUBLES / "migraphx" / file))
    _program(folder / "bin" / "python3", f"PYTHONPATH={shlex.quote(str(folder / 'lib'))} exec", sys.executable)
    return {**_path(folder / "bin"), "MIGRAPHX_DOUBLE_VERSION": "4.0.0", "MIGRAPHX_DOUBLE_ARCH": "gfx928"}


def _metax(folder: Path) -> dict[str, str]:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "mx-smi").symlink_to(DOUBLES / "cards" / "card_tool.py")
    return {**_path(folder / "bin"), "DOUBLE_CARDS": "c500"}


def _path(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def _program(path: Path, start: str, *words: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n{start} {shlex.join(words)} "$@"\n')
    path.chmod(0o755)
