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

from artifacts.runner import run_process
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


def leave() -> int:
    """Start a process that leaves its parent, its group and its session; gives its pid."""
    told, tell = os.pipe()
    if not (child := os.fork()):
        os.setsid()
        if not os.fork():
            os.write(tell, str(os.getpid()).encode())
            time.sleep(300)
        os._exit(0)
    os.waitpid(child, 0)
    return int(os.read(told, 32))


def eat_in_one_that_left(size: int) -> None:
    if not (child := os.fork()):
        os.setsid()
        if not os.fork():
            eat(size)
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(30)


def limits_of_a_program(folder: Path) -> dict[str, int]:
    """What this worker may map, and what a program that it starts may."""
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[0])"
    log = folder / "log"
    run_process([sys.executable, "-c", code], folder=folder, log=log)
    return {"own": resource.getrlimit(resource.RLIMIT_DATA)[0], "program": int(log.read_text())}


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


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
