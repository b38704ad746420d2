"""What a worker and all that it starts may take, what is left of it, and who goes first when the machine runs out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from artifacts.errors import ModelConvertError, ResourceLimit
from artifacts.scratch import LOCK, TemporaryFolder, temporary_folder, temporary_root
from convert.footprint import bytes_below, family, memory_of
from convert.host import Limits, StageHost, WorkerDied
from convert.stage import died

HERE = Path(__file__).parent
MIB = 1 << 20


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StageHost]:
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parent.parent)]))
    with StageHost(tmp_path_factory.mktemp("host") / "log", preload=()) as running:
        yield running
    patch.undo()


@pytest.fixture
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of the machine that nothing else uses."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def code_of(host: StageHost, function: str, *args: object, **limits: object) -> str:
    with host.worker() as worker, pytest.raises(ModelConvertError) as raised:
        worker.call(f"stage_functions:{function}", *args, limits=Limits(**limits))  # type: ignore[arg-type]
    assert raised.value.exit_code == 10
    assert raised.value.hint
    return raised.value.code


def test_memory_of_what_a_worker_started_counts_as_its_own(host: StageHost) -> None:
    assert code_of(host, "eat_in_a_child", 300 * MIB, memory=200 * MIB) == "CNV-1002"


def test_memory_asked_for_at_once_far_beyond_the_limit_is_refused_by_the_kernel(host: StageHost) -> None:
    with host.worker() as worker, pytest.raises(ModelConvertError) as raised:
        worker.call("stage_functions:reserve", 6 << 30, limits=Limits(memory=100 * MIB))
    assert raised.value.code == "CNV-1002"


def test_files_that_fill_more_than_the_limit_end_the_call(host: StageHost, tmp_path: Path) -> None:
    assert code_of(host, "write", str(tmp_path), MIB, 30, disk=10 * MIB, folder=str(tmp_path)) == "CNV-1201"


def test_one_file_beyond_the_limit_is_refused_wherever_it_lies(host: StageHost, tmp_path: Path) -> None:
    assert code_of(host, "write", str(tmp_path), 200 * MIB, 1, disk=10 * MIB) == "CNV-1201"
    assert bytes_below(tmp_path) < 100 * MIB


def test_what_is_within_its_limits_is_left_alone(host: StageHost, tmp_path: Path) -> None:
    limits = Limits(seconds=60, memory=2000 * MIB, disk=10 * MIB, folder=str(tmp_path))
    with host.worker() as worker:
        assert msgspec.json.decode(worker.call("stage_functions:sleep", 1.5, limits=limits).value) == 1.5
        assert msgspec.json.decode(worker.call("stage_functions:reserve", 6 << 30).value) == 6 << 30


def test_native_code_that_finds_no_memory_is_a_resource_limit(host: StageHost) -> None:
    with host.worker() as worker, pytest.raises(WorkerDied) as death:
        worker.call("stage_functions:abort")
    error = died("compile", death.value)
    assert (type(error), error.code) == (ResourceLimit, "CNV-1002")


def test_a_worker_is_the_first_to_go_and_dumps_no_core(host: StageHost) -> None:
    with host.worker() as worker:
        told = msgspec.json.decode(worker.call("stage_functions:standing").value)
    assert (told["oom"], told["core"]) == (500, 0)
    assert told["own"] != told["shared"] == tempfile.gettempdir()


def test_modules_of_the_current_folder_are_not_taken_for_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who converts in a folder that a stranger packed runs nothing of it."""
    for name in ("numpy", "onnx", "convert", "json"):
        (tmp_path / f"{name}.py").write_text("import os; os._exit(7)")
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.chdir(tmp_path)
    with StageHost(tmp_path / "log", preload=("numpy", "onnx")) as host, host.worker() as worker:
        assert msgspec.json.decode(worker.call("stage_functions:double", 2, "/x").value)["number"] == 4


def test_temporary_files_go_with_the_host(own_tmp: Path) -> None:
    environment = pytest.MonkeyPatch()
    environment.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parent.parent)]))
    with StageHost(own_tmp / "log", preload=()) as host, host.worker() as worker:
        made = Path(msgspec.json.decode(worker.call("stage_functions:temporary", 0).value))
        assert made.is_relative_to(temporary_root())
        assert (made / "left").exists()
    environment.undo()
    assert [path.name for path in temporary_root().iterdir()] == [LOCK]


KILLED = """
import os, sys, time
from artifacts.scratch import TemporaryFolder
held = TemporaryFolder("job")
(held.path / "big").write_bytes(b"x")
print(held.path, flush=True)
time.sleep(60)
"""


def test_what_a_killed_process_left_is_swept_by_the_next_and_what_is_held_stays(own_tmp: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent.parent)}
    process = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    with temporary_folder("other") as other:
        assert other.is_dir()
        assert (left / "big").exists()
    assert not other.exists()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert left.exists()
    TemporaryFolder("next").remove()
    assert not left.exists()


def test_a_root_that_others_could_change_is_not_used(own_tmp: Path) -> None:
    (own_tmp / "elsewhere").mkdir()
    place = own_tmp / f"model-convert-{os.getuid()}"
    place.symlink_to(own_tmp / "elsewhere")
    assert temporary_root() != place
    place.unlink()
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    assert temporary_root() != place
    place.chmod(0o700)
    assert temporary_root() == place


def test_a_process_that_is_gone_takes_nothing() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert memory_of(ended.pid) == 0
    assert next(family(os.getpid())) == os.getpid()
    assert memory_of(os.getpid()) > MIB


def test_links_into_the_cache_take_no_disk(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "stage").mkdir()
    (tmp_path / "cache" / "weights").write_bytes(bytes(MIB))
    (tmp_path / "stage" / "weights").hardlink_to(tmp_path / "cache" / "weights")
    assert bytes_below(tmp_path / "stage") == 0
    assert bytes_below(tmp_path / "nowhere") == 0
