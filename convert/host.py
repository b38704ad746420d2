"""Worker processes for the stages: the parent's side.

A stage may crash the interpreter, hang, or eat the memory, and it imports what the command line must not. So stages
run in workers. A *stage host* imports the libraries that every stage needs once, and forks a worker from itself for
each use: a crash or a limit ends the worker alone, memory goes back with it, and nothing is imported twice.

The host and its workers form one process group of their own. The host ends with the connection to us, so nothing is
left when we are killed; a worker ends with the host.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from artifacts.errors import ModelConvertError, ResourceLimit
from artifacts.runner import start, wait_for_end
from artifacts.scratch import MACHINE_TMP, TemporaryFolder, machine_tmp
from convert.footprint import bytes_below, memory_of

T = TypeVar("T")
Progress = Callable[[str], None]
LIBRARIES = ("numpy", "onnx", "onnxruntime")
TUNABLES = "GLIBC_TUNABLES"
ROOT = Path(__file__).resolve().parent.parent
START = "import sys; sys.path.append(sys.argv.pop(1)); from convert.worker import main; main()"
"""How the host starts: never with the current folder first (``-P``), where a stranger's ``numpy.py`` may lie."""
ENDING = 8.0
"""Seconds that the host may take to end; guards of compilers have less."""
DISK_EVERY = 1.0
"""Seconds between two looks at what a worker wrote."""
HUGE_PAGES = "glibc.malloc.hugetlb=1"
"""Weights are copied many times, each time into fresh memory: in pages of 2 MiB instead of 4 KiB that costs a cold
conversion a fifth less CPU, at the same peak. Workers take it out of their environment: compilers don't inherit it."""
PRELOAD = (
    *LIBRARIES,
    "convert.stages.simplify",
    "convert.stages.check",
    "convert.stages.compile",
    "convert.backends.portable",
    "convert.stages.validate",
)
"""What the host imports before it forks: what most workers need. Never torch, which two of the stages alone need."""


class StageBug(Exception):
    """A stage raised something unexpected; the text is the worker's traceback."""


class WorkerDied(Exception):
    """A worker ended without an answer: a native fault, or a kill from outside."""

    def __init__(self, signal_number: int, log_tail: str) -> None:
        self.signal_number = signal_number
        self.log_tail = log_tail
        super().__init__(f"the worker process ended by {self.cause}")

    @property
    def cause(self) -> str:
        """``SIGSEGV``, ``exit code 3``, …"""
        if self.signal_number <= 0:
            return f"exit code {-self.signal_number}"
        with contextlib.suppress(ValueError):
            return signal.Signals(self.signal_number).name
        return f"signal {self.signal_number}"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a call gave back: its value as JSON, what it cost, and the user's source files that it imported."""

    value: msgspec.Raw
    seconds: float
    cpu_seconds: float
    peak_rss: int
    sources: tuple[str, ...] = ()


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one call, 0 for none.

    ``memory``: bytes that the worker and all that it starts may hold. ``disk``: bytes that may stand in ``folder``, and
    in the folder for temporary files; no single file may grow beyond it, wherever it lies.
    """

    seconds: float = 0.0
    memory: int = 0
    disk: int = 0
    folder: str = ""


class Worker:
    """One worker process. Calls run one after another in it and share what they imported."""

    def __init__(self, host: StageHost, connection: socket.socket, pid: int) -> None:
        self._host = host
        self._connection = connection
        self._pid = pid
        self._buffer = bytearray()

    def call(self, function: str, *args: Any, limits: Limits | None = None) -> Answer:
        """Call ``module:function`` with values (structs or JSON) in the worker.

        Raises what the function raised where that is an expected failure, :class:`StageBug` for anything else,
        :class:`WorkerDied` for a native fault, and :class:`ResourceLimit` at a limit (the worker is then gone).
        """
        limits = limits or Limits()
        order = {
            "call": function,
            "args": [json.loads(msgspec.json.encode(arg)) for arg in args],
            "memory": limits.memory,
            "disk": limits.disk,
        }
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.sendall(json.dumps(order).encode() + b"\n")
        return _decode(self._receive(limits, function))

    def _receive(self, limits: Limits, function: str) -> bytes:
        begun = looked = time.monotonic()
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._connection], [], [], 0.2)
            if ready:
                try:
                    data = self._connection.recv(1 << 20)
                except ConnectionResetError:
                    data = b""
                if not data:
                    raise WorkerDied(self._host.status_of(self._pid), self._host.log_tail())
                self._buffer += data
            elif limits.seconds and time.monotonic() - begun > limits.seconds:
                self.close()
                raise _out_of_time(function, limits.seconds)
            elif limits.memory and (used := memory_of(self._pid, limits.memory)) > limits.memory:
                self.close()
                raise _out_of_memory(function, used, limits.memory)
            elif limits.disk and time.monotonic() - looked > DISK_EVERY:
                if (used := self._disk(limits)) > limits.disk:
                    self.close()
                    raise _out_of_disk(function, used, limits.disk)
                looked = time.monotonic()
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        return line

    def _disk(self, limits: Limits) -> int:
        return self._host.temporary_bytes() + (bytes_below(Path(limits.folder)) if limits.folder else 0)

    def close(self) -> None:
        """End the worker now."""
        self._connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


def _decode(line: bytes) -> Answer:
    message = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    if "error" in message:
        told = msgspec.json.decode(message["error"], type=dict[str, Any])
        error = ModelConvertError(told["code"], told["message"], hint=told["hint"])
        error.exit_code = told["exit_code"]
        raise error
    if "bug" in message:
        raise StageBug(msgspec.json.decode(message["bug"], type=str))
    return msgspec.json.decode(line, type=Answer)


def _stage_name(function: str) -> str:
    return function.partition(":")[0].rpartition(".")[2]


def _out_of_time(function: str, seconds: float) -> ResourceLimit:
    return ResourceLimit(
        "CNV-1001",
        f"{_stage_name(function)} took longer than its limit of {seconds:g} s and was stopped",
        hint="raise --timeout; finished stages are kept, so the next run goes on from here",
    )


def _out_of_memory(function: str, used: int, limit: int) -> ResourceLimit:
    return ResourceLimit(
        "CNV-1002",
        f"{_stage_name(function)} used {used >> 20} MiB, more than its limit of {limit >> 20} MiB, and was stopped",
        hint="raise the setting `memory` (CONVERT_MEMORY), or use a machine with more memory",
    )


def _out_of_disk(function: str, used: int, limit: int) -> ResourceLimit:
    return ResourceLimit(
        "CNV-1201",
        f"{_stage_name(function)} wrote {used >> 20} MiB, more than its limit of {limit >> 20} MiB, and was stopped",
        hint="raise the setting `disk` (CONVERT_DISK), or put the cache on a larger disk (CONVERT_CACHE_DIR)",
    )


class StageHost:
    """The process that workers are forked from; started with the first worker, ended by :meth:`close`."""

    def __init__(self, log: Path, preload: Sequence[str] = PRELOAD) -> None:
        self._log = log
        self._temporary: TemporaryFolder | None = None
        """Where workers and what they start put temporary files; it does not outlive us, however they or we end."""
        self._preload = tuple(preload)
        self._control: socket.socket | None = None
        self._process: Any = None
        self._forked = False
        self._lock = threading.Lock()
        self._ended: dict[int, int] = {}
        self._unread = bytearray()

    @contextmanager
    def worker(self) -> Iterator[Worker]:
        """A fresh worker process, ended at the end of the block."""
        worker = self._fork()
        try:
            yield worker
        finally:
            worker.close()

    def begin(self) -> None:
        """Start the host if it isn't running yet, without waiting for its imports."""
        with self._lock:
            self._begin()

    def _begin(self) -> socket.socket:
        if self._control is None:
            ours, theirs = socket.socketpair()
            self._temporary = TemporaryFolder("w")
            places = {"TMPDIR": str(self._temporary.path), MACHINE_TMP: str(machine_tmp())}
            self._process = start(
                [sys.executable, "-P", "-c", START, str(ROOT), str(theirs.fileno()), *self._preload],
                log=self._log,
                environment={TUNABLES: HUGE_PAGES, **os.environ, **places},
                pass_fds=(theirs.fileno(),),
            )
            theirs.close()
            self._control = ours
        return self._control

    def _fork(self) -> Worker:
        with self._lock:
            control = self._begin()
            ours, theirs = socket.socketpair()
            try:
                socket.send_fds(control, [b"fork\n"], [theirs.fileno()])
                while (pid := self._next("pid")) is None:
                    pass
            except (BrokenPipeError, ConnectionResetError) as error:
                ours.close()
                raise WorkerDied(-1, self.log_tail()) from error
            except WorkerDied:
                ours.close()
                raise
            finally:
                theirs.close()
            self._forked = True
            return Worker(self, ours, pid)

    def _next(self, wanted: str) -> int | None:
        """Read one message of the host: a new worker's pid, or how one ended."""
        assert self._control is not None
        while b"\n" not in self._unread:
            data = self._control.recv(65536)
            if not data:
                raise WorkerDied(-1, self.log_tail())
            self._unread += data
        line, _, rest = bytes(self._unread).partition(b"\n")
        self._unread = bytearray(rest)
        message = json.loads(line)
        if "ended" in message:
            self._ended[message["ended"]] = message["status"]
        value = message.get(wanted)
        return int(value) if value is not None else None

    def status_of(self, pid: int) -> int:
        """The signal that ended a worker, or minus its exit code."""
        with self._lock:
            while pid not in self._ended:
                self._next("ended")
            return self._ended.pop(pid)

    def temporary_bytes(self) -> int:
        """Bytes that all workers have in temporary files."""
        return bytes_below(self._temporary.path) if self._temporary is not None else 0

    def log_tail(self, size: int = 2000) -> str:
        """The end of what the workers printed."""
        try:
            with self._log.open("rb") as stream:
                stream.seek(max(0, self._log.stat().st_size - size))
                return stream.read().decode(errors="replace")
        except OSError:
            return ""

    def close(self) -> None:
        """End the host, every worker, and all that they left."""
        if self._control is not None:
            self._control.close()
            self._control = None
            if self._forked:
                # It ends what its workers left; that takes no time where there is nothing.
                wait_for_end(self._process, ENDING)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._temporary is not None:
            self._temporary.remove()
            self._temporary = None

    def __enter__(self) -> StageHost:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
