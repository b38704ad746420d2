"""Publishing and pulling with the process killed, the disk full or the disk failing at each step."""

from __future__ import annotations

import errno

import pytest
from faults import KILLED, failing_from, run_killed_at, steps_of
from store_kit import make_request

from artifacts.errors import RegistryError, ResourceLimit
from artifacts.fsck import fsck
from artifacts.listing import list_models
from artifacts.publish import publish
from artifacts.pull import pull
from artifacts.registry import Registry
from artifacts.verify import verify_folder, verify_ref

WRITES = ("open", "write", "mkdir", "link", "rename")


def versions(root) -> list[str]:
    return [version.version for model in list_models(Registry(root)) for version in model.versions]


def test_killed_at_every_step_the_registry_is_whole_and_the_next_run_works(tmp_path):
    step, code, request = 0, KILLED, make_request(tmp_path / "a")
    while code == KILLED:
        step += 1
        root = tmp_path / f"reg{step}"
        code = run_killed_at(step, lambda root=root: publish(root, request))
        assert fsck(root).clean
        assert versions(root) in ([], ["1.0.0"])
        assert publish(root, request).version == "1.0.0"
        verify_ref(root, "net")
    assert code == 0
    assert step > 60


def test_killed_while_adding_a_version_the_old_one_stays(tmp_path):
    root = tmp_path / "reg"
    publish(root, make_request(tmp_path / "a"))
    step, code, request = 0, KILLED, make_request(tmp_path / "b", content=b"new")
    while code == KILLED:
        step += 1
        code = run_killed_at(step, lambda: publish(root, request))
        assert fsck(root).clean
        verify_ref(root, "net:1.0.0")
    assert versions(root) == ["1.0.1", "1.0.0"]


def test_killed_while_replacing_a_pulled_folder_it_holds_the_old_or_the_new_files(tmp_path):
    root, out = tmp_path / "reg", tmp_path / "out"
    publish(root, make_request(tmp_path / "a", version="1"))
    publish(root, make_request(tmp_path / "b", version="2", content=b"new"))
    pull(root, "net:1", out)
    step, code = 0, KILLED
    while code == KILLED:
        step += 1
        code = run_killed_at(step, lambda: pull(root, "net:2", out))
        verify_folder(out)
        assert (out / "net.om").read_bytes() in (b"weights", b"new")
    assert (out / "net.om").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, ResourceLimit),
        (errno.EDQUOT, ResourceLimit),
        (errno.EIO, RegistryError),
        (errno.EROFS, RegistryError),
    ],
)
def test_failing_from_any_step_on_nothing_is_lost_and_the_error_is_named(tmp_path, number, kind):
    root = tmp_path / "reg"
    publish(root, make_request(tmp_path / "a"))
    total = len(steps_of(lambda: publish(tmp_path / "other", make_request(tmp_path / "a"))))
    for step in range(1, total + 1, 2 if number == errno.ENOSPC else 4):
        new = make_request(tmp_path / "b", content=f"new {step}".encode())
        before = versions(root)
        try:
            with failing_from(step, number, WRITES):
                publish(root, new)
        except kind as error:
            assert error.exit_code == (10 if kind is ResourceLimit else 9)
            assert versions(root) == before
        assert fsck(root).clean
        publish(root, new)
    verify_ref(root, "net:1.0.0")


def test_a_failing_fsync_is_an_error_and_not_a_version(tmp_path):
    request = make_request(tmp_path / "a")
    fsyncs = [
        number
        for number, name in enumerate(steps_of(lambda: publish(tmp_path / "other", request)), 1)
        if name == "fsync"
    ]
    for step in fsyncs:
        root = tmp_path / f"reg{step}"
        with failing_from(step, errno.EIO, ("fsync",), once=True), pytest.raises(RegistryError) as refusal:
            publish(root, request)
        assert refusal.value.code == "CNV-9003"
        assert fsck(root).clean
        assert publish(root, request).version == "1.0.0"


def test_a_registry_that_can_only_be_read_is_exit_9_for_publishers_and_works_for_readers(tmp_path):
    root = tmp_path / "reg"
    publish(root, make_request(tmp_path / "a"))
    with failing_from(1, errno.EROFS, (*WRITES, "chmod", "utime", "unlink")):
        assert versions(root) == ["1.0.0"]
        verify_ref(root, "net")
        assert fsck(root).clean
        with pytest.raises(RegistryError) as refusal:
            publish(root, make_request(tmp_path / "a", content=b"new"))
    assert (refusal.value.code, refusal.value.exit_code) == ("CNV-9003", 9)


def test_a_full_disk_while_pulling_is_exit_10_and_leaves_no_half_folder(tmp_path):
    root, out = tmp_path / "reg", tmp_path / "out"
    publish(root, make_request(tmp_path / "a"))
    for step in range(1, 14):
        with failing_from(step, errno.ENOSPC, WRITES), pytest.raises(ResourceLimit) as refusal:
            pull(root, "net", out)
        assert refusal.value.code == "CNV-1003"
        assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []
    pull(root, "net", out)


@pytest.mark.long
def test_random_kills_leave_a_clean_registry(tmp_path):
    import os
    import random
    import signal
    import time

    root, chance = tmp_path / "reg", random.Random(7)
    for number in range(200):
        child = os.fork()
        if child == 0:
            publish(root, make_request(tmp_path / "a", content=b"x%d" % number))
            os._exit(0)
        time.sleep(chance.random() * 0.03)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert fsck(root).clean
