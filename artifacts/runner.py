"""The one place that starts a process.

Every process gets a session of its own, an empty standard input and a log file; nothing inherits a pipe of ours. A
compiler is owned by a guard (``artifacts.guard``): a small process that kills everything the compiler started on a
timeout, on Ctrl-C here, or when we die ourselves, however that happens.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from artifacts.errors import ResourceLimit, UsageError
from artifacts.scratch import MACHINE_TMP

GUARD = Path(__file__).with_name("guard.py")


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended. ``returncode`` is negative for a signal; ``log_bytes`` is what it wrote in all."""

    argv: tuple[str, ...]
    returncode: int
    timed_out: bool
    seconds: float
    log: str
    log_bytes: int


def start(
    argv: Sequence[str],
    *,
    log: Path,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own; output goes to the end of ``log``.

    Raises :class:`UsageError` (CNV-2001) where the program doesn't exist.
    """
    with log.open("ab") as stream:
        try:
            return subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                cwd=folder,
                env=dict(environment) if environment is not None else None,
                pass_fds=tuple(pass_fds),
                start_new_session=True,
            )
        except (FileNotFoundError, PermissionError) as error:
            raise UsageError(
                "CNV-2001",
                f"{argv[0]} can't be started: {error.strerror}",
                hint="check that the program is installed, on PATH and executable",
            ) from error


def wait_for_end(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Give a process so much time to end by itself; whether it did."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def run_process(
    argv: Sequence[str],
    *,
    folder: Path,
    log: Path,
    timeout: float = 0.0,
    environment: Mapping[str, str] | None = None,
    launcher: Sequence[str] = (),
    hold: Sequence[int] = (),
) -> Finished:
    """Run a program under a guard and wait for its end.

    ``timeout`` is in seconds, 0 for none. ``environment`` is added to ours. ``launcher`` is put before ``argv`` (a
    container, ssh, srun). ``hold`` names file descriptors (locks) that the guard keeps open as long as the program
    lives. Of the output, the first MiB and the last 4 MiB reach ``log``. A ``rerun.sh`` is written beside the log.

    Raises :class:`UsageError` (CNV-2001) where the program can't be started.
    """
    command = [*launcher, *argv]
    write_rerun(log.with_name("rerun.sh"), command, folder, environment or {})
    result_read, result_write = os.pipe()
    lifeline_read, lifeline_write = os.pipe()
    order = json.dumps({"argv": command, "log": str(log), "timeout": timeout})
    guard_log = log.with_suffix(".guard.log")
    begun = time.monotonic()
    guard = None
    try:
        guard = start(
            [sys.executable, "-I", "-S", str(GUARD), str(lifeline_read), str(result_write), order],
            log=guard_log,
            folder=folder,
            environment={**_inherited(launcher), **(environment or {})},
            pass_fds=(lifeline_read, result_write, *hold),
        )
        os.close(lifeline_read)
        os.close(result_write)
        lifeline_read = result_write = -1
        answer = _read_all(result_read)
    finally:
        # Closing the lifeline is what makes the guard kill the program: on Ctrl-C this runs before anything else.
        for descriptor in (lifeline_read, lifeline_write, result_read, result_write):
            if descriptor >= 0:
                os.close(descriptor)
        if guard is not None:
            guard.wait()
    return _finished(command, answer, log, time.monotonic() - begun, guard_log)


def _inherited(launcher: Sequence[str]) -> dict[str, str]:
    """Our environment. What a launcher starts may be on another machine, where a worker's own TMPDIR is not."""
    shared = os.environ.get(MACHINE_TMP, "")
    return {**os.environ, **({"TMPDIR": shared} if launcher and shared else {})}


def ask_program(argv: Sequence[str], question: bytes, *, timeout: float, limit: int = 1 << 16) -> tuple[int, bytes]:
    """Give a small program a question on standard input; returns its exit code and what it answered.

    For answers that may be secret: neither question nor answer touches a disk. The program and what it started are
    killed after ``timeout`` seconds (exit code -9). Of the answer ``limit`` bytes are taken.

    Raises :class:`UsageError` (CNV-2001) where the program can't be started.
    """
    asked, answered = os.memfd_create("question"), os.memfd_create("answer")
    try:
        os.write(asked, question)
        os.lseek(asked, 0, os.SEEK_SET)
        try:
            process = subprocess.Popen(
                list(argv), stdin=asked, stdout=answered, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            raise UsageError(
                "CNV-2001",
                f"{argv[0]} can't be started: {error.strerror}",
                hint="check that the program is installed, on PATH and executable",
            ) from error
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return code, os.pread(answered, limit, 0)
    finally:
        os.close(asked)
        os.close(answered)


def _finished(command: Sequence[str], answer: bytes, log: Path, seconds: float, guard_log: Path) -> Finished:
    if not answer:
        told = guard_log.read_text(errors="replace")[-400:] if guard_log.exists() else ""
        raise ResourceLimit(
            "CNV-1004",
            f"the guard of {command[0]} was killed: {told.strip() or 'no message'}",
            hint="something on this machine kills processes (out of memory?); run again with more memory",
        )
    guard_log.unlink(missing_ok=True)
    end = json.loads(answer)
    if end.get("not_started"):
        raise UsageError(
            "CNV-2001",
            f"{command[0]} can't be started: {end['not_started']}",
            hint="check that the program is installed, on PATH and executable",
        )
    return Finished(
        argv=tuple(command),
        returncode=end["returncode"],
        timed_out=end["timed_out"],
        seconds=seconds,
        log=str(log),
        log_bytes=end["log_bytes"],
    )


def _read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 65536):
        parts.append(part)
    return b"".join(parts)


def write_rerun(path: Path, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    """Write a script that runs the same command again in the same folder."""
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(environment.items()))
    text = f"#!/bin/sh\nset -e\ncd {shlex.quote(str(folder))}\n{exports}exec {shlex.join(command)}\n"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


@contextmanager
def one_of(slots: int, folder: Path, *, wait: float = 3600.0) -> Iterator[int]:
    """Hold one of ``slots`` places of this machine; gives a descriptor to pass on as ``hold``.

    A place is a lock on a file, so the kernel frees it however its holder dies. Raises :class:`ResourceLimit`
    (CNV-1005) after ``wait`` seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait
    while True:
        for number in range(slots):
            descriptor = os.open(folder / f"slot-{number}.lock", os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            try:
                yield descriptor
            finally:
                os.close(descriptor)
            return
        if time.monotonic() > deadline:
            raise ResourceLimit(
                "CNV-1005",
                f"no free place among {slots} compilers of this machine after {wait:.0f} s",
                hint="wait for the other conversions, or raise the setting `compilers`",
            )
        select.select([], [], [], 0.05)


def scratch_folder(parent: Path, prefix: str) -> Path:
    """A new empty folder inside ``parent``, which is made where it doesn't exist."""
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
