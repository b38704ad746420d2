"""Doing harm to a run, in the worker that runs it and nowhere else: the other side of ``faults.py``."""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.cards import LIMITED_BY
from artifacts.runner import Finished
from convert.acceptance.opening import ONNXRUNTIME
from convert.acceptance.values import Fault
from convert.backends.base import LOG, Runner
from convert.values import CompiledArtifact
from op_registry.targets import find_target

if TYPE_CHECKING:
    from convert.arrays import Array

KILLED_AFTER = 0.05
"""Seconds that a program has before its worker is killed: enough to be started, too few for any to end."""
CHILD_KIB = 96 << 10
"""Address space of a program that runs out of memory: an interpreter starts in it, no runtime loads a model."""
EATEN = (1 << 20, 1 << 16)
"""Sizes of the pieces that a worker's own memory is used up in; what is left is enough to say so, and no more."""


def hiding_variables(target: str) -> tuple[str, ...]:
    """The variables that hide a target's cards from programs; none where there is no card, or none are known."""
    return LIMITED_BY.get(find_target(target).vendor, ())


def prepare_harm(fault: Fault, artifact: CompiledArtifact) -> list[bytearray]:
    """Harm that is done to the worker before anything runs in it; what it gives must be held as long as it lasts."""
    if fault == "device-lost":
        for name in hiding_variables(artifact.target):
            os.environ[name] = "-1"
    return _eaten() if fault == "memory" and artifact.backend == ONNXRUNTIME else []


def _eaten() -> list[bytearray]:
    """All memory that this process may still take, where the runtime is in it."""
    # What is to fail is the artifact's run, not an import on the way to it.
    importlib.import_module("convert.ort")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used, most))
    held: list[bytearray] = []
    for size in EATEN:
        with contextlib.suppress(MemoryError):
            while True:
                held.append(bytearray(size))
    return held


def harmed_runner(runner: Runner, fault: Fault) -> Runner:
    """The process runner with harm done to what it starts."""
    if fault == "killed":
        return _killed(runner)
    if fault == "memory":
        return _starved(runner)
    return runner


def _killed(runner: Runner) -> Runner:
    """Kills this worker while its program runs; the program's guard then has to end it."""

    def run(argv: Sequence[str], *, environment: Mapping[str, str] | None = None, log: str = LOG) -> Finished:
        threading.Timer(KILLED_AFTER, die).start()
        runner(argv, environment=environment, log=log)
        die()
        raise AssertionError("a killed process does not go on")

    return run


def die() -> None:
    """Kill this worker, as the system does where memory runs out, or an operator by mistake."""
    os.kill(os.getpid(), signal.SIGKILL)


def _starved(runner: Runner) -> Runner:
    """A program that runs the artifact gets too little memory; the guard that starts it gets enough."""
    command = f'ulimit -v {CHILD_KIB}; exec "$@"'

    def run(argv: Sequence[str], *, environment: Mapping[str, str] | None = None, log: str = LOG) -> Finished:
        return runner(("sh", "-c", command, "sh", *argv), environment=environment, log=log)

    return run


def harmed_feeds(feeds: Iterable[Mapping[str, Array]], fault: Fault) -> Iterator[Mapping[str, Array]]:
    """The inputs, wrong where that is the fault."""
    for feed in feeds:
        yield {name: _wrong(array) for name, array in feed.items()} if fault == "wrong-input" else feed


def _wrong(array: Array) -> Array:
    """Another rank, another number of elements and another type: no runtime can take it for what it is not."""
    import numpy as np

    return np.zeros((*array.shape, 2), dtype="int64" if array.dtype.kind in "fV" else "float64")
