"""Pulling and verifying: every byte checked, folders appear whole, damage is named."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from store_kit import make_release, make_request

from artifacts.digest import FileEntry, canonical_json, sha256_bytes
from artifacts.errors import RegistryError, UsageError
from artifacts.fsck import fsck
from artifacts.layout import Layout
from artifacts.manifest import manifest_bytes
from artifacts.publish import PublishRequest, publish
from artifacts.pull import pull
from artifacts.verify import verify_folder, verify_ref


@pytest.fixture
def root(tmp_path) -> Path:
    """A registry with ``net:1.0.0`` for two targets."""
    cpu = make_release(tmp_path / "cpu", content=b"for the cpu", target="cpu", soc="", backend="onnxruntime")
    publish(
        tmp_path / "reg", PublishRequest(name="net", version="1.0.0", targets=(make_release(tmp_path / "npu"), cpu))
    )
    return tmp_path / "reg"


def overwrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def test_a_pulled_folder_has_the_files_their_manifest_and_the_records(root, tmp_path):
    pulled = pull(root, "net", tmp_path / "out", target="cpu")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == list(pulled.files)
    assert pulled.files == ("manifest.json", "net.om", "report.html", "run.json", "support.json")
    assert (pulled.main, (tmp_path / "out/net.om").read_bytes()) == ("net.om", b"for the cpu")
    assert verify_folder(tmp_path / "out").ok


@pytest.mark.parametrize("wanted", [{"target": "Ascend910B"}, {"target": "ascend910b3"}, {"soc": "Ascend910B3"}])
def test_a_target_is_found_by_its_name_or_soc_in_any_case(root, tmp_path, wanted):
    assert pull(root, "net:1.0.0", tmp_path / "out", **wanted).soc == "Ascend910B3"


def test_every_way_to_name_a_target_gives_the_same_files(root, tmp_path):
    by_target = pull(root, "net", tmp_path / "0", target="cpu")
    texts = ["net:1.0.0-cpu", f"net@{by_target.digest}", f"net:1.0.0-cpu@{by_target.digest}"]
    assert {pull(root, text, tmp_path / str(number + 1)).digest for number, text in enumerate(texts)} == {
        by_target.digest
    }


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("other", "CNV-9001", "it has net"),
        ("net:2.0.0", "CNV-9002", "versions: 1.0.0"),
        ("net@sha256:" + "0" * 64, "CNV-9002", "versions: 1.0.0"),
        ("net:1.0.0@sha256:" + "0" * 64, "CNV-9002", "points to sha256:"),
        ("net:1.0.0", "CNV-9010", "Ascend910B (Ascend910B3) fp16, cpu fp16"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(root, tmp_path, text, code, said):
    with pytest.raises(RegistryError) as refusal:
        pull(root, text, tmp_path / "out")
    assert refusal.value.code == code
    assert said in refusal.value.message


def test_a_target_that_the_version_lacks_lists_those_it_has(root, tmp_path):
    with pytest.raises(RegistryError, match=r"nothing for MLU370-X4; it has: Ascend910B") as refusal:
        pull(root, "net", tmp_path / "out", target="MLU370-X4")
    assert refusal.value.code == "CNV-9010"


def test_a_missing_registry_has_no_models(tmp_path):
    with pytest.raises(RegistryError, match="no model yet"):
        pull(tmp_path / "nowhere", "net")


def test_pulling_again_changes_nothing_and_another_version_replaces_the_folder(root, tmp_path):
    out = tmp_path / "out"
    pull(root, "net:1.0.0-cpu", out)
    inode = out.stat().st_ino
    assert pull(root, "net:1.0.0-cpu", out).already
    assert out.stat().st_ino == inode
    assert not pull(root, "net", out, soc="Ascend910B3").already
    assert (out / "net.om").read_bytes() == b"weights"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")] == []


def test_a_damaged_pulled_folder_is_replaced(root, tmp_path):
    pull(root, "net:1.0.0-cpu", tmp_path / "out")
    (tmp_path / "out/net.om").write_bytes(b"oops")
    assert not pull(root, "net:1.0.0-cpu", tmp_path / "out").already
    assert verify_folder(tmp_path / "out").ok


@pytest.mark.parametrize("content", ["file", "folder", "pulled folder with a note", "link"])
def test_anything_else_at_the_place_is_left_as_it_is(root, tmp_path, content):
    out = tmp_path / "out"
    if content == "file":
        out.write_text("mine")
    elif content == "link":
        out.symlink_to(tmp_path / "npu")
    else:
        if content == "folder":
            out.mkdir()
        else:
            pull(root, "net:1.0.0-cpu", out)
        (out / "notes.txt").write_text("mine")
    with pytest.raises(UsageError) as refusal:
        pull(root, "net:1.0.0-ascend910b3", out)
    assert refusal.value.code == "CNV-2405"
    assert out.exists()


@pytest.mark.parametrize("damage", ["flip", "truncate", "extend", "remove"])
def test_a_damaged_file_is_never_pulled(root, tmp_path, damage):
    layout = Layout(root / "net")
    path = layout.blob_path(sha256_bytes(b"for the cpu"))
    data = {"flip": b"for the CPU", "truncate": b"for", "extend": b"for the cpu!", "remove": b""}[damage]
    if damage == "remove":
        path.unlink()
    else:
        overwrite(path, data)
    with pytest.raises(RegistryError) as refusal:
        pull(root, "net:1.0.0-cpu", tmp_path / "out")
    assert refusal.value.code == ("CNV-9006" if damage == "remove" else "CNV-9007")
    assert not (tmp_path / "out").exists()
    with pytest.raises(RegistryError) as refusal:
        verify_ref(root, "net:1.0.0")
    assert refusal.value.code == "CNV-9014"
    assert "net.om" in refusal.value.message
    report = fsck(root)
    assert [fault.fault for fault in report.models[0].damage] == ["missing" if damage == "remove" else "corrupt"]


@pytest.mark.parametrize("tag", ["1.0.0", "1.0.0-cpu"])
def test_a_damaged_manifest_is_never_read(root, tmp_path, tag):
    layout = Layout(root / "net")
    path = layout.blob_path(layout.find(tag).digest)
    overwrite(path, path.read_bytes().replace(b"sha256", b"sha257", 1))
    with pytest.raises(RegistryError) as refusal:
        pull(root, f"net:{tag}", tmp_path / "out", target="cpu")
    assert refusal.value.code == "CNV-9007"
    assert not fsck(root).clean


def publish_forged(root: Path, change) -> str:
    """Point a tag at a copy of the cpu target's OCI manifest after ``change``, every digest right."""
    layout = Layout(root / "net")
    image = json.loads(layout.blob_path(layout.find("1.0.0-cpu").digest).read_bytes())
    change(image, layout)
    data = canonical_json(image)
    with layout.edit() as edit:
        descriptor = msgspec.structs.replace(layout.find("1.0.0-cpu"), digest=layout.put_bytes(data), size=len(data))
        edit.set("forged", descriptor)
    return "net:forged"


@pytest.mark.parametrize("title", ["../evil.om", "/tmp/evil.om", "a/b", "", "x\x00", ".."])
def test_titles_that_escape_are_refused_though_all_digests_match(root, tmp_path, title):
    def rename(image, layout):
        image["layers"][0]["annotations"]["org.opencontainers.image.title"] = title

    with pytest.raises(RegistryError) as refusal:
        pull(root, publish_forged(root, rename), tmp_path / "out")
    assert refusal.value.code in {"CNV-9015", "CNV-9008"}
    assert not (tmp_path / "out").exists()


def test_two_layers_with_one_title_are_refused(root, tmp_path):
    def repeat(image, layout):
        image["layers"].append(image["layers"][0])

    with pytest.raises(RegistryError, match="same title"):
        pull(root, publish_forged(root, repeat), tmp_path / "out")


def test_a_manifest_that_names_other_files_than_the_layers_is_refused(root, tmp_path):
    def swap(image, layout):
        image["layers"][0]["digest"] = layout.put_bytes(b"other file!")

    with pytest.raises(RegistryError, match=r"disagree about: net\.om"):
        pull(root, publish_forged(root, swap), tmp_path / "out")


def test_a_layer_that_looks_like_a_manifest_is_only_a_file(root, tmp_path):
    forged = b'{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","layers":3}'
    done = publish(root, PublishRequest(name="odd", targets=(make_release(tmp_path / "o", content=forged),)))
    assert pull(root, done.ref, tmp_path / "out").main == "net.om"
    assert fsck(root).clean


def test_an_attached_record_is_no_artifact_to_pull(root, tmp_path):
    record = next(ref.tag for ref in Layout(root / "net").refs() if ref.tag.startswith("sha256-"))
    with pytest.raises(RegistryError, match="no model artifact"):
        pull(root, f"net:{record}", tmp_path / "out")


def test_a_folder_with_a_changed_missing_or_extra_file_does_not_verify(root, tmp_path):
    pull(root, "net:1.0.0-cpu", tmp_path / "out")
    (tmp_path / "out/net.om").write_bytes(b"FOR THE CPU")
    (tmp_path / "out/support.json").unlink()
    (tmp_path / "out/libevil.so").touch()
    with pytest.raises(RegistryError) as refusal:
        verify_folder(tmp_path / "out")
    assert refusal.value.code == "CNV-9014"
    for part in ("net.om has other content", "support.json is missing", "libevil.so is not named"):
        assert part in refusal.value.message


def test_a_file_behind_a_link_does_not_verify(root, tmp_path):
    pull(root, "net:1.0.0-cpu", tmp_path / "out")
    (tmp_path / "elsewhere.om").write_bytes(b"for the cpu")
    (tmp_path / "out/net.om").unlink()
    (tmp_path / "out/net.om").symlink_to(tmp_path / "elsewhere.om")
    with pytest.raises(RegistryError, match=r"net\.om has other content"):
        verify_folder(tmp_path / "out")


def test_a_folder_whose_manifest_names_files_outside_is_refused(root, tmp_path):
    pulled = pull(root, "net:1.0.0-cpu", tmp_path / "out")
    release = make_release(tmp_path / "x")
    outside = FileEntry(name="../../etc/passwd", sha256=pulled.digest, bytes=1)
    forged = msgspec.structs.replace(release.manifest, files=(outside,))
    (tmp_path / "out/manifest.json").write_bytes(manifest_bytes(forged))
    with pytest.raises(RegistryError) as refusal:
        verify_folder(tmp_path / "out")
    assert refusal.value.code == "CNV-9015"


def test_fsck_names_what_a_stopped_publisher_left_without_calling_it_damage(root):
    layout = Layout(root / "net")
    layout.put_bytes(b"nobody refers to this")
    (layout.temporary / "blob-1-abc").write_bytes(b"half")
    (layout.blobs / "notes.txt").touch()
    report = fsck(root)
    assert report.clean
    assert sorted(item.kind for item in report.models[0].leavings) == ["foreign", "temporary", "unreferenced"]


def test_fsck_finds_an_unreferenced_blob_that_is_corrupt(root):
    layout = Layout(root / "net")
    overwrite(layout.blob_path(layout.put_bytes(b"nobody refers to this")), b"nobody refers to that")
    assert [fault.fault for fault in fsck(root).models[0].damage] == ["corrupt"]


def test_fsck_survives_manifests_whose_subjects_form_a_long_chain(root):
    layout = Layout(root / "net")
    empty = {"mediaType": "application/vnd.oci.empty.v1+json", "digest": layout.put_bytes(b"{}"), "size": 2}
    kind = "application/vnd.oci.image.manifest.v1+json"
    subject: dict | None = None
    for _ in range(1500):
        image = {"schemaVersion": 2, "mediaType": kind, "config": empty, "layers": []}
        data = canonical_json({**image, "subject": subject} if subject else image)
        subject = {"mediaType": kind, "digest": sha256_bytes(data), "size": len(data)}
        (layout.blobs / subject["digest"][7:]).write_bytes(data)
    with layout.edit() as edit:
        edit.set("deep", msgspec.convert(subject, type(layout.refs()[0].descriptor)))
    assert fsck(root).clean


def test_fsck_reports_a_broken_index_and_goes_on_with_the_other_models(root, tmp_path):
    publish(root, make_request(tmp_path / "a", name="other"))
    (root / "net/index.json").write_text("{")
    report = fsck(root)
    assert [(model.name, len(model.damage)) for model in report.models] == [("net", 1), ("other", 0)]


def test_an_index_that_lists_an_index_is_refused(root, tmp_path):
    layout = Layout(root / "net")
    inner = layout.find("1.0.0")
    data = canonical_json(
        {"schemaVersion": 2, "mediaType": inner.media_type, "manifests": [msgspec.to_builtins(inner)]}
    )
    with layout.edit() as edit:
        edit.set("9.0.0", msgspec.structs.replace(inner, digest=layout.put_bytes(data), size=len(data)))
    with pytest.raises(RegistryError, match="not an image manifest"):
        pull(root, "net:9.0.0", tmp_path / "out")
    assert not fsck(root).clean
