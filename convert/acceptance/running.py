"""An artifact on samples, through its backend: counted runs, or runs until a time has passed. Runs in the worker.

A backend that computes in this process gives an output when it is asked for, so endless samples are no matter. One that
starts a program takes a fixed number of samples each time; going on means starting it again.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from convert.acceptance.values import Subject
from convert.arrays import Array, load_npz
from convert.backends import load_backend
from convert.backends.base import CannotRun, Ran, RunRequest
from convert.errors import ToolchainMissing, UsageError
from convert.stages.compile import runner_for

EACH = 50
"""Runs of one start of a program, while time is left."""
ENDLESS = ("onnxruntime",)
"""Backends that compute in this process (``Ran.in_process``)."""


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how to run: a scratch folder, and limits of programs."""

    subject: Subject
    folder: Path
    timeout: float = 0.0
    launcher: tuple[str, ...] = ()


def start(runs: Runs, count: int) -> Ran:
    """Begin ``count`` runs over the samples, again and again (0: endless, for a backend in this process).

    Raises :class:`ToolchainMissing` CNV-6002 where nothing here runs the artifact, and what the backend raises.
    """
    subject = runs.subject
    if not subject.graph.sample_count:
        raise UsageError(
            "CNV-2282",
            f"{subject.name} comes without samples to run it on",
            hint="convert it again with --samples, or measure the folder that `convert` wrote",
        )
    shutil.rmtree(runs.folder, ignore_errors=True)
    runs.folder.mkdir(parents=True)
    request = RunRequest(artifact=subject.artifact, graph=subject.graph, folder=runs.folder)
    ran = load_backend(subject.artifact.backend).run(
        request, _feeds(subject, count), runner_for(runs.timeout, runs.folder, runs.launcher)
    )
    if isinstance(ran, CannotRun):
        raise ToolchainMissing(
            "CNV-6002",
            f"nothing on this machine can run the artifact for {subject.artifact.target}: {ran.reason}",
            hint=ran.hint or "measure on a machine that has the card",
        )
    return ran


def _feeds(subject: Subject, count: int) -> Iterator[dict[str, Array]]:
    """The samples in turn; few are held, so that reading them is not what is measured."""
    held = [load_npz(subject.graph.path(f"samples/{number:03d}.npz")) for number in range(subject.graph.sample_count)]
    numbers = range(count) if count else itertools.count()
    for number in numbers:
        yield held[number % len(held)]


def timed(runs: Runs, count: int) -> tuple[Ran, list[float], float]:
    """``count`` runs; gives what ran, seconds of each where they are known, and seconds of all together."""
    begun = time.perf_counter()
    ran = start(runs, count)
    seconds: list[float] = []
    last = time.perf_counter()
    for _ in ran.outputs:
        now = time.perf_counter()
        seconds.append(now - last)
        last = now
    whole = time.perf_counter() - begun
    if ran.seconds:
        return ran, list(ran.seconds), whole
    return ran, seconds if ran.in_process else [], whole


def until(runs: Runs, seconds: float, most: int) -> Iterator[tuple[Ran, int, list[Array]]]:
    """Runs until a time has passed, or ``most`` of them (0: no end): what ran, the sample's number, its outputs."""
    deadline = time.monotonic() + seconds
    samples, done = runs.subject.graph.sample_count, 0
    while True:
        ran = start(runs, 0 if runs.subject.artifact.backend in ENDLESS else EACH)
        place = 0
        for outputs in ran.outputs:
            done += 1
            yield ran, place % samples, outputs
            place += 1
            if time.monotonic() > deadline or (most and done >= most):
                return


def machine() -> dict[str, str]:
    """What is known of this machine."""
    system = os.uname()
    return {"system": f"{system.sysname} {system.release}", "processor": system.machine, "host": system.nodename}
