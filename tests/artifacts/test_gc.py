"""Collecting garbage: what is referred to stays, what is young stays, the rest goes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from faults import KILLED, run_killed_at
from store_kit import make_release, make_request

from artifacts.__main__ import cli
from artifacts.channels import Move, promote
from artifacts.cli import run_boundary
from artifacts.errors import RegistryError
from artifacts.fsck import fsck
from artifacts.gc import collect
from artifacts.keys import generate_key, load_private_key
from artifacts.layout import Layout
from artifacts.publish import PublishRequest, publish
from artifacts.signing import sign_ref
from artifacts.verify import verify_ref


@pytest.fixture
def root(tmp_path) -> Path:
    publish(tmp_path / "reg", make_request(tmp_path / "a"))
    return tmp_path / "reg"


def age(root: Path, hours: float = 48) -> None:
    """Make every file of a registry older."""
    past = time.time() - hours * 3600
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (past, past))


def dead_blob(root: Path) -> Path:
    layout = Layout(root / "net")
    return layout.blob_path(layout.put_bytes(b"nobody refers to this"))


def test_without_apply_nothing_is_removed(root):
    dead = dead_blob(root)
    (Layout(root / "net").temporary / "blob-1-abc").write_bytes(b"half")
    age(root)
    report = collect(root)
    assert sorted((item.kind, item.bytes) for item in report.models[0].swept) == [("blob", 21), ("temporary", 4)]
    assert dead.exists()


def test_with_apply_garbage_goes_and_all_that_is_referred_to_stays(root, tmp_path):
    generate_key(tmp_path / "k")
    sign_ref(root, "net", load_private_key(tmp_path / "k.key"))
    promote(root, "net", Move(channel="prod", actor="wei"))
    dead = dead_blob(root)
    age(root)
    assert collect(root, apply=True).models[0].bytes == 21
    assert not dead.exists()
    assert fsck(root).clean
    assert fsck(root).models[0].leavings == ()
    verify_ref(root, "net:prod")


def test_young_files_are_spared(root):
    dead = dead_blob(root)
    report = collect(root, apply=True)
    assert (report.models[0].swept, report.models[0].young) == ((), 1)
    assert dead.exists()


def test_a_file_with_a_time_in_the_future_is_spared(root):
    dead = dead_blob(root)
    os.utime(dead, (time.time() + 9999, time.time() + 9999))
    collect(root, apply=True)
    assert dead.exists()


def test_an_old_blob_that_a_publisher_reuses_is_young_again(root, tmp_path):
    release = make_release(tmp_path / "b", content=b"other")
    layout = Layout(root / "net")
    layout.put_file(tmp_path / "b/net.om", release.manifest.files[0])
    age(root)
    layout.put_file(tmp_path / "b/net.om", release.manifest.files[0])
    collect(root, apply=True)
    assert layout.has(release.manifest.files[0].sha256, 5)


def test_a_blob_that_is_swept_while_a_publisher_works_is_stored_again(root, tmp_path, monkeypatch):
    from artifacts import publish as module

    real = module.store_target
    calls = []

    def store_and_lose(registry, layout, name, release):
        prepared = real(registry, layout, name, release)
        if not calls:
            layout.blob_path(release.manifest.files[0].sha256).unlink()
        calls.append(name)
        return prepared

    monkeypatch.setattr(module, "store_target", store_and_lose)
    publish(root, make_request(tmp_path / "b", content=b"other"))
    assert len(calls) == 2
    verify_ref(root, "net:1.0.1")


def test_attachments_go_with_their_subject(root, tmp_path):
    publish(root, make_request(tmp_path / "b", content=b"other"))
    layout = Layout(root / "net")
    with layout.edit() as edit:
        for tag in ("1.0.0", "1.0.0-ascend910b3"):
            edit.drop(tag)
    age(root)
    swept = collect(root, apply=True).models[0].swept
    assert [item.kind for item in swept].count("attachment") == 1
    assert [ref.tag for ref in layout.refs() if ".run-" in ref.tag] == [
        f"{layout.find('1.0.1-ascend910b3').digest.replace(':', '-')}.run-1"
    ]
    assert (fsck(root).clean, fsck(root).models[0].leavings) == (True, ())


def test_a_version_that_a_channel_had_is_kept_for_rollback(root, tmp_path):
    promote(root, "net", Move(channel="prod", actor="wei"))
    layout = Layout(root / "net")
    index = layout.find("1.0.0")
    with layout.edit() as edit:
        for tag in ("1.0.0", "1.0.0-ascend910b3", "prod", "prod-ascend910b3"):
            edit.drop(tag)
    age(root)
    collect(root, apply=True)
    assert layout.has(index.digest, index.size)
    assert fsck(root).clean


def test_a_model_that_can_not_be_read_whole_is_never_swept(root):
    layout = Layout(root / "net")
    path = layout.blob_path(layout.find("1.0.0").digest)
    path.unlink()
    dead = dead_blob(root)
    age(root)
    with pytest.raises(RegistryError) as refusal:
        collect(root, apply=True)
    assert refusal.value.code == "CNV-9006"
    assert dead.exists()


def test_killed_at_every_step_of_a_collection_the_registry_is_whole(root):
    step, code = 0, KILLED
    while code == KILLED:
        step += 1
        dead_blob(root)
        age(root)
        code = run_killed_at(step, lambda: collect(root, apply=True))
        assert fsck(root).clean
    verify_ref(root, "net")


def test_files_that_are_no_blobs_are_left_alone(root):
    stray = Layout(root / "net").blobs / "notes.txt"
    stray.touch()
    age(root)
    collect(root, apply=True)
    assert stray.exists()


def test_publishers_and_collectors_at_the_same_time_lose_nothing(root, tmp_path):
    children = []
    for number in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for turn in range(6):
                    if number == 0:
                        collect(root, apply=True, grace=5)
                    else:
                        release = make_release(tmp_path / f"w{number}", content=b"%d" % (turn % 2))
                        publish(root, PublishRequest(name="net", targets=(release,)))
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    assert fsck(root).clean


def test_the_command_tells_what_it_would_remove(root, capsys):
    dead_blob(root)
    age(root)
    argv = ["gc", "--registry", str(root)]
    assert run_boundary(cli, argv, prog="artifacts", usage_code="CNV-2401") == 0
    assert "run it with --apply" in capsys.readouterr().out
    assert run_boundary(cli, [*argv, "--apply", "--json"], prog="artifacts", usage_code="CNV-2401") == 0
    assert json.loads(capsys.readouterr().out)["applied"] is True
