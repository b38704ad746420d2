"""Puts a CANN of stand-ins into a folder: programs, version files, Python modules, set_env.sh."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

CODE = Path(__file__).resolve().parent


def script(path: Path, *words: str, **variables: str) -> None:
    """A program that runs ``words``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    path.write_text(f'#!/bin/sh\n{exports}exec {shlex.join(words)} "$@"\n')
    path.chmod(0o755)


def install_cann(
    folder: Path,
    version: str,
    *,
    soc: str = "",
    acl: bool = True,
    ais_bench: bool = False,
    amct: bool = False,
    atc: bool = True,
) -> dict[str, str]:
    """Install and give the environment that its set_env.sh would make. ``soc``: the machine's card; empty: none.

    ``atc`` false: only the runtime (CANN NNRT), as most machines that deploy have it.
    """
    home = folder / ("ascend-toolkit" if atc else "nnrt") / version
    told = {"ATC_DOUBLE_VERSION": version, "ATC_DOUBLE_CODE": str(CODE), "ACL_DOUBLE_SOC": soc}
    if atc:
        script(home / "bin" / "atc", sys.executable, str(CODE / "atc_tool.py"), **told)
    if amct:
        script(folder / "bin" / "amct_onnx", sys.executable, str(CODE / "amct_tool.py"), **told)
    script(folder / "bin" / "npu-smi", sys.executable, str(CODE / "npu_smi_tool.py"), **told)
    script(folder / "bin" / "python3", sys.executable, **told)
    modules = home / "python" / "site-packages"
    modules.mkdir(parents=True, exist_ok=True)
    if acl:
        (modules / "acl.py").write_bytes((CODE / "acl.py").read_bytes())
    if ais_bench:
        (modules / "ais_bench").mkdir()
        (modules / "ais_bench" / "__init__.py").write_text("")
        (modules / "ais_bench" / "__main__.py").write_bytes((CODE / "ais_bench_tool.py").read_bytes())
    part = home / ("compiler" if atc else "runtime")
    part.mkdir(exist_ok=True)
    (part / "version.info").write_text(f"Version=7.7.0.1.238\nversion_dir={version}\ntimestamp=1\n")
    (home / "opp").mkdir(exist_ok=True)
    (home / "set_env.sh").write_text(f"export ASCEND_TOOLKIT_HOME={home}\n")
    return {
        "ASCEND_HOME_PATH": str(home),
        "ASCEND_TOOLKIT_HOME": str(home),
        "ASCEND_OPP_PATH": str(home / "opp"),
        "PYTHONPATH": os.pathsep.join([str(modules), *filter(None, [os.environ.get("PYTHONPATH", "")])]),
        "PATH": os.pathsep.join([str(home / "bin"), str(folder / "bin"), os.environ["PATH"]]),
    }
