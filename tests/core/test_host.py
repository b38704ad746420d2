"""Worker processes: values travel, and every way to end is told apart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from stage_functions import alive

from artifacts.errors import ModelConvertError, ResourceLimit
from convert.host import Limits, StageBug, StageHost, WorkerDied

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StageHost]:
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parent.parent)]))
    with StageHost(tmp_path_factory.mktemp("host") / "log", preload=()) as running:
        yield running
    patch.undo()


def test_a_value_comes_back_and_paths_arrive_as_paths(host: StageHost) -> None:
    with host.worker() as worker:
        answer = worker.call("stage_functions:double", 21, "/somewhere/else")
    value = msgspec.json.decode(answer.value)
    assert value["number"] == 42
    assert value["folder"] == "else"
    assert answer.peak_rss > 1 << 20


def test_calls_of_one_worker_share_a_process_and_other_workers_have_their_own(host: StageHost) -> None:
    with host.worker() as one, host.worker() as other:
        pids = [
            msgspec.json.decode(worker.call("stage_functions:double", 1, "/x").value)["pid"]
            for worker in (one, one, other)
        ]
    assert pids[0] == pids[1] != pids[2]


def test_an_expected_failure_keeps_code_hint_and_exit_code(host: StageHost) -> None:
    with host.worker() as worker, pytest.raises(ModelConvertError) as raised:
        worker.call("stage_functions:refuse")
    assert raised.value.as_json() == {"code": "CNV-3001", "message": "no", "hint": "do that", "exit_code": 3}


def test_a_bug_keeps_its_traceback_and_the_worker_lives_on(host: StageHost) -> None:
    with host.worker() as worker:
        with pytest.raises(StageBug, match=r"fail_at(?s:.)*raise ValueError"):
            worker.call("stage_functions:fail_at", "here")
        assert worker.call("stage_functions:sleep", 0).seconds < 1


@pytest.mark.parametrize(("call", "cause"), [(("crash",), "SIGSEGV"), (("end", 3), "exit code 3")])
def test_a_worker_that_dies_says_how(host: StageHost, call: tuple[object, ...], cause: str) -> None:
    name, *args = call
    with host.worker() as worker, pytest.raises(WorkerDied) as raised:
        worker.call(f"stage_functions:{name}", *args)
    assert raised.value.cause == cause


def test_a_call_over_its_time_limit_is_ended(host: StageHost) -> None:
    begun = time.monotonic()
    with host.worker() as worker, pytest.raises(ResourceLimit) as raised:
        worker.call("stage_functions:sleep", 60, limits=Limits(seconds=0.5))
    assert raised.value.code == "CNV-1001"
    assert time.monotonic() - begun < 10


def test_a_call_over_its_memory_limit_is_ended(host: StageHost) -> None:
    with host.worker() as worker, pytest.raises(ResourceLimit) as raised:
        worker.call("stage_functions:eat", 300 << 20, limits=Limits(memory=200 << 20))
    assert raised.value.code == "CNV-1002"


def test_a_full_disk_in_a_stage_is_a_resource_limit(host: StageHost) -> None:
    with host.worker() as worker, pytest.raises(ModelConvertError) as raised:
        worker.call("stage_functions:fill_disk")
    assert (raised.value.code, raised.value.exit_code) == ("CNV-1003", 10)


def test_the_users_source_files_are_told(host: StageHost) -> None:
    with host.worker() as worker:
        answer = worker.call("stage_functions:sleep", 0)
    assert answer.sources == (str(HERE / "stage_functions.py"),)


def test_nothing_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from convert.host import StageHost\n"
        "host = StageHost(Path(sys.argv[1]), preload=())\n"
        "with host.worker() as worker:\n"
        "    print(host._process.pid, worker._pid, flush=True); worker.call('stage_functions:sleep', 300)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent.parent)])}
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 5
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(pids) == 2
    assert not [pid for pid in pids if alive(pid)]
