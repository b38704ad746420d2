"""An interpreter of a given minor version, found by running candidates: a shim on PATH may be there and not work."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from artifacts.errors import ModelConvertError
from artifacts.runner import run_process
from convert.errors import ToolchainMissing

ASK = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"


def find_python(version: str, folder: Path, environment: Mapping[str, str] | None = None) -> Path:
    """An interpreter of that minor version (``3.10``; empty: this program's own) that can make environments.

    ``folder`` takes the logs of the trials. Raises :class:`ToolchainMissing` CNV-6051 where none works.
    """
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version in ("", own):
        return Path(sys.executable)
    tried: list[str] = []
    for candidate in _candidates(version, environment if environment is not None else os.environ):
        if (answer := _ask(candidate, folder)) == version:
            return candidate
        tried.append(f"{candidate} ({answer})")
    raise ToolchainMissing(
        "CNV-6051",
        f"no Python {version} that works was found" + (f"; tried {', '.join(tried)}" if tried else ""),
        hint=f"install Python {version} with its venv module, and name it with --python PATH",
    )


def check_python(path: Path, version: str, folder: Path) -> Path:
    """An interpreter that the user named. Raises :class:`ToolchainMissing` CNV-6051 where it isn't of that version."""
    answer = _ask(path, folder)
    if version and answer != version:
        raise ToolchainMissing(
            "CNV-6051",
            f"{path} is no Python {version}: it says {answer}",
            hint=f"name an interpreter of Python {version} that has the venv module",
        )
    return path


def _candidates(version: str, environment: Mapping[str, str]) -> Iterator[Path]:
    found = shutil.which(f"python{version}", path=environment.get("PATH"))
    if found:
        yield Path(found)
    homes = [environment.get("PYENV_ROOT", ""), str(Path(environment.get("HOME", "/nonexistent")) / ".pyenv")]
    for home in dict.fromkeys(filter(None, homes)):
        yield from sorted(Path(home).glob(f"versions/{version}*/bin/python"), reverse=True)


def _ask(python: Path, folder: Path) -> str:
    """What an interpreter says its version is, or why it says none."""
    log = folder / "python.log"
    log.unlink(missing_ok=True)
    try:
        ended = run_process([str(python), "-I", "-c", ASK], folder=folder, log=log, timeout=30)
    except ModelConvertError as error:
        return error.message
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if ended.returncode == 0:
        return lines[-1][:200] if lines else "nothing"
    # A shim that has no interpreter says so first, and then explains at length.
    return f"exit {ended.returncode}: {lines[0][:200] if lines else 'nothing'}"
