"""What a process with all that it started, and a folder, take: read from the kernel, as often as a watcher likes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
GONE = (OSError, ValueError, IndexError)
"""What asking about a process may raise: it can end at any moment."""


def memory_of(pid: int, enough: int = 0) -> int:
    """Bytes of memory of a process and its descendants; 0 where it is gone.

    Resident pages are counted first, which is cheap and counts what processes share several times. Where that comes to
    more than ``enough``, each page is counted once.
    """
    pids = list(family(pid))
    resident = sum(_resident(one) for one in pids)
    if resident <= enough or len(pids) < 2:
        return resident
    shares = [_proportional(one) for one in pids]
    return min(resident, sum(shares)) if all(shares) else resident


def family(pid: int) -> Iterator[int]:
    """A process and its descendants, whatever group or session they are in."""
    pending = [pid]
    while pending:
        current = pending.pop()
        yield current
        with contextlib.suppress(*GONE):
            for task in Path(f"/proc/{current}/task").iterdir():
                pending += map(int, (task / "children").read_text().split())


def _resident(pid: int) -> int:
    with contextlib.suppress(*GONE):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return 0


def _proportional(pid: int) -> int:
    """Proportional set size: a page shared by N processes counts 1/N for each. 0 where it is not told."""
    with contextlib.suppress(*GONE):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def bytes_below(folder: Path) -> int:
    """Bytes on disk below a folder; files that have other names elsewhere (links into the cache) count nothing."""
    total = 0
    pending = [str(folder)]
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                    continue
                with contextlib.suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    total += info.st_blocks * 512 if info.st_nlink == 1 else 0
    return total
