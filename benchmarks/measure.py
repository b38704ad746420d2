"""Measuring whole processes: CPU seconds and peak memory, children included."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What one process and its children cost: CPU seconds, wall seconds, peak resident bytes of the largest."""

    cpu: float
    wall: float
    peak: int


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


def run(command: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None) -> Cost:
    """Run one command to its end and give its cost. Its output is shown only where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **(environment or {})}, stdout=output, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - begun
        if process.returncode:
            output.seek(0)
            sys.stderr.write(output.read().decode(errors="replace"))
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu=cpu, wall=wall, peak=usage.ru_maxrss * 1024)


def best(costs: Sequence[Cost]) -> float:
    """The least CPU seconds of several runs: what the work needs without the machine's other jobs."""
    return min(cost.cpu for cost in costs)


def table(title: str, rows: Sequence[Row]) -> str:
    """A Markdown table of rows."""
    lines = [f"### {title}", "", "| what | ours | base | unit | ratio | bound |", "|---|---|---|---|---|---|"]
    for row in rows:
        bound = f"≤ {row.bound:g} {'✓' if row.holds else '✗'}" if row.bound else "–"
        lines.append(f"| {row.what} | {row.ours:.3g} | {row.base:.3g} | {row.unit} | {row.ratio:.2f} | {bound} |")
    return "\n".join(lines) + "\n"
