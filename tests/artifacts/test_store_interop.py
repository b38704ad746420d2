"""The printed commands and Debian's tools against our layouts: skopeo, umoci, jq, sha256sum, docker-registry."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from store_kit import make_release

from artifacts.fetch_commands import FetchCommands, fetch_commands, remote_fetch_commands
from artifacts.fsck import fsck
from artifacts.layout import Layout
from artifacts.listing import show
from artifacts.names import parse_ref
from artifacts.publish import PublishRequest, publish
from artifacts.verify import verify_ref

TOOLS = ("skopeo", "umoci", "jq", "docker-registry", "curl")
lost = [tool for tool in TOOLS if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(
    bool(lost) and not os.environ.get("CI"),
    reason=f"not installed: {', '.join(lost)} (make test installs them on Debian)",
)


@pytest.fixture
def root(tmp_path) -> Path:
    cpu = make_release(tmp_path / "cpu", content=b"for the cpu", target="cpu", soc="", backend="onnxruntime")
    targets = (make_release(tmp_path / "npu"), cpu)
    publish(tmp_path / "reg ist'ry", PublishRequest(name="zoo/net", version="1.0.0", targets=targets))
    return tmp_path / "reg ist'ry"


@pytest.fixture
def plain_root(tmp_path) -> Path:
    """A registry in a folder whose name has no character that is special to skopeo (a colon is)."""
    publish(
        tmp_path / "reg", PublishRequest(name="zoo/net", version="1.0.0", targets=(make_release(tmp_path / "npu"),))
    )
    return tmp_path / "reg"


def commands_of(root: Path, text: str) -> FetchCommands:
    return fetch_commands(root, show(root, parse_ref(text)).targets[0])


def sh(script: str, folder: Path, **environment: str) -> None:
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        ["sh", "-eu", "-c", script],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("tool", ["cp", "jq", "skopeo"])
def test_the_printed_commands_fetch_the_artifact_from_the_folder(root, plain_root, tmp_path, tool):
    used, out = (plain_root if tool == "skopeo" else root), tmp_path / "out"
    sh(getattr(commands_of(used, "zoo/net:1.0.0-ascend910b3"), tool), out)
    assert (out / "net-ascend910b3/net.om").read_bytes() == b"weights"
    assert (out / "net-ascend910b3/manifest.json").is_file()


def test_the_printed_curl_command_fetches_from_an_oci_registry(plain_root, tmp_path, registry_url):
    skopeo(
        "copy",
        "--dest-tls-verify=false",
        f"oci:{plain_root}/zoo/net:1.0.0-ascend910b3",
        f"docker://{registry_url}/zoo/net:1",
    )
    sh(commands_of(plain_root, "zoo/net:1.0.0-ascend910b3").curl, tmp_path / "out", REGISTRY=f"http://{registry_url}")
    assert (tmp_path / "out/net-ascend910b3/net.om").read_bytes() == b"weights"


@pytest.mark.parametrize("tool", ["curl", "skopeo"])
def test_the_commands_printed_for_an_oci_registry_fetch_from_it(plain_root, tmp_path, registry_url, tool):
    target = show(plain_root, parse_ref("zoo/net:1.0.0-ascend910b3")).targets[0]
    source = f"oci:{plain_root}/zoo/net:1.0.0-ascend910b3"
    skopeo("copy", "--dest-tls-verify=false", source, f"docker://{registry_url}/team/zoo/net:1.0.0-ascend910b3")
    script = getattr(remote_fetch_commands(f"oci://{registry_url}/team", target), tool)
    # The registry of this test speaks plain HTTP, which the printed commands don't expect.
    script = script.replace("skopeo copy", "skopeo copy --src-tls-verify=false")
    sh(script, tmp_path / "out", REGISTRY=f"http://{registry_url}")
    assert (tmp_path / "out/net-ascend910b3/net.om").read_bytes() == b"weights"


def test_the_printed_check_fails_on_other_content(root, tmp_path):
    script = commands_of(root, "zoo/net:1.0.0-cpu").cp.replace("\n(cd", "\necho other > net-cpu/net.om\n(cd")
    with pytest.raises(AssertionError, match="did NOT match"):
        sh(script, tmp_path / "out")


def skopeo(*argv: str) -> str:
    done = subprocess.run(["skopeo", "--insecure-policy", *argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_skopeo_copies_a_whole_version_to_a_registry_and_back_with_the_same_digests(plain_root, tmp_path, registry_url):
    url = f"docker://{registry_url}/zoo/net:1.0.0"
    skopeo("copy", "--all", "--dest-tls-verify=false", f"oci:{plain_root}/zoo/net:1.0.0", url)
    (tmp_path / "back/zoo").mkdir(parents=True)
    skopeo("copy", "--all", "--src-tls-verify=false", url, f"oci:{tmp_path}/back/zoo/net:1.0.0")
    ours, theirs = Layout(plain_root / "zoo/net"), Layout(tmp_path / "back/zoo/net")
    assert theirs.find("1.0.0").digest == ours.find("1.0.0").digest
    verify_ref(tmp_path / "back", "zoo/net:1.0.0")


def test_umoci_lists_our_tags_and_its_gc_keeps_all_we_refer_to(plain_root):
    layout = plain_root / "zoo/net"
    listed = subprocess.run(["umoci", "ls", "--layout", str(layout)], capture_output=True, text=True, check=True)
    assert set(listed.stdout.split()) == {ref.tag for ref in Layout(layout).refs()}
    subprocess.run(["umoci", "gc", "--layout", str(layout)], capture_output=True, check=True)
    assert fsck(plain_root).clean
    verify_ref(plain_root, "zoo/net")


def test_a_ref_that_skopeo_wrote_into_our_layout_is_kept(plain_root, tmp_path):
    layout = plain_root / "zoo/net"
    skopeo("copy", f"oci:{layout}:1.0.0-ascend910b3", f"oci:{layout}:theirs")
    late = make_release(tmp_path / "cpu", target="cpu", soc="", backend="onnxruntime")
    publish(plain_root, PublishRequest(name="zoo/net", version="1.0.0", targets=(late,)))
    assert {"theirs", "1.0.0", "1.0.0-r2"} <= {ref.tag for ref in Layout(layout).refs()}
    assert fsck(plain_root).clean
