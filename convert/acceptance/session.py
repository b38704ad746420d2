"""Running an artifact from outside: workers, their limits, what their end means. The parent's side of ``work.py``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from convert.acceptance.opening import ONNXRUNTIME
from convert.acceptance.values import Accuracy, Fault, Job, Opened, Pass, Prepared, SampleOptions, Speed, StoredArtifact
from convert.errors import GateFailed
from convert.host import LIBRARIES, Answer, Limits, StageHost, Worker, WorkerDied

T = TypeVar("T")
PRELOAD = "convert.acceptance.work"
SLACK = 30.0
"""Seconds beyond the time limit of the programs in it, after which a worker itself is stopped."""


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass may take (``memory`` and ``disk`` in bytes; 0: no limit), and what programs are put behind."""

    seconds: float = 0.0
    memory: int = 0
    disk: int = 0
    launcher: tuple[str, ...] = ()


class Workshop:
    """Workers that read artifacts and run them, each call in a folder of its own below ``work``."""

    def __init__(self, work: Path, limits: RunLimits, *, backend: str = "") -> None:
        libraries = LIBRARIES if backend in ("", ONNXRUNTIME) else ("numpy",)
        self.work = work
        self.limits = limits
        self._host = StageHost(work / "workers.log", preload=(*libraries, PRELOAD))
        self._numbers = itertools.count()

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End every worker, and what it started."""
        self._host.close()

    @contextmanager
    def worker(self) -> Iterator[Worker]:
        """A fresh worker. Raises :class:`GateFailed` CNV-8122 where it ends by itself."""
        try:
            with self._host.worker() as worker:
                yield worker
        except WorkerDied as death:
            raise died(death) from death

    def folder(self) -> Path:
        """A new empty folder."""
        folder = self.work / f"{next(self._numbers):05d}"
        folder.mkdir(parents=True)
        return folder

    def call(self, worker: Worker, function: str, *args: Any) -> Answer:
        """Call a function of a module below ``convert.acceptance`` in a worker, within the limits."""
        seconds = self.limits.seconds + SLACK if self.limits.seconds else 0.0
        limits = Limits(seconds=seconds, memory=self.limits.memory, disk=self.limits.disk, folder=str(self.work))
        return worker.call(f"convert.acceptance.{function}", *args, limits=limits)

    def outline(self, path: Path) -> StoredArtifact:
        """What an ``.onnx`` says of itself. Raises :class:`LoadError`."""
        with self.worker() as worker:
            return _value(self.call(worker, "samples:outline_file", str(path)), StoredArtifact)

    def prepare(self, opened: Opened, options: SampleOptions) -> Prepared:
        """Write the inputs to run with."""
        folder = self.folder()
        with self.worker() as worker:
            return _value(self.call(worker, "samples:prepare_samples", opened.graph, options, str(folder)), Prepared)


class Session:
    """One artifact with its inputs, and passes of it."""

    def __init__(self, shop: Workshop, opened: Opened, prepared: Prepared, gate: dict[str, float]) -> None:
        self.shop = shop
        self.opened = opened
        self.prepared = prepared
        self.thresholds = {**opened.thresholds, **gate}
        self.first = ""

    @property
    def samples(self) -> int:
        """How many inputs there are."""
        return self.prepared.graph.sample_count

    def job(self, *, runs: int, warmup: int = 0, fault: Fault = "") -> Job:
        """A pass of ``runs`` inferences, compared with the first one's outputs once there are such."""
        return Job(
            artifact=self.opened.artifact,
            graph=self.prepared.graph,
            runs=runs,
            warmup=warmup,
            first=self.first,
            judged_as=self.opened.judged_as,
            thresholds=self.thresholds,
            timeout=self.shop.limits.seconds,
            launcher=self.shop.limits.launcher,
            fault=fault,
        )

    def accuracy(self) -> Accuracy:
        """Run every input once, keep the outputs as those of the first run, and judge them."""
        keep = self.shop.folder()
        job = msgspec.structs.replace(self.job(runs=self.samples), keep_to=str(keep))
        with self.shop.worker() as worker:
            answer = self.shop.call(worker, "work:measure_accuracy", job, self.prepared, str(self.shop.folder()))
        self.first = str(keep)
        return _value(answer, Accuracy)

    def ask_vendor(self, *, runs: int, warmup: int) -> Speed | None:
        """The times that the vendor's own tool tells; None where there is none here."""
        with self.shop.worker() as worker:
            answer = self.shop.call(
                worker, "work:ask_vendor", self.job(runs=runs, warmup=warmup), str(self.shop.folder())
            )
        return msgspec.json.decode(answer.value, type=Speed | None)

    def run(self, job: Job, worker: Worker | None = None) -> Pass:
        """One pass; in a worker of its own, unless one is given."""
        return self.run_measured(job, worker)[0]

    def run_measured(self, job: Job, worker: Worker | None = None) -> tuple[Pass, int]:
        """One pass, and the peak memory of the process that it ran in, in bytes."""
        if worker is None:
            with self.shop.worker() as own:
                return self.run_measured(job, own)
        folder = self.shop.folder()
        answer = self.shop.call(worker, "work:run_pass", job, str(folder))
        _drop(folder)
        return _value(answer, Pass), answer.peak_rss


def _drop(folder: Path) -> None:
    """A pass leaves inputs and outputs of every run: hours of them would fill the disk."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _value(answer: Answer, kind: type[T]) -> T:
    return msgspec.json.decode(answer.value, type=kind)


def died(death: WorkerDied) -> GateFailed:
    """The error for a worker that ended without an answer."""
    lines = [line for line in death.log_tail.strip().splitlines() if line.strip()]
    said = f"; the last that it said: {lines[-1][:300]}" if lines else ""
    return GateFailed(
        "CNV-8122",
        f"the process that ran the artifact ended by {death.cause}{said}",
        hint="a crash of the vendor's runtime, or the system ended it for want of memory: look at the kernel's log"
        " (dmesg), then run it again",
    )
