"""What else can go wrong with a registry folder: full disks in every writer, links, clocks, documents made to hurt."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import threading
from pathlib import Path

import pytest
from faults import failing_from, steps_of
from store_kit import make_release, make_request

from artifacts import channels
from artifacts.attach import attach
from artifacts.channels import Move, channel_log, promote, rollback
from artifacts.digest import sha256_file
from artifacts.errors import RegistryError, ResourceLimit, UsageError
from artifacts.fsck import fsck
from artifacts.gc import collect
from artifacts.layout import Layout
from artifacts.oci import MAX_LAYERS, MAX_TARGETS, parse_image, parse_index
from artifacts.publish import PublishRequest, publish
from artifacts.pull import pull
from artifacts.registry import Registry
from artifacts.rules import Retention
from artifacts.strictjson import MANIFEST_BYTES, MAX_DEPTH
from artifacts.verify import verify_ref

MOVE = Move(channel="prod", actor="wei")


@pytest.fixture
def root(tmp_path) -> Path:
    for version in ("1.0.0", "1.1.0"):
        publish(tmp_path / "reg", make_request(tmp_path / version, version=version, content=version.encode() * 50))
    return tmp_path / "reg"


def actions(root: Path, tmp_path: Path):
    """Each writer of the registry apart from publishing, which has tests of its own."""
    (tmp_path / "extra.json").write_text("{}")
    return {
        "promote": lambda: promote(root, "net:1.1.0", MOVE),
        "rollback": lambda: rollback(root, "net", Move(channel="staging", actor="wei")),
        "attach": lambda: attach(root, "net:1.0.0", [tmp_path / "extra.json"], artifact_type="x"),
        "retention": lambda: collect(root, retention=Retention(keep=1), apply=True, grace=0),
    }


@pytest.mark.parametrize(
    ("code", "kind", "exit_code"), [(errno.ENOSPC, ResourceLimit, 10), (errno.EIO, RegistryError, 9)]
)
@pytest.mark.parametrize("name", ["promote", "rollback", "attach", "retention"])
def test_a_disk_that_fails_in_any_writer_loses_nothing(tmp_path, name, code, kind, exit_code) -> None:
    def fresh(number: int) -> Path:
        place = tmp_path / f"reg{number}"
        for version in ("1.0.0", "1.1.0"):
            publish(place, make_request(tmp_path / f"{number}-{version}", version=version, content=version.encode()))
        for version in ("1.0.0", "1.1.0") if name == "rollback" else ():
            promote(place, f"net:{version}", Move(channel="staging", actor="wei"))
        return place

    names = ("open", "write", "fsync", "rename")
    whole = fresh(0)
    count = len(steps_of(actions(whole, tmp_path)[name]))
    for step in range(1, count + 1, max(1, count // 4)):
        root = fresh(step)
        action = actions(root, tmp_path)[name]
        try:
            with failing_from(step, code, names):
                action()
        except (ResourceLimit, RegistryError) as error:
            assert isinstance(error, kind) and error.exit_code == exit_code
        assert fsck(root).clean
        for channel in ("staging",) if name == "rollback" else ():
            assert channel_log(root, "net", channel).problems == ()
        # An error after the rename leaves the new state: then there is nothing left to roll back to.
        with contextlib.suppress(UsageError):
            actions(root, tmp_path)[name]()
        assert fsck(root).clean


def test_a_full_disk_names_what_was_written_and_no_other_file(root) -> None:
    with failing_from(1, errno.ENOSPC, ("write",)), pytest.raises(ResourceLimit) as caught:
        promote(root, "net:1.1.0", MOVE)
    assert "unknown" not in caught.value.message
    bare = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    from artifacts.errors import disk_full

    assert disk_full(bare, "pulling into out").message == "no space left on the disk while pulling into out"


def test_a_file_system_without_locks_is_refused(root, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(RegistryError, match="can't lock") as caught:
        promote(root, "net:1.0.0", MOVE)
    assert caught.value.code == "CNV-9012"


def test_a_clock_that_goes_back_leaves_the_history_in_order(root, monkeypatch) -> None:
    class Clock:
        hours = iter((10, 4, 7))

        @classmethod
        def now(cls, zone):
            from datetime import datetime

            return datetime(2026, 11, 30, next(cls.hours), tzinfo=zone)

    monkeypatch.setattr(channels, "datetime", Clock)
    promote(root, "net:1.0.0", MOVE)
    promote(root, "net:1.1.0", MOVE)
    assert rollback(root, "net", MOVE).version == "1.0.0"
    log = channel_log(root, "net", "prod")
    assert log.problems == ()
    assert [item.event.time[11:13] for item in log.events] == ["07", "04", "10"]


def test_promotion_and_retention_at_the_same_time_never_lose_what_a_channel_has(tmp_path) -> None:
    root = tmp_path / "reg"
    for number in range(8):
        publish(root, make_request(tmp_path / str(number), version=f"1.0.{number}", content=b"%d" % number))
    stop = threading.Event()
    faults: list[Exception] = []

    def sweep() -> None:
        while not stop.is_set():
            try:
                collect(root, retention=Retention(keep=2), apply=True, grace=0)
            except RegistryError as error:
                faults.append(error)

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    moved = []
    for number in range(6):
        try:
            moved.append(promote(root, f"net:1.0.{number}", MOVE).version)
        except RegistryError as error:
            assert error.code in ("CNV-9002", "CNV-9006")
    stop.set()
    sweeper.join()
    assert faults == []
    assert fsck(root).clean
    for version in moved:
        verify_ref(root, f"net:{version}")


def blob_of(root: Path, content: bytes) -> Path:
    return Layout(root / "net").blob_path("sha256:" + hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize("trick", ["other", "loop", "folder", "fifo"])
def test_a_blob_that_is_something_else_is_never_handed_out(root, tmp_path, trick) -> None:
    (tmp_path / "secret").write_bytes(b"s" * 250)
    path = blob_of(root, b"1.0.0" * 50)
    path.unlink()
    if trick == "other":
        path.symlink_to(tmp_path / "secret")
    elif trick == "loop":
        path.symlink_to(path)
    elif trick == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(RegistryError) as caught:
        pull(root, "net:1.0.0", tmp_path / "out")
    assert caught.value.code in ("CNV-9004", "CNV-9006", "CNV-9007")
    assert not (tmp_path / "out").exists()
    assert not fsck(root).clean


def test_a_model_behind_a_link_is_not_listed(root, tmp_path) -> None:
    (root / "twin").symlink_to(root / "net")
    (root / "up").symlink_to("/")
    assert Registry(root).models() == ("net",)


def test_targets_that_differ_in_the_case_of_letters_are_one(tmp_path) -> None:
    twins = tuple(make_release(tmp_path / soc, soc=soc) for soc in ("Ascend910B3", "ascend910b3"))
    with pytest.raises(RegistryError) as caught:
        publish(tmp_path / "reg", PublishRequest(name="net", version="1.0.0", targets=twins))
    assert caught.value.code == "CNV-9016"


# ---------------------------------------------------------------------------------------------------------- documents


def swap(root: Path, tag: str, change) -> None:
    """Replace the manifest of a tag by a changed one, every digest right."""
    layout = Layout(root / "net")
    descriptor = layout.find(tag)
    data = change(json.loads(layout.read_blob(descriptor.digest, tag)))
    digest = layout.put_bytes(data)
    document = json.loads((root / "net" / "index.json").read_text())
    for entry in document["manifests"]:
        if entry["annotations"]["org.opencontainers.image.ref.name"] == tag:
            entry.update(digest=digest, size=len(data))
    (root / "net" / "index.json").write_text(json.dumps(document))


def dumped(change):
    def apply(document) -> bytes:
        change(document)
        return json.dumps(document).encode()

    return apply


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = {"a": value}
    return value


HURTFUL = {
    "another digest": dumped(lambda image: image["layers"][0].update(digest="sha512:" + "0" * 128)),
    "a size that is wrong": dumped(lambda image: image["layers"][0].update(size=image["layers"][0]["size"] + 1)),
    "a negative size": dumped(lambda image: image["layers"][0].update(size=-1)),
    "a huge size": dumped(lambda image: image["layers"][0].update(size=1 << 70)),
    "a key twice": lambda image: json.dumps(image).encode()[:-1] + b',"layers":[]}',
    "too many layers": dumped(lambda image: image.update(layers=image["layers"] * MAX_LAYERS)),
    "deep nesting": dumped(lambda image: image.update(extra=nested(MAX_DEPTH + 1))),
    "very deep nesting": lambda image: b"[" * 100_000,
    "more than 4 MiB": dumped(lambda image: image.update(extra="x" * MANIFEST_BYTES)),
    "an absolute title": dumped(
        lambda image: image["layers"][0]["annotations"].update({"org.opencontainers.image.title": "/etc/passwd"})
    ),
    "a title with NUL": dumped(
        lambda image: image["layers"][0]["annotations"].update({"org.opencontainers.image.title": "a\0b"})
    ),
}


@pytest.mark.parametrize("name", HURTFUL)
def test_a_manifest_made_to_hurt_is_a_clear_error(root, tmp_path, name) -> None:
    swap(root, "1.0.0-ascend910b3", HURTFUL[name])
    with pytest.raises(RegistryError) as caught:
        pull(root, "net:1.0.0-ascend910b3", tmp_path / "out")
    assert caught.value.code in ("CNV-9006", "CNV-9007", "CNV-9008", "CNV-9015")
    assert not (tmp_path / "out").exists()
    assert not fsck(root).clean


def test_an_index_with_itself_in_it_ends(root) -> None:
    layout = Layout(root / "net")
    index = json.loads(layout.read_blob(layout.find("1.0.0").digest, "it"))
    index["manifests"][0]["digest"] = layout.find("1.0.0").digest
    swap(root, "1.0.0", lambda _: json.dumps(index).encode())
    assert not fsck(root).clean
    with pytest.raises(RegistryError):
        verify_ref(root, "net:1.0.0")


def test_limits_of_documents_hold() -> None:
    entry = {"mediaType": "a/b", "digest": "sha256:" + "0" * 64, "size": 1}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json"}
    with pytest.raises(RegistryError, match="more than"):
        parse_index(json.dumps({**index, "manifests": [entry] * (MAX_TARGETS + 1)}).encode(), "it")
    image = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": entry}
    with pytest.raises(RegistryError, match="more than"):
        parse_image(json.dumps({**image, "layers": [entry] * (MAX_LAYERS + 1)}).encode(), "it")


MODELPACK_CONFIG = {"descriptor", "config", "modelfs"}
DESCRIPTOR = {"createdAt", "authors", "family", "name", "docURL", "sourceURL", "datasetsURL", "version", "revision",
              "vendor", "licenses", "title", "description"}  # fmt: skip
CONFIG = {"architecture", "format", "paramSize", "precision", "quantization", "capabilities"}


def test_the_config_holds_to_the_closed_schema_of_modelpack(root) -> None:
    layout = Layout(root / "net")
    image = parse_image(layout.read_blob(layout.find("1.0.0-ascend910b3").digest, "it"), "it")
    config = json.loads(layout.read_blob(image.config.digest, "the config"))
    assert set(config) == MODELPACK_CONFIG
    assert set(config["descriptor"]) <= DESCRIPTOR
    assert set(config["config"]) <= CONFIG
    assert set(config["modelfs"]) == {"type", "diffIds"}
    assert config["modelfs"]["type"] == "layers"
    assert config["modelfs"]["diffIds"] == [layer.digest for layer in image.layers]


def test_a_pipe_that_is_to_be_imported_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, said in ((tmp_path / "pipe", "pipe or a device"), (Path("/dev/zero"), "pipe or a device")):
        with pytest.raises(OSError, match=said):
            sha256_file(path)
    with pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path))):
        sha256_file(tmp_path)
