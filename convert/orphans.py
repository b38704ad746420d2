"""Processes that outlive who started them: they come to the stage host, which ends them.

A stranger's code can leave its process group and its session; it can't leave the subreaper above it. A worker is one,
so that what it started is counted and found below it; when it is gone, what is left comes to the host.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
GUARD = b"guard.py"
GRACE = 5.0
"""Seconds for a guard (``artifacts.guard``) to end its program, which may have to tell a container or a machine."""

MOMENT = 0.3
"""Seconds for others: Python's resource tracker removes shared memory once who made it is gone, and ends by itself."""


def adopt_orphans() -> None:
    """From now on, what is left by processes below this one becomes its child."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Orphans:
    """The children of this process that are not its ``workers``; ``left`` where some were there at the last look."""

    def __init__(self) -> None:
        self.workers: set[int] = set()
        self.left = False
        self._deadlines: dict[int, float] = {}

    def sweep(self) -> None:
        """End what came to us; each gets its time to end by itself first."""
        now = time.monotonic()
        found = [pid for pid in _children() if pid not in self.workers]
        known = self._deadlines
        self._deadlines = {pid: known.get(pid) or now + (GRACE if _is_guard(pid) else MOMENT) for pid in found}
        for pid, deadline in self._deadlines.items():
            if now >= deadline:
                _kill(pid)
        self.left = bool(found)

    def end_all(self) -> None:
        """End the workers and all that they left, within the time that guards have and a little more."""
        for pid in self.workers:
            _kill(pid)
        self.workers = set()
        deadline = time.monotonic() + GRACE + 1
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            self.sweep()
            if not self.left:
                return
            time.sleep(0.01)


def _children() -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for task in Path("/proc/self/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _is_guard(pid: int) -> bool:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return any(word.endswith(GUARD) for word in words[:5])
    return False


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
