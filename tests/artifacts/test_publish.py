"""Publishing: versions appear whole, never change, and the same content gives the same version."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from store_kit import make_release, make_request

from artifacts.errors import RegistryError, UsageError
from artifacts.fsck import fsck
from artifacts.layout import Layout
from artifacts.listing import list_models, show
from artifacts.names import parse_ref
from artifacts.publish import PublishRequest, publish
from artifacts.registry import Registry, file_system


def blob(published, layout: Layout) -> dict:
    return json.loads(layout.blob_path(published).read_bytes())


def test_the_first_version_is_published_whole(tmp_path):
    done = publish(tmp_path / "reg", make_request(tmp_path / "a"))
    assert (done.ref, done.already) == ("net:1.0.0", False)
    tags = [ref.tag for ref in Layout(tmp_path / "reg" / "net").refs()]
    assert tags == ["1.0.0", "1.0.0-ascend910b3", f"{done.targets[0].digest.replace(':', '-')}.run-1"]
    assert Path(done.targets[0].path).read_bytes() == b"weights"
    assert fsck(tmp_path / "reg").clean


def test_the_same_content_gives_the_same_version_whatever_the_records_say(tmp_path):
    first = publish(tmp_path / "reg", make_request(tmp_path / "a"))
    index = (tmp_path / "reg/net/index.json").read_bytes()
    again = make_request(tmp_path / "a")
    (tmp_path / "a/run.json").write_text('{"seconds": 99}')
    second = publish(tmp_path / "reg", again)
    assert (second.version, second.digest, second.already) == (first.version, first.digest, True)
    assert (tmp_path / "reg/net/index.json").read_bytes() == index


def test_other_content_gives_the_next_patch_and_the_old_content_its_old_version(tmp_path):
    contents = [b"one", b"two", b"one"]
    done = [publish(tmp_path / "reg", make_request(tmp_path / "a", content=content)) for content in contents]
    assert [(item.version, item.already) for item in done] == [("1.0.0", False), ("1.0.1", False), ("1.0.0", True)]


def test_a_published_version_refuses_other_content_and_names_both_digests(tmp_path):
    first = publish(tmp_path / "reg", make_request(tmp_path / "a", version="2.0.0"))
    with pytest.raises(RegistryError) as refusal:
        publish(tmp_path / "reg", make_request(tmp_path / "b", version="2.0.0", content=b"other"))
    assert refusal.value.code == "CNV-9009"
    assert first.targets[0].digest in refusal.value.message
    assert "--version 2.0.0-r2" in refusal.value.hint
    assert fsck(tmp_path / "reg").clean


def test_a_target_that_comes_later_makes_a_revision_with_all_targets(tmp_path):
    first = publish(tmp_path / "reg", make_request(tmp_path / "a", version="1.0.0"))
    late = make_release(tmp_path / "b", target="cpu", soc="", backend="onnxruntime")
    second = publish(tmp_path / "reg", PublishRequest(name="net", version="1.0.0", targets=(late,)))
    assert (second.version, second.targets[0].ref) == ("1.0.0-r2", "net:1.0.0-r2-cpu")
    shown = show(tmp_path / "reg", parse_ref("net:1.0.0-r2"))
    assert [target.target for target in shown.targets] == ["Ascend910B", "cpu"]
    assert shown.targets[0].digest == first.targets[0].digest
    assert publish(tmp_path / "reg", PublishRequest(name="net", version="1.0.0", targets=(late,))).already


def test_two_precisions_for_one_soc_are_refused(tmp_path):
    both = (make_release(tmp_path / "a"), make_release(tmp_path / "b", content=b"x", precision="int8"))
    with pytest.raises(RegistryError, match="one precision for each SoC") as refusal:
        publish(tmp_path / "reg", PublishRequest(name="net", targets=both))
    assert refusal.value.code == "CNV-9016"
    assert not (tmp_path / "reg").exists()


def test_a_file_that_changed_since_it_was_made_is_not_published(tmp_path):
    request = make_request(tmp_path / "a")
    (tmp_path / "a/net.om").write_bytes(b"WEIGHTS")
    with pytest.raises(RegistryError) as refusal:
        publish(tmp_path / "reg", request)
    assert refusal.value.code == "CNV-9011"
    assert list_models(Registry(tmp_path / "reg"))[0].versions == ()


def test_the_target_manifest_is_a_modelpack_without_version_or_clock(tmp_path):
    done = publish(tmp_path / "reg", make_request(tmp_path / "a"))
    layout = Layout(tmp_path / "reg/net")
    image = blob(done.targets[0].digest, layout)
    assert image["artifactType"] == "application/vnd.cncf.model.manifest.v1+json"
    assert [layer["annotations"]["org.cncf.model.filepath"] for layer in image["layers"]] == [
        "net.om",
        "manifest.json",
        "support.json",
    ]
    assert image["annotations"] == {
        "io.model-convert.backend": "atc",
        "io.model-convert.cosine.min": "0.9999",
        "io.model-convert.precision": "fp16",
        "io.model-convert.ran-on": "device",
        "io.model-convert.soc": "Ascend910B3",
        "io.model-convert.source.digest": "sha256:5fe414d7db7d9844155bc10cb3413b64f547eee4988b76a6227660ba1fb858fe",
        "io.model-convert.target": "Ascend910B",
        "io.model-convert.toolchain": "cann 8.0.RC3",
        "io.model-convert.verdict": "passed",
    }
    config = blob(image["config"]["digest"], layout)
    assert set(config) == {"descriptor", "config", "modelfs"}
    assert config["modelfs"] == {"type": "layers", "diffIds": [layer["digest"] for layer in image["layers"]]}


def test_the_version_index_has_no_artifact_type_anywhere(tmp_path):
    done = publish(tmp_path / "reg", make_request(tmp_path / "a"))
    assert "artifactType" not in json.dumps(blob(done.digest, Layout(tmp_path / "reg/net")))


def test_publishing_the_same_into_two_registries_gives_the_same_digests(tmp_path):
    one, two = (publish(tmp_path / name, make_request(tmp_path / "a")) for name in ("one", "two"))
    assert (one.digest, one.targets[0].digest) == (two.digest, two.targets[0].digest)


def test_linked_files_share_their_content_and_are_read_only(tmp_path):
    request = PublishRequest(name="net", targets=(make_release(tmp_path / "a", link=True),))
    done = publish(tmp_path / "reg", request)
    source, stored = (tmp_path / "a/net.om").stat(), Path(done.targets[0].path).stat()
    assert source.st_ino == stored.st_ino
    assert stat.S_IMODE(stored.st_mode) == 0o444


def test_a_linked_file_with_other_content_is_not_published(tmp_path):
    request = PublishRequest(name="net", targets=(make_release(tmp_path / "a", link=True),))
    (tmp_path / "a/net.om").write_bytes(b"WEIGHTS")
    with pytest.raises(RegistryError) as refusal:
        publish(tmp_path / "reg", request)
    assert refusal.value.code == "CNV-9011"


def test_equal_files_of_two_models_are_stored_once(tmp_path):
    done = [publish(tmp_path / "reg", make_request(tmp_path / "a", name=name)) for name in ("one", "team/two")]
    inodes = {Path(item.targets[0].path).stat().st_ino for item in done}
    assert len(inodes) == 1


def test_where_links_are_refused_the_file_is_copied(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(18, "Invalid cross-device link")))
    request = PublishRequest(name="net", targets=(make_release(tmp_path / "a", link=True),))
    assert Path(publish(tmp_path / "reg", request).targets[0].path).read_bytes() == b"weights"


def test_a_blob_of_the_wrong_size_is_replaced_by_the_next_publisher(tmp_path):
    done = publish(tmp_path / "reg", make_request(tmp_path / "a"))
    path = Path(done.targets[0].path)
    path.chmod(0o644)
    path.write_bytes(b"we")
    assert not fsck(tmp_path / "reg").clean
    publish(tmp_path / "reg", make_request(tmp_path / "a"))
    assert fsck(tmp_path / "reg").clean


def test_index_json_keeps_what_other_tools_wrote(tmp_path):
    publish(tmp_path / "reg", make_request(tmp_path / "a"))
    path = tmp_path / "reg/net/index.json"
    document = json.loads(path.read_bytes())
    document["x-other"] = {"b": 1, "a": [2]}
    document["manifests"].insert(0, {**document["manifests"][1], "platform": {"os": "linux", "architecture": "arm64"}})
    document["manifests"][0]["annotations"] = {"note": "of another tool"}
    path.write_text(json.dumps(document))
    publish(tmp_path / "reg", make_request(tmp_path / "a", content=b"new"))
    kept = json.loads(path.read_bytes())
    assert list(kept)[-1] == "x-other"
    assert kept["x-other"] == document["x-other"]
    assert kept["manifests"][: len(document["manifests"])] == document["manifests"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schemaVersion":2}', '{"schemaVersion":1,"manifests":[]}', '{"schemaVersion":2,"manifests":[3]}',
     '{"schemaVersion":2,"manifests":[{"mediaType":"a","digest":"sha256:../../x","size":1}]}',
     '{"schemaVersion":2,"manifests":[],"manifests":[]}'],
)  # fmt: skip
def test_a_broken_index_json_is_refused_and_left_as_it_is(tmp_path, text):
    publish(tmp_path / "reg", make_request(tmp_path / "a"))
    path = tmp_path / "reg/net/index.json"
    path.write_text(text)
    with pytest.raises(RegistryError) as refusal:
        publish(tmp_path / "reg", make_request(tmp_path / "a", content=b"new"))
    assert refusal.value.code == "CNV-9005"
    assert path.read_text() == text


def test_a_lost_index_json_is_not_started_anew(tmp_path):
    publish(tmp_path / "reg", make_request(tmp_path / "a"))
    (tmp_path / "reg/net/index.json").unlink()
    with pytest.raises(RegistryError) as refusal:
        publish(tmp_path / "reg", make_request(tmp_path / "a"))
    assert refusal.value.code == "CNV-9004"


def test_a_write_of_another_tool_during_an_edit_is_not_lost(tmp_path):
    publish(tmp_path / "reg", make_request(tmp_path / "a"))
    layout = Layout(tmp_path / "reg/net")
    theirs = layout.index_bytes().replace(b'{"schemaVersion"', b'{"theirs":1,"schemaVersion"')
    with pytest.raises(RegistryError, match="another tool changed"), layout.edit() as edit:
        edit.drop("1.0.0")
        (layout.root / "index.json").write_bytes(theirs)
    assert layout.index_bytes() == theirs


def test_a_tag_that_another_thing_holds_is_named(tmp_path):
    publish(tmp_path / "reg", make_request(tmp_path / "a", version="1.0.0"))
    with pytest.raises(RegistryError) as refusal:
        publish(tmp_path / "reg", make_request(tmp_path / "b", version="1.0.0-ascend910b3", content=b"x"))
    assert refusal.value.code == "CNV-9020"


def test_a_folder_in_use_for_something_else_is_no_registry(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/thesis.tex").touch()
    with pytest.raises(RegistryError) as refusal:
        publish(tmp_path / "home", make_request(tmp_path / "a"))
    assert refusal.value.code == "CNV-9019"
    assert "thesis.tex" in refusal.value.message


def test_a_registry_of_a_newer_version_is_refused(tmp_path):
    (tmp_path / "registry.json").write_text('{"version":2}')
    with pytest.raises(RegistryError) as refusal:
        publish(tmp_path, make_request(tmp_path / "a"))
    assert refusal.value.code == "CNV-9017"


def test_a_network_file_system_is_refused_unless_its_owner_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("artifacts.registry.file_system", lambda _: "nfs4")
    with pytest.raises(RegistryError) as refusal:
        publish(tmp_path / "reg", make_request(tmp_path / "a"))
    assert refusal.value.code == "CNV-9018"
    (tmp_path / "reg").mkdir()
    (tmp_path / "reg/registry.json").write_text('{"version":1,"network_file_system":true}')
    assert publish(tmp_path / "reg", make_request(tmp_path / "a")).version == "1.0.0"


def test_the_file_system_of_the_deepest_mount_counts(tmp_path):
    mounts = tmp_path / "mountinfo"
    lines = ["1 0 8:1 / / rw - ext4 /dev/a rw", f"2 1 0:5 / {tmp_path}/my\\040share rw shared:1 - nfs4 host:/x rw"]
    mounts.write_text("\n".join(lines))
    assert file_system(tmp_path / "my share" / "reg", mounts) == "nfs4"
    assert file_system(tmp_path / "other", mounts) == "ext4"


def test_a_request_without_targets_or_with_foreign_files_is_refused(tmp_path):
    with pytest.raises(RegistryError):
        publish(tmp_path / "reg", PublishRequest(name="net", targets=()))
    release = make_release(tmp_path / "a")
    stray = msgspec.structs.replace(release, records={"notes.txt": tmp_path / "a/net.om"})
    with pytest.raises(RegistryError, match=r"notes\.txt"):
        publish(tmp_path / "reg", PublishRequest(name="net", targets=(stray,)))
    with pytest.raises(UsageError):
        publish(tmp_path / "reg", PublishRequest(name="Net", targets=(release,)))


PUBLISHER = """
import sys
from pathlib import Path
from store_kit import make_request
from artifacts.publish import publish
root, place, count, same = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "same"
for number in range(count):
    content = b"same" if same else f"{place.name} {number}".encode()
    publish(root, make_request(place, content=content))
"""


def start_publishers(tmp_path: Path, count: int, each: int, same: str) -> list[subprocess.Popen[bytes]]:
    roots = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2])])
    return [
        subprocess.Popen(
            [sys.executable, "-c", PUBLISHER, str(tmp_path / "reg"), str(tmp_path / f"p{number}"), str(each), same],
            env={**os.environ, "PYTHONPATH": roots},
        )
        for number in range(count)
    ]


def test_publishers_at_the_same_time_lose_no_version(tmp_path):
    assert [process.wait() for process in start_publishers(tmp_path, 3, 5, "different")] == [0, 0, 0]
    model = list_models(Registry(tmp_path / "reg"))[0]
    assert sorted(int(version.version.rsplit(".", 1)[1]) for version in model.versions) == list(range(15))
    assert fsck(tmp_path / "reg").clean


def test_publishers_of_the_same_content_agree_on_one_version(tmp_path):
    assert [process.wait() for process in start_publishers(tmp_path, 3, 2, "same")] == [0, 0, 0]
    assert [version.version for version in list_models(Registry(tmp_path / "reg"))[0].versions] == ["1.0.0"]


@pytest.mark.long
def test_eight_publishers_of_25_versions_each_lose_none(tmp_path):
    assert [process.wait() for process in start_publishers(tmp_path, 8, 25, "different")] == [0] * 8
    assert len(list_models(Registry(tmp_path / "reg"))[0].versions) == 200
    assert fsck(tmp_path / "reg").clean


def test_many_refs_stay_readable(tmp_path):
    publish(tmp_path / "reg", make_request(tmp_path / "a"))
    layout = Layout(tmp_path / "reg/net")
    descriptor = layout.refs()[0].descriptor
    with layout.edit() as edit:
        edit.document["manifests"] += [
            {"mediaType": descriptor.media_type, "digest": descriptor.digest, "size": descriptor.size,
             "annotations": {"org.opencontainers.image.ref.name": f"0.0.{number}"}}
            for number in range(10_000)
        ]  # fmt: skip
        edit.changed = True
    assert publish(tmp_path / "reg", make_request(tmp_path / "a", content=b"new")).version == "1.0.1"
    assert len(layout.refs()) == 10_006


def hold_lock(path: str, ready: object) -> None:
    from artifacts.durable import locked

    with locked(Path(path)):
        ready.set()  # type: ignore[attr-defined]
        import time

        time.sleep(30)


def test_a_lock_that_somebody_keeps_is_reported(tmp_path):
    from artifacts.durable import locked

    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=hold_lock, args=(str(tmp_path / ".lock"), ready), daemon=True)
    holder.start()
    try:
        assert ready.wait(20)
        with pytest.raises(RegistryError) as refusal, locked(tmp_path / ".lock", seconds=0.1):
            pass
        assert refusal.value.code == "CNV-9012"
    finally:
        holder.kill()
        holder.join()
    with locked(tmp_path / ".lock", seconds=5):
        pass
