"""The process runner: exit codes, bounded logs, and nothing left alive in any ending."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from test_host import alive

from artifacts.errors import ResourceLimit, UsageError
from artifacts.guard import HEAD, BoundedLog
from artifacts.runner import Finished, one_of, run_process


def run(folder: Path, *argv: str, timeout: float = 0.0) -> Finished:
    return run_process(argv, folder=folder, log=folder / "compile.log", timeout=timeout)


def test_exit_code_and_output_are_kept(tmp_path: Path) -> None:
    finished = run(tmp_path, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (finished.returncode, finished.timed_out) == (3, False)
    assert (tmp_path / "compile.log").read_text() == "out\nerr\n"


def test_a_signal_is_a_negative_exit_code(tmp_path: Path) -> None:
    assert run(tmp_path, "sh", "-c", "kill -SEGV $$").returncode == -signal.SIGSEGV


def test_a_missing_program_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no-such-compiler can't be started: No such file"):
        run(tmp_path, "no-such-compiler")


def test_the_program_reads_nothing_and_inherits_no_ignored_signal(tmp_path: Path) -> None:
    run(tmp_path, "sh", "-c", "cat; grep SigIgn /proc/self/status")
    ignored = int((tmp_path / "compile.log").read_text().split()[1], 16)
    assert not ignored & (1 << (signal.SIGINT - 1) | 1 << (signal.SIGTERM - 1))


def test_a_flood_of_output_is_kept_as_head_and_tail(tmp_path: Path) -> None:
    script = "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last"
    finished = run(tmp_path, "sh", "-c", script)
    log = (tmp_path / "compile.log").read_bytes()
    assert finished.log_bytes > 50_000_000
    assert len(log) < 6 << 20
    assert log.startswith(b"first\n")
    assert log.endswith(b"\nlast\n")
    assert b"bytes left out" in log


MEASURED = """
import json, resource, sys
from pathlib import Path
from artifacts.runner import run_process
folder = Path(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ended = run_process(["sh", "-c", sys.argv[2]], folder=folder, log=folder / "compile.log")
ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps([ended.log_bytes, ours, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))
"""
LINES = r"yes compiling | head -c {}; echo; echo last"


@pytest.mark.parametrize(
    "size", [100_000_000, pytest.param(1_000_000_000, marks=pytest.mark.long)], ids=["100MB", "1GB"]
)
def test_output_costs_no_memory_however_much_it_is(tmp_path: Path, size: int) -> None:
    told = measured(tmp_path, LINES.format(size))
    assert told[0] > size
    assert told[1] < 4 << 10, f"this process grew by {told[1]} KiB"
    assert told[2] < 40 << 10, f"the guard took {told[2]} KiB"
    log = (tmp_path / "compile.log").read_bytes()
    assert len(log) < 6 << 20 and log.rstrip().endswith(b"last") and b"bytes left out" in log


def test_output_in_tiny_pieces_is_put_together(tmp_path: Path) -> None:
    log = BoundedLog(str(tmp_path / "log"))
    log.write(b"h" * HEAD)
    tracemalloc.start()
    for number in range(200_000):
        log.write(b"%d" % (number % 10))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    log.close()
    assert peak < 1 << 20
    assert (tmp_path / "log").read_bytes() == b"h" * HEAD + b"0123456789" * 20_000


def measured(folder: Path, script: str) -> list[int]:
    """Bytes of output, and in KiB what running it added to this process and the greatest of its children."""
    words = [sys.executable, "-c", MEASURED, str(folder), script]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    ended = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    return list(json.loads(ended.stdout))


def test_a_timeout_ends_the_program_and_what_slipped_into_other_sessions(tmp_path: Path) -> None:
    script = f"setsid sh -c 'echo $$ > {tmp_path}/escaped; exec sleep 300' & sleep 300"
    begun = time.monotonic()
    finished = run(tmp_path, "sh", "-c", script, timeout=1)
    assert finished.timed_out
    assert time.monotonic() - begun < 6
    assert not alive(int((tmp_path / "escaped").read_text()))


def test_children_that_outlive_the_program_are_ended(tmp_path: Path) -> None:
    run(tmp_path, "sh", "-c", f"sleep 300 & echo $! > {tmp_path}/child; exit 0")
    assert not alive(int((tmp_path / "child").read_text()))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_program_dies_with_us(tmp_path: Path, how: signal.Signals) -> None:
    code = (
        "import sys; from pathlib import Path; from artifacts.runner import run_process\n"
        "folder = Path(sys.argv[1])\n"
        "run_process(['sh', '-c', f'echo $$ > {folder}/pid; sleep 300'], folder=folder, log=folder / 'log')\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.DEVNULL)
    pid = wait_for_number(tmp_path / "pid")
    parent.send_signal(how)
    parent.wait()
    deadline = time.monotonic() + 5
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(pid)


def wait_for_number(path: Path) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().strip():
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError(f"{path} did not appear")


def test_rerun_runs_the_same_command_again(tmp_path: Path) -> None:
    run_process(["sh", "-c", 'echo "$WORD: a b"'], folder=tmp_path, log=tmp_path / "log", environment={"WORD": "it's"})
    again = subprocess.run([tmp_path / "rerun.sh"], capture_output=True, text=True, check=True)
    assert again.stdout == (tmp_path / "log").read_text() == "it's: a b\n"


def test_a_launcher_comes_before_the_program(tmp_path: Path) -> None:
    run_process(["echo", "hi"], folder=tmp_path, log=tmp_path / "log", launcher=["env", "-i"])
    assert (tmp_path / "log").read_text() == "hi\n"


def test_places_are_limited_and_freed_when_their_holder_dies(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from artifacts.runner import one_of\n"
        "with one_of(1, Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(300)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(ResourceLimit, match="no free place"), one_of(1, tmp_path, wait=0.2):
        pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with one_of(1, tmp_path, wait=5) as descriptor:
        assert os.fstat(descriptor).st_size == 0
