"""Measuring whole processes, children included: CPU seconds, and the peak of the memory that all hold at once."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

PR_SET_CHILD_SUBREAPER = 36
EVERY = 0.05
"""Seconds between two looks at the memory of a process tree."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What one command cost: CPU seconds, wall seconds, peak bytes of memory of all its processes together.

    ``peak`` is the largest sum of their proportional set sizes that was seen, and at least the kernel's own record of
    the largest one (which misses no spike).
    """

    cpu: float
    wall: float
    peak: int
    code: int = 0
    output: str = ""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table: ``ours`` against ``base``, and the bound that the project sets itself (0: none)."""

    what: str
    ours: float
    base: float
    unit: str = "CPU s"
    bound: float = 0.0

    @property
    def ratio(self) -> float:
        """Ours over the base."""
        return self.ours / self.base if self.base else float("inf")

    @property
    def holds(self) -> bool:
        """Whether the ratio is within its bound."""
        return not self.bound or self.ratio <= self.bound


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A table of free cells: things that are measured side by side."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    bars: tuple[Bars, ...] = ()


class Bars(msgspec.Struct, frozen=True, kw_only=True):
    """A picture: one bar for each label; ``ours`` are the labels that are drawn in the project's colour."""

    title: str
    unit: str
    values: dict[str, float]
    ours: tuple[str, ...] = ()


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one part of the bench found. ``failed``: why it could not be measured whole."""

    rows: tuple[Row, ...] = ()
    grids: tuple[Grid, ...] = ()
    notes: tuple[str, ...] = ()
    failed: str = ""
    seconds: float = 0.0
    """How long it took, on the clock."""

    @property
    def holds(self) -> bool:
        """Whether all that was wanted was measured and is within its bounds."""
        return not self.failed and all(row.holds for row in self.rows)


class CommandFailed(Exception):
    """A command that should have worked ended with another exit code than 0."""


def run(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None, check: bool = True
) -> Cost:
    """Run one command to its end and give its cost and what it printed.

    Raises :class:`CommandFailed` for an exit code other than 0, unless ``check`` is False.
    """
    # Orphans come to us, so that their CPU time is counted too.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **(environment or {})}, stdout=output, stderr=subprocess.STDOUT
        )
        with _Watch(process.pid) as watch:
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - begun
        _reap_orphans()
        output.seek(0)
        text = output.read().decode(errors="replace")
    if process.returncode and check:
        sys.stderr.write(text)
        raise CommandFailed(f"{' '.join(command)} ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # A child begins as a copy of us: what the kernel remembers as its largest is its own only beyond our size.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = max(usage.ru_maxrss * 1024 if usage.ru_maxrss > own else 0, watch.peak)
    return Cost(cpu=cpu, wall=wall, peak=peak, code=process.returncode, output=text)


def _reap_orphans() -> None:
    """Take the exit codes of what the command left; nothing should be running any more."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            time.sleep(0.02)


class _Watch:
    """Looks at the memory of a process and its descendants again and again, in a thread."""

    def __init__(self, pid: int) -> None:
        self.peak = 0
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(EVERY):
            self.peak = max(self.peak, sum(proportional(pid) for pid in descendants(self._pid)))


def descendants(pid: int) -> list[int]:
    """A process and all that come from it, as far as they live."""
    found = [pid]
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [child for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return found
    for child in children:
        found += descendants(int(child))
    return found


def proportional(pid: int) -> int:
    """The proportional set size of a process in bytes: pages that n processes share count 1/n each."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def best(costs: Sequence[Cost]) -> float:
    """The least CPU seconds of several runs: what the work needs without the machine's other jobs."""
    return min(cost.cpu for cost in costs)


def together(costs: Sequence[Cost]) -> Cost:
    """Several commands as one: CPU and wall seconds added, the largest peak."""
    return Cost(
        cpu=sum(cost.cpu for cost in costs),
        wall=sum(cost.wall for cost in costs),
        peak=max(cost.peak for cost in costs),
        code=next((cost.code for cost in costs if cost.code), 0),
    )


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The growth of a cost from the smallest size to the largest: 1 is linear, 2 is quadratic."""
    import math

    return math.log(costs[-1] / costs[0]) / math.log(sizes[-1] / sizes[0])
