"""Drafts, sealing, imports and attachments."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from faults import KILLED, run_killed_at
from store_kit import make_release

from artifacts.__main__ import cli
from artifacts.attach import attach, find_attachments
from artifacts.channels import Move, promote
from artifacts.cli import run_boundary
from artifacts.digest import sha256_bytes
from artifacts.drafts import Draft, add_to_draft, open_draft, seal
from artifacts.errors import RegistryError, UsageError
from artifacts.fsck import fsck
from artifacts.imports import ImportRequest, import_files
from artifacts.layout import Layout
from artifacts.listing import list_models, show
from artifacts.names import parse_ref
from artifacts.publish import PublishRequest, publish
from artifacts.pull import pull
from artifacts.registry import Registry

KEYS = ("Ascend910B3", "cpu")


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "reg"


def add(root: Path, folder: Path, key: str, *, version: str = "1.0.0", content: bytes = b"weights") -> Draft:
    fields = {"soc": key} if key != "cpu" else {"target": "cpu", "soc": "", "backend": "onnxruntime"}
    release = make_release(folder / key, content=content, **fields)
    return add_to_draft(root, PublishRequest(name="net", version=version, targets=(release,)))


def tags(root: Path) -> list[str]:
    return [ref.tag for ref in Layout(root / "net").refs() if not ref.tag.startswith("sha256-")]


def run(*argv: str) -> int:
    return run_boundary(cli, argv, prog="artifacts", usage_code="CNV-2401")


def test_the_last_declared_target_seals_the_version(root, tmp_path):
    assert open_draft(root, "net", declared=KEYS).version == "1.0.0"
    first = add(root, tmp_path, "Ascend910B3")
    assert (first.sealed, first.missing) == (False, ("cpu",))
    assert tags(root) == ["draft-1.0.0", "draft-1.0.0-ascend910b3"]
    last = add(root, tmp_path, "cpu")
    assert (last.sealed, last.ref, last.targets) == (True, "net:1.0.0", ("ascend910b3", "cpu"))
    assert tags(root) == ["1.0.0", "1.0.0-ascend910b3", "1.0.0-cpu"]
    assert fsck(root).clean


def test_a_sealed_draft_has_the_digest_of_the_same_version_published_at_once(root, tmp_path):
    open_draft(root, "net", declared=KEYS)
    for key in KEYS:
        sealed = add(root, tmp_path, key)
    cpu = make_release(tmp_path / "b", target="cpu", soc="", backend="onnxruntime")
    whole = publish(tmp_path / "other", PublishRequest(name="net", targets=(make_release(tmp_path / "a"), cpu)))
    assert sealed.digest == whole.digest


def test_a_target_of_a_draft_can_be_replaced_and_one_of_a_version_can_not(root, tmp_path):
    open_draft(root, "net", declared=KEYS)
    add(root, tmp_path, "cpu", content=b"first try")
    add(root, tmp_path, "cpu", content=b"second try")
    add(root, tmp_path, "Ascend910B3")
    pull(root, "net:1.0.0-cpu", tmp_path / "out")
    assert (tmp_path / "out/net.om").read_bytes() == b"second try"
    with pytest.raises(RegistryError) as refusal:
        add(root, tmp_path, "cpu", content=b"third try")
    assert refusal.value.code == "CNV-9050"
    assert add(root, tmp_path, "cpu", content=b"second try").sealed


def test_a_draft_can_be_looked_at_and_pulled_before_it_is_sealed(root, tmp_path):
    open_draft(root, "net", declared=KEYS)
    add(root, tmp_path, "cpu")
    listed = list_models(Registry(root))[0]
    assert (listed.versions, [draft.ref for draft in listed.drafts]) == ((), ["net:draft-1.0.0"])
    assert show(root, parse_ref("net:draft-1.0.0")).targets[0].target == "cpu"
    assert pull(root, "net:draft-1.0.0", tmp_path / "out").main == "net.om"
    with pytest.raises(RegistryError):
        promote(root, "net:draft-1.0.0", Move(channel="candidate", actor="wei"))


def test_two_machines_that_open_the_same_version_declare_together(root, tmp_path):
    open_draft(root, "net", version="2.0.0", declared=("cpu",))
    assert open_draft(root, "net", version="2.0.0", declared=("MLU370-X4",)).declared == ("cpu", "mlu370-x4")
    assert not add(root, tmp_path, "cpu", version="2.0.0").sealed


def test_drafts_without_a_version_take_different_ones(root):
    assert [open_draft(root, "net", declared=("cpu",)).version for _ in range(2)] == ["1.0.0", "1.0.1"]


def test_a_nightly_draft_with_nothing_new_gives_the_old_version_back(root, tmp_path):
    for _ in range(2):
        version = open_draft(root, "net", declared=KEYS).version
        sealed = [add(root, tmp_path, key, version=version) for key in KEYS][-1]
        assert (sealed.sealed, sealed.version) == (True, "1.0.0")
    assert tags(root) == ["1.0.0", "1.0.0-ascend910b3", "1.0.0-cpu"]


def test_targets_added_at_the_same_time_are_all_there(root, tmp_path):
    keys = ["cpu", *(f"Ascend910B{number}" for number in range(1, 5))]
    open_draft(root, "net", declared=tuple(keys))
    children = []
    for key in keys:
        child = os.fork()
        if child == 0:
            try:
                add(root, tmp_path, key)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    assert list_models(Registry(root))[0].versions[0].targets == tuple(sorted(key.lower() for key in keys))


def test_killed_at_every_step_a_draft_is_open_or_sealed(root, tmp_path):
    open_draft(root, "net", declared=KEYS)
    add(root, tmp_path, "Ascend910B3")
    step, code = 0, KILLED
    while code == KILLED:
        step += 1
        code = run_killed_at(step, lambda: add(root, tmp_path, "cpu"))
        assert fsck(root).clean
        assert [tag for tag in tags(root) if tag in ("draft-1.0.0", "1.0.0")] in (["draft-1.0.0"], ["1.0.0"])
    assert "1.0.0" in tags(root)


def test_sealing_early_records_who_and_why_and_what_is_missing(root, tmp_path):
    open_draft(root, "net", declared=KEYS)
    with pytest.raises(RegistryError) as refusal:
        seal(root, "net", "1.0.0", actor="wei", reason="no card")
    assert refusal.value.code == "CNV-9052"
    add(root, tmp_path, "cpu")
    sealed = seal(root, "net", "1.0.0", actor="wei", reason="no card")
    layout = Layout(root / "net")
    layer = find_attachments(layout, layout.refs(), sealed.digest, "seal")[0].image.layers[0]
    record = json.loads(layout.read_blob(layer.digest, "seal.json"))
    assert (record["actor"], record["reason"], record["missing"]) == ("wei", "no card", ["ascend910b3"])
    with pytest.raises(RegistryError) as refusal:
        seal(root, "net", "1.0.0", actor="wei", reason="again")
    assert refusal.value.code == "CNV-9051"
    with pytest.raises(RegistryError) as refusal:
        open_draft(root, "net", version="1.0.0", declared=("cpu",))
    assert refusal.value.code == "CNV-9050"


def test_an_imported_artifact_is_marked_ungated_and_kept_out_of_prod(root, tmp_path):
    release = make_release(tmp_path / "a")
    files = (tmp_path / "a/net.om",)
    request = ImportRequest(
        files=files, reports=(tmp_path / "a/support.json",), name="theirs", target="Ascend910B", soc="Ascend910B3"
    )
    done = import_files(root, request)
    shown = show(root, parse_ref("theirs")).targets[0]
    assert (shown.verdict, shown.ran_on, shown.backend, shown.manifest.files) == (
        "ungated",
        "none",
        "imported",
        release.manifest.files,
    )
    assert import_files(root, request).already
    assert pull(root, done.ref, tmp_path / "out").files == ("manifest.json", "net.om", "support.json")
    with pytest.raises(RegistryError, match="is ungated"):
        promote(root, "theirs", Move(channel="staging", actor="wei"))


@pytest.mark.parametrize("change", [{"files": ()}, {"source": "md5:1"}, {"reports": (Path("x/net.om"),)}])
def test_a_senseless_import_is_a_usage_error(root, tmp_path, change):
    make_release(tmp_path / "a")
    fields = {"files": (tmp_path / "a/net.om",), "name": "net", "target": "cpu", **change}
    with pytest.raises(UsageError) as refusal:
        import_files(root, ImportRequest(**fields))
    assert refusal.value.code == "CNV-2407"


def test_a_missing_file_is_not_imported(root, tmp_path):
    with pytest.raises(RegistryError) as refusal:
        import_files(root, ImportRequest(files=(tmp_path / "none.om",), name="net", target="cpu"))
    assert refusal.value.code == "CNV-9004"


def test_attaching_adds_beside_and_changes_nothing(root, tmp_path):
    publish(root, PublishRequest(name="net", targets=(make_release(tmp_path / "a"),)))
    before = Layout(root / "net").find("1.0.0")
    (tmp_path / "latency.json").write_text('{"p99": 4.2}')
    done = attach(root, "net", [tmp_path / "latency.json"], artifact_type="latency")
    again = attach(root, "net", [tmp_path / "latency.json"], artifact_type="latency")
    assert (done.tag, done.artifact_type) == (again.tag, "application/vnd.io.model-convert.latency")
    assert done.subject == before.digest == Layout(root / "net").find("1.0.0").digest
    on_target = attach(root, "net", [tmp_path / "latency.json"], artifact_type="text/csv", target="Ascend910B3")
    assert on_target.subject == Layout(root / "net").find("1.0.0-ascend910b3").digest
    assert fsck(root).clean


@pytest.mark.parametrize("kind", ["", "Latency Report", "../x", "a/b/c"])
def test_a_type_that_is_none_is_a_usage_error(root, tmp_path, kind):
    publish(root, PublishRequest(name="net", targets=(make_release(tmp_path / "a"),)))
    with pytest.raises(UsageError) as refusal:
        attach(root, "net", [tmp_path / "a/run.json"], artifact_type=kind)
    assert refusal.value.code == "CNV-2406"


def test_the_commands_import_attach_and_seal(root, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CONVERT_REGISTRY", str(root))
    make_release(tmp_path / "a")
    om = str(tmp_path / "a/net.om")
    assert run("import", om, "--name", "net", "--target", "cpu", "--toolchain", "atc=8.0", "--json") == 0
    assert json.loads(capsys.readouterr().out)["ref"] == "net:1.0.0"
    assert run("attach", "net", str(tmp_path / "a/run.json"), "--type", "bench") == 0
    open_draft(root, "net", version="2.0.0", declared=KEYS)
    add(root, tmp_path, "cpu", version="2.0.0")
    assert run("list") == 0
    assert "2.0.0 (draft)" in capsys.readouterr().out
    assert run("seal", "net", "2.0.0", "--reason", "no card", "--json") == 0
    assert json.loads(capsys.readouterr().out)["missing"] == ["ascend910b3"]
    assert run("import", om, "--name", "net", "--target", "cpu", "--toolchain", "atc") == 2
    assert sha256_bytes(b"weights") == show(root, parse_ref("net:1.0.0")).targets[0].manifest.model.sha256
