"""Retention: old versions go, never one that a channel has or ever had."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from store_kit import make_request

from artifacts.channels import Move, promote, rollback
from artifacts.commands.gc import command
from artifacts.errors import RegistryError, UsageError
from artifacts.fsck import fsck
from artifacts.gc import collect
from artifacts.layout import Layout
from artifacts.place import copy
from artifacts.publish import publish
from artifacts.registry import Registry
from artifacts.rules import Retention
from artifacts.verify import verify_ref
from artifacts.versions import Versions

KEEP2 = Retention(keep=2)


@pytest.fixture
def root(tmp_path) -> Path:
    for number in range(6):
        publish(
            tmp_path / "reg",
            make_request(tmp_path / str(number), version=f"1.0.{number}", content=b"weights %d" % number),
        )
    age(tmp_path / "reg")
    return tmp_path / "reg"


def age(root: Path, days: float = 100) -> None:
    past = time.time() - days * 86400
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (past, past))


def versions(root: Path) -> list[str]:
    layout = Layout(root / "net")
    return list(Versions(layout, layout.refs()).names)


def test_without_a_rule_every_version_stays(root) -> None:
    assert collect(root, apply=True).models[0].expired == ()
    assert len(versions(root)) == 6


def test_a_dry_run_tells_what_goes_and_changes_nothing(root) -> None:
    before = (root / "net" / "index.json").read_bytes()
    report = collect(root, retention=KEEP2)
    assert report.models[0].expired == ("1.0.0", "1.0.1", "1.0.2", "1.0.3")
    assert report.models[0].bytes > 0
    assert (root / "net" / "index.json").read_bytes() == before


def test_the_newest_stay_and_the_rest_goes_with_its_bytes(root) -> None:
    told = collect(root, retention=KEEP2).models[0]
    done = collect(root, retention=KEEP2, apply=True, actor="wei").models[0]
    assert versions(root) == ["1.0.4", "1.0.5"]
    assert (done.expired, done.swept) == (told.expired, told.swept)
    report = fsck(root)
    assert report.clean
    assert report.models[0].leavings == ()
    for version in versions(root):
        verify_ref(root, f"net:{version}")


def test_what_a_channel_has_or_ever_had_stays(root) -> None:
    promote(root, "net:1.0.0", Move(channel="prod", actor="wei"))
    promote(root, "net:1.0.2", Move(channel="prod", actor="wei"))
    promote(root, "net:1.0.1", Move(channel="candidate", actor="wei"))
    age(root)
    collect(root, retention=KEEP2, apply=True)
    assert versions(root) == ["1.0.0", "1.0.1", "1.0.2", "1.0.4", "1.0.5"]
    assert rollback(root, "net", Move(channel="prod", actor="wei")).version == "1.0.0"
    verify_ref(root, "net:prod")


def test_a_channel_that_another_tool_dropped_still_needs_its_history(root) -> None:
    promote(root, "net:1.0.0", Move(channel="prod", actor="wei"))
    with Layout(root / "net").edit() as edit:
        edit.drop("prod")
    age(root)
    collect(root, retention=KEEP2, apply=True)
    assert "1.0.0" in versions(root)


def test_young_versions_stay(root, tmp_path) -> None:
    publish(root, make_request(tmp_path / "again", version="1.0.1", content=b"weights 1"))
    layout = Layout(root / "net")
    index = Versions(layout, layout.refs()).names["1.0.3"]
    os.utime(layout.blob_path(index.digest))
    collect(root, retention=Retention(keep=1, days=7), apply=True)
    assert versions(root) == ["1.0.3", "1.0.5"]


def test_an_event_that_cannot_be_read_stops_the_sweep(root) -> None:
    promote(root, "net:1.0.0", Move(channel="prod", actor="wei"))
    age(root)
    layout = Layout(root / "net")
    event = layout.find("event-prod-000001")
    path = layout.blob_path(event.digest)
    path.chmod(0o644)
    path.write_bytes(b"x" * event.size)
    with pytest.raises(RegistryError, match="is damaged"):
        collect(root, retention=KEEP2, apply=True)
    assert len(versions(root)) == 6


def test_the_same_content_may_come_back_and_other_content_may_not(root, tmp_path) -> None:
    digest = Versions(Layout(root / "net"), Layout(root / "net").refs()).names["1.0.0"].digest
    collect(root, retention=KEEP2, apply=True, actor="wei")
    with pytest.raises(RegistryError) as caught:
        publish(root, make_request(tmp_path / "other", version="1.0.0", content=b"something else"))
    assert caught.value.code == "CNV-9073"
    assert publish(root, make_request(tmp_path / "b", version="1.0.0", content=b"weights 0")).digest == digest
    assert "deleted-1.0.0" not in {ref.tag for ref in Layout(root / "net").refs()}
    verify_ref(root, "net:1.0.0")


def test_a_tombstone_says_who_and_what(root) -> None:
    digest = Versions(Layout(root / "net"), Layout(root / "net").refs()).names["1.0.0"].digest
    collect(root, retention=Retention(keep=2, days=3), apply=True, actor="wei@build")
    layout = Layout(root / "net")
    image = json.loads(layout.read_blob(layout.find("deleted-1.0.0").digest, "it"))
    told = json.loads(layout.read_blob(image["layers"][0]["digest"], "it"))
    assert (told["version"], told["digest"], told["actor"]) == ("1.0.0", digest, "wei@build")
    assert told["reason"] == "retention: keep 2, days 3"
    assert fsck(root).clean


def test_a_removed_number_is_never_given_again(root, tmp_path) -> None:
    collect(root, retention=Retention(keep=1), apply=True)
    done = publish(root, make_request(tmp_path / "new", content=b"new"))
    assert done.version == "1.0.6"


def test_a_copy_brings_a_removed_version_back_or_is_refused(root, tmp_path) -> None:
    copy("net:1.0.0", f"oci-archive:{tmp_path / 'same.tar'}", root)
    publish(tmp_path / "else", make_request(tmp_path / "e", version="1.0.1", content=b"something else"))
    copy("net:1.0.1", f"oci-archive:{tmp_path / 'other.tar'}", tmp_path / "else")
    collect(root, retention=KEEP2, apply=True)
    with pytest.raises(RegistryError) as caught:
        copy(f"oci-archive:{tmp_path / 'other.tar'}", "net", root)
    assert caught.value.code == "CNV-9073"
    copy(f"oci-archive:{tmp_path / 'same.tar'}", "net", root)
    assert versions(root) == ["1.0.0", "1.0.4", "1.0.5"]
    assert "deleted-1.0.0" not in {ref.tag for ref in Layout(root / "net").refs()}


def test_tombstones_travel_with_a_whole_copy(root, tmp_path) -> None:
    collect(root, retention=KEEP2, apply=True, actor="wei")
    copy("net", f"oci-archive:{tmp_path / 'net.tar'}", root, everything=True)
    copy(f"oci-archive:{tmp_path / 'net.tar'}", "net", tmp_path / "there")
    layout = Layout(tmp_path / "there" / "net")
    assert "deleted-1.0.0" in {ref.tag for ref in layout.refs()}
    assert fsck(tmp_path / "there").clean
    done = publish(tmp_path / "there", make_request(tmp_path / "back", version="1.0.0", content=b"weights 0"))
    assert done.version == "1.0.0"


def test_registry_json_holds_the_rule_and_the_command_line_stands_over_it(root) -> None:
    from click.testing import CliRunner

    (root / "registry.json").write_text('{"version":1,"retention":{"keep":4}}')
    assert Registry(root).policy().retention == Retention(keep=4)

    def gone(*arguments: str) -> list[str]:
        done = CliRunner().invoke(command, ["--registry", str(root), "--json", *arguments], catch_exceptions=False)
        return json.loads(done.stdout)["models"][0]["expired"]

    assert gone() == ["1.0.0", "1.0.1"]
    assert gone("--keep", "5") == ["1.0.0"]
    assert gone("--days", "1000") == []


def test_days_alone_are_refused(root) -> None:
    from click.testing import CliRunner

    done = CliRunner().invoke(command, ["--registry", str(root), "--days", "3"])
    assert isinstance(done.exception, UsageError)
    assert done.exception.code == "CNV-2440"


@pytest.mark.parametrize("text", ['{"keep":-1}', '{"days":-1}', '{"keep":"many"}'])
def test_a_rule_that_is_none_is_refused(root, text) -> None:
    (root / "registry.json").write_text('{"version":1,"retention":' + text + "}")
    with pytest.raises(RegistryError) as caught:
        collect(root, apply=True)
    assert caught.value.code == "CNV-9008"
    assert len(versions(root)) == 6
