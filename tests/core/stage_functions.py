"""Functions that the tests call in worker processes."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from convert.errors import LoadError


def double(number: int, folder: Path) -> dict[str, object]:
    return {"number": number * 2, "folder": folder.name, "pid": os.getpid()}


def refuse() -> None:
    raise LoadError("CNV-3001", "no", hint="do that")


def fail_at(where: str) -> None:
    raise ValueError(where)


def crash() -> None:
    ctypes.string_at(0)


def end(code: int) -> None:
    os._exit(code)


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def eat(size: int) -> int:
    held = bytearray(size)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(30)
    return len(held)


def fill_disk() -> None:
    raise OSError(28, "No space left on device", "/somewhere/file")
