"""Functions that the tests call in worker processes."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from artifacts.scratch import machine_tmp
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


def eat_in_a_child(size: int) -> int:
    code = f"import time; held = bytearray({size}); held[::4096] = b'x' * len(held[::4096]); time.sleep(30)"
    return subprocess.run([sys.executable, "-c", code], check=False, start_new_session=True).returncode


def reserve(size: int) -> int:
    return len(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def write(folder: Path, size: int, files: int) -> None:
    for number in range(files):
        with (folder / str(number)).open("wb") as stream:
            for _ in range(0, size, 1 << 20):
                stream.write(bytes(1 << 20))
    time.sleep(30)


def temporary(seconds: float) -> str:
    path = Path(tempfile.mkdtemp())
    (path / "left").write_bytes(b"x")
    time.sleep(seconds)
    return str(path)


def standing() -> dict[str, object]:
    return {
        "oom": int(Path("/proc/self/oom_score_adj").read_text()),
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "shared": str(machine_tmp()),
        "own": tempfile.gettempdir(),
    }


def abort() -> None:
    os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'\n")
    os.abort()
