"""What a worker's code started and let go of: it counts as the worker's, and ends with it, however that comes."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from stage_functions import alive

from artifacts.errors import ResourceLimit
from convert.host import Limits, StageHost, WorkerDied
from convert.worker import DATA_SLACK

HERE = Path(__file__).parent
MIB = 1 << 20


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StageHost]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parent.parent)]))
    with StageHost(tmp_path / "host.log", preload=()) as running:
        yield running


def ends(pid: int) -> bool:
    """Whether a process is gone, or goes within some seconds."""
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def test_memory_of_what_left_its_group_and_session_counts(host: StageHost) -> None:
    with host.worker() as worker, pytest.raises(ResourceLimit) as raised:
        worker.call("stage_functions:eat_in_one_that_left", 300 * MIB, limits=Limits(memory=200 * MIB))
    assert raised.value.code == "CNV-1002"


def test_what_left_its_group_and_session_ends_with_its_worker_alone(host: StageHost) -> None:
    with host.worker() as other:
        with host.worker() as worker:
            left = int(msgspec.json.decode(worker.call("stage_functions:leave").value))
            assert alive(left)
        assert ends(left)
        assert alive(other._pid)


def test_what_a_stopped_worker_left_ends_with_the_host(host: StageHost) -> None:
    with host.worker() as worker:
        left = int(msgspec.json.decode(worker.call("stage_functions:leave").value))
        os.kill(worker._pid, signal.SIGSTOP)
        host.close()
        assert not alive(left)
        assert not alive(worker._pid)


def test_what_was_left_by_one_that_crashed_ends(host: StageHost, tmp_path: Path) -> None:
    with host.worker() as worker:
        left = int(msgspec.json.decode(worker.call("stage_functions:leave").value))
        with pytest.raises(WorkerDied, match="exit code 0"):
            worker.call("stage_functions:end", 0)
        assert ends(left)


def test_a_limit_of_memory_does_not_bound_what_a_program_may_map(host: StageHost, tmp_path: Path) -> None:
    with host.worker() as worker:
        answer = worker.call("stage_functions:limits_of_a_program", str(tmp_path), limits=Limits(memory=100 * MIB))
    told = msgspec.json.decode(answer.value)
    assert told == {"own": 100 * MIB + DATA_SLACK, "program": resource.getrlimit(resource.RLIMIT_DATA)[1]}
