"""The command line as a user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)


class Cli:
    """The commands, run as processes with cache, registry and output folder below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "CONVERT_CACHE_DIR": str(folder / "cache"),
            "CONVERT_REGISTRY": str(folder / "registry"),
            "CONVERT_OUT": str(folder / "out"),
        }

    def start(self, module: str, *args: object, **more: str) -> subprocess.Popen[str]:
        """Start ``python -m module args``."""
        return subprocess.Popen(
            [sys.executable, "-m", module, *map(str, args)],
            cwd=self.folder,
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, module: str, *args: object, **more: str) -> Ended:
        process = self.start(module, *args, **more)
        out, err = process.communicate(timeout=240)
        return Ended(process.returncode, out, err)

    def convert(self, *args: object, **more: str) -> Ended:
        """``convert args``."""
        return self("convert", *args, **more)

    def artifacts(self, *args: object) -> Ended:
        """``artifacts args``."""
        return self("artifacts", *args)
