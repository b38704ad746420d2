"""Worker processes for the stages: the child's side. ``python -m convert.worker SOCKET MODULE…``

The host imports the modules, then forks a worker for each connection that it is handed. A worker answers calls, one
JSON line each: ``{"call": "module:function", "args": […]}``; arguments are decoded by the function's annotations.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import importlib
import inspect
import json
import logging
import os
import resource
import select
import signal
import socket
import sys
import sysconfig
import time
import traceback
import typing
from pathlib import Path
from typing import Any

import msgspec

from artifacts.errors import disk_full, path_unusable
from convert.host import HUGE_PAGES, TUNABLES
from convert.orphans import Orphans, adopt_orphans

PR_SET_PDEATHSIG = 1
DATA_SLACK = 4 << 30
"""Memory that is asked for and not touched (stacks of threads, arenas) counts for the kernel, and not for us."""
FILE_SLACK = 64 << 20
ORPHANS_EVERY = 0.1
GC_AFTER = 50_000
"""New objects before garbage is looked for; Python's own 700 suits programs that make less at once."""


def main() -> None:
    """Serve until the connection closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    # Idle threads of OpenMP sleep instead of spinning: stages share the machine with each other.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if os.environ.get(TUNABLES) == HUGE_PAGES:
        del os.environ[TUNABLES]
    # Importing torch makes a million objects that all stay: looking for garbage among them takes a tenth of it.
    gc.set_threshold(GC_AFTER)
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()
    _be_the_first_to_go()
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    orphans = Orphans()
    try:
        _serve(control, wake_read, orphans)
    finally:
        orphans.end_all()
        os.killpg(0, signal.SIGKILL)


def _be_the_first_to_go() -> None:
    """Where the machine's memory runs out, the kernel ends a worker and not who waits for it. No core is dumped."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as stream:
        stream.write("500")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _serve(control: socket.socket, wake: int, orphans: Orphans) -> None:
    while True:
        wanted: list[Any] = [control, wake]
        ready, _, _ = select.select(wanted, [], [], ORPHANS_EVERY if orphans.left else None)
        if wake in ready:
            os.read(wake, 4096)
            _report_ended(control, orphans)
        if control in ready:
            data, descriptors, _, _ = socket.recv_fds(control, 16, 4)
            if not data:
                return
            for descriptor in descriptors:
                _fork_worker(control, descriptor, orphans)
        orphans.sweep()


def _report_ended(control: socket.socket, orphans: Orphans) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in orphans.workers:
            orphans.workers.discard(pid)
            _send(control, {"ended": pid, "status": -os.waitstatus_to_exitcode(status)})


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def _fork_worker(control: socket.socket, descriptor: int, orphans: Orphans) -> None:
    host = os.getpid()
    pid = os.fork()
    if pid:
        os.close(descriptor)
        orphans.workers.add(pid)
        _send(control, {"pid": pid})
        return
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != host:
        os._exit(1)
    # What the worker starts and loses stays below it, where its memory is counted.
    adopt_orphans()
    control.close()
    logging.basicConfig(level=logging.WARNING)
    _answer_calls(socket.socket(fileno=descriptor))
    os._exit(0)


def _answer_calls(connection: socket.socket) -> None:
    with connection.makefile("rb") as stream:
        for line in stream:
            order = json.loads(line)
            _limit(resource.RLIMIT_DATA, order["memory"], DATA_SLACK)
            _limit(resource.RLIMIT_FSIZE, order["disk"], FILE_SLACK)
            answer = _answer(order["call"], order["args"])
            sys.stdout.flush()
            sys.stderr.flush()
            try:
                connection.sendall(answer + b"\n")
            except (BrokenPipeError, ConnectionResetError):
                return


def _limit(kind: int, most: int, slack: int) -> None:
    """Let the kernel refuse what goes far beyond a limit between two looks of the parent; 0 for no limit."""
    _, hard = resource.getrlimit(kind)
    soft = most + slack if most else resource.RLIM_INFINITY
    resource.setrlimit(kind, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _answer(call: str, args: list[Any]) -> bytes:
    """Run one call; every way to end becomes one JSON object."""
    begun, cpu = time.monotonic(), time.process_time()
    try:
        value = _run(call, args)
    except Exception as error:  # noqa: BLE001  the boundary of the worker: everything travels to the parent
        return _failure(error)
    return msgspec.json.encode(
        {
            "value": value,
            "seconds": time.monotonic() - begun,
            "cpu_seconds": time.process_time() - cpu,
            "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "sources": user_sources(),
        }
    )


def _run(call: str, args: list[Any]) -> Any:
    module_name, _, function_name = call.partition(":")
    function = getattr(importlib.import_module(module_name), function_name)
    types = typing.get_type_hints(function)
    names = list(inspect.signature(function).parameters)
    values = [msgspec.convert(arg, types[name], dec_hook=_decode_path) for name, arg in zip(names, args, strict=False)]
    return function(*values)


def _decode_path(wanted: type, value: Any) -> Any:
    return wanted(value) if wanted is Path else value


def _failure(error: Exception) -> bytes:
    as_json = getattr(error, "as_json", None)
    if isinstance(error, OSError) and (known := disk_full(error, "a stage was writing") or path_unusable(error)):
        as_json = known.as_json
    if as_json is not None:
        return msgspec.json.encode({"error": as_json()})
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        told = {
            "code": "CNV-1002",
            "message": "a stage ran out of memory",
            "hint": "close other programs, or use a machine with more memory",
            "exit_code": 10,
        }
        return msgspec.json.encode({"error": told})
    return msgspec.json.encode({"bug": "".join(traceback.format_exception(error))})


def user_sources() -> list[str]:
    """Source files that were imported from outside the installed packages: the user's own code."""
    installed = {
        str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    home = Path(__file__).resolve().parent.parent
    installed |= {str(home / package) for package in ("convert", "artifacts", "op_registry", "flows")}
    origins = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    # Some modules only pretend to have a file: torch makes such ones for its operators.
    paths = {Path(origin) for origin in origins if origin and origin.endswith(".py")}
    found = {str(path.resolve()) for path in paths if path.is_absolute() and path.is_file()}
    return sorted(path for path in found if not any(path.startswith(root + os.sep) for root in installed))


if __name__ == "__main__":
    main()
