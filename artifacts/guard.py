"""The guard of one program: run as ``python -I -S guard.py LIFELINE RESULT ORDER``, standard library only.

It starts the program in a process group of its own, copies the first and the last of its output to the log, and kills
every descendant (it is their subreaper, so none can slip away) when the program ends, when the time is up, or when the
lifeline closes because whoever asked is gone. At the end it writes one JSON object to RESULT.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time

HEAD = 1 << 20
TAIL = 4 << 20
PIECE = 1 << 16
GRACE = 2.0
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class BoundedLog:
    """The first MiB and the last 4 MiB of a stream, however long it is."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self._tail: collections.deque[bytearray] = collections.deque()
        self._tail_bytes = 0
        self.total = 0

    def write(self, data: bytes) -> None:
        """Take some output."""
        room = max(0, HEAD - self.total)
        self.total += len(data)
        if room:
            self._file.write(data[:room])
        rest = data[room:]
        if rest:
            # Small pieces are put together: an object for each byte would take forty times the memory.
            if self._tail and len(self._tail[-1]) + len(rest) <= PIECE:
                self._tail[-1] += rest
            else:
                self._tail.append(bytearray(rest))
            self._tail_bytes += len(rest)
            while self._tail_bytes - len(self._tail[0]) >= TAIL:
                self._tail_bytes -= len(self._tail.popleft())

    def close(self) -> None:
        """Write what is kept of the end."""
        left_out = self.total - HEAD - self._tail_bytes
        if left_out > 0:
            self._file.write(b"\n[... %d bytes left out ...]\n" % left_out)
        for part in self._tail:
            self._file.write(part)
        self._file.close()


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _start(argv: list[str], output: int) -> tuple[int, str]:
    """Fork and exec ``argv``; gives its pid, and why it could not be started where it could not.

    The child dies with the guard; a failed exec comes back through a pipe that a good one closes.
    """
    guard = os.getpid()
    failed_read, failed_write = os.pipe()
    child = os.fork()
    if child:
        os.close(failed_write)
        with os.fdopen(failed_read, "rb") as stream:
            return child, stream.read().decode()
    try:
        os.setpgid(0, 0)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(127)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # Compilers map far more than they touch: what they hold is measured, what they map is their own affair.
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(failed_write, str(error.strerror).encode())
    os._exit(127)


def _children() -> list[int]:
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children") as stream:
            return [int(word) for word in stream.read().split()]
    except OSError:
        return []


def _kill_all(child: int, first: signal.Signals) -> None:
    """End the program's group and every orphan that came to us; ``first`` is tried for the grace time."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, first)
    deadline = time.monotonic() + (GRACE if first != signal.SIGKILL else 0.0)
    while _reap_any() and time.monotonic() < deadline:
        time.sleep(0.02)
    while True:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        for orphan in _children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(orphan, signal.SIGKILL)
        if not _reap_any():
            return
        time.sleep(0.02)


STATUS: dict[int, int] = {}


def _reap_any() -> bool:
    """Collect what has ended; false when no child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        STATUS[pid] = os.waitstatus_to_exitcode(status)


def _watch(child: int, output: int, lifeline: int, log: BoundedLog, timeout: float) -> bool:
    """Copy output until the program ends; true when the time was up."""
    deadline = time.monotonic() + timeout if timeout else None
    open_output = True
    while True:
        wanted = [lifeline, output] if open_output else [lifeline]
        ready, _, _ = select.select(wanted, [], [], 0.05)
        if output in ready:
            data = os.read(output, PIECE)
            open_output = bool(data)
            log.write(data)
            if data:
                ready = [r for r in ready if r != output]
                if deadline and time.monotonic() > deadline:
                    return True
                if lifeline not in ready:
                    continue
        if lifeline in ready:
            return False
        if deadline and time.monotonic() > deadline:
            return True
        _reap_any()
        if child in STATUS:
            return False


def main() -> None:
    """Run the order given on the command line."""
    lifeline, result = int(sys.argv[1]), int(sys.argv[2])
    order = json.loads(sys.argv[3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    for descriptor in (lifeline, result):
        os.set_inheritable(descriptor, False)
    read_end, write_end = os.pipe()
    log = BoundedLog(order["log"])
    child, not_started = _start(order["argv"], write_end)
    os.close(write_end)
    timed_out = _watch(child, read_end, lifeline, log, order["timeout"])
    gone = child in STATUS
    _kill_all(child, signal.SIGKILL if gone else signal.SIGTERM)
    _drain(read_end, log)
    log.close()
    returncode = STATUS.get(child, -signal.SIGKILL)
    answer = {
        "returncode": returncode,
        "timed_out": timed_out,
        "log_bytes": log.total,
        "not_started": not_started,
    }
    with contextlib.suppress(BrokenPipeError):
        os.write(result, json.dumps(answer).encode())


def _drain(output: int, log: BoundedLog) -> None:
    """What was still in the pipe; nobody is left to write more."""
    os.set_blocking(output, False)
    with contextlib.suppress(BlockingIOError):
        while data := os.read(output, 1 << 16):
            log.write(data)


if __name__ == "__main__":
    main()
