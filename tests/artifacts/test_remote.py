"""Pushing to and pulling from OCI registries: Debian's docker-registry, and a scripted one that misbehaves."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from fake_registry import Handler, Server, once
from store_kit import make_release

from artifacts.__main__ import cli
from artifacts.archive import export_archive, import_archive
from artifacts.channels import Move, channel_log, promote
from artifacts.cli import run_boundary
from artifacts.digest import sha256_bytes
from artifacts.errors import RegistryError, UsageError
from artifacts.fsck import fsck
from artifacts.http_options import HttpOptions
from artifacts.keys import generate_key, load_private_key, load_public_key
from artifacts.layout import Layout
from artifacts.listing import list_models
from artifacts.place import copy, publish_remote, pull_remote
from artifacts.publish import PublishRequest, publish
from artifacts.registry import Registry
from artifacts.remote import Remote, parse_address
from artifacts.remote_auth import Credentials, find_credentials, may_send_to, parse_challenge
from artifacts.signing import sign_ref
from artifacts.transfer import push
from artifacts.trust import Trust, check_ref
from artifacts.verify import verify_folder, verify_ref

WEIGHTS = b"weights " * 40_000


@pytest.fixture(autouse=True)
def plain_environment(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("CONVERT_", "REGISTRY_AUTH")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("CONVERT_TRUST", str(tmp_path / "trust"))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr("artifacts.remote_http.time.sleep", lambda _: None)


@pytest.fixture
def root(tmp_path) -> Path:
    cpu = make_release(tmp_path / "cpu", content=WEIGHTS, target="cpu", soc="", backend="onnxruntime")
    publish(
        tmp_path / "reg", PublishRequest(name="net", version="1.0.0", targets=(make_release(tmp_path / "npu"), cpu))
    )
    return tmp_path / "reg"


@pytest.fixture
def server():
    made = Server()
    yield made
    made.shutdown()
    made.server_close()


def push_net(root: Path, host: str, tag: str = "1.0.0"):
    with Remote(parse_address(f"oci://{host}/zoo/net")) as remote:
        return push(Layout(root / "net"), (tag,), remote)


# ------------------------------------------------------------------------------------------------- a real registry


def test_a_version_goes_to_a_registry_and_back_with_the_same_digests(root, tmp_path, registry_url):
    first = push_net(root, registry_url)
    assert (first.already, push_net(root, registry_url).already) == (False, True)
    copy(f"oci://{registry_url}/zoo/net:1.0.0", "net", tmp_path / "back")
    ours = {ref.tag: ref.descriptor.digest for ref in Layout(root / "net").refs()}
    theirs = {ref.tag: ref.descriptor.digest for ref in Layout(tmp_path / "back/net").refs()}
    assert theirs == ours
    assert fsck(tmp_path / "back").clean
    verify_ref(tmp_path / "back", "net:1.0.0")


def test_a_target_is_pulled_from_a_registry_into_a_verified_folder(root, tmp_path, registry_url):
    push_net(root, registry_url)
    pulled = pull_remote(f"oci://{registry_url}/zoo", "net", tmp_path / "out", target="cpu")
    assert (pulled.version, pulled.files) == (
        "1.0.0",
        ("manifest.json", "net.om", "report.html", "run.json", "support.json"),
    )
    assert (tmp_path / "out/net.om").read_bytes() == WEIGHTS
    assert verify_folder(tmp_path / "out").ok
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert pull_remote(f"oci://{registry_url}/zoo", f"net@{pulled.digest}", tmp_path / "out").already


def test_signatures_and_history_travel_with_a_channel(root, tmp_path, registry_url):
    generate_key(tmp_path / "k")
    key = load_private_key(tmp_path / "k.key")
    sign_ref(root, "net", key)
    promote(root, "net", Move(channel="prod", actor="wei"), key)
    push_net(root, registry_url, "prod")
    copy(f"oci://{registry_url}/zoo/net:prod", "net", tmp_path / "back")
    trust = Trust((load_public_key(tmp_path / "k.pub"),), "enforce")
    assert {check.state for check in check_ref(tmp_path / "back", "net:prod", trust)} == {"verified"}
    log = channel_log(tmp_path / "back", "net", "prod", trust.keys)
    assert (log.problems, [item.signature for item in log.events]) == ((), ["verified"])
    pulled = pull_remote(f"oci://{registry_url}/zoo", "net:prod", tmp_path / "out", target="cpu", trust=trust)
    assert "signature.sigstore.json" in pulled.files


def test_referrers_are_kept_under_the_fallback_tag_of_a_registry_without_the_api(root, registry_url):
    push_net(root, registry_url)
    subject = Layout(root / "net").find("1.0.0-cpu").digest
    with Remote(parse_address(f"oci://{registry_url}/zoo/net")) as remote:
        assert [item.media_type for item in remote.referrers(subject)] == ["application/vnd.oci.image.manifest.v1+json"]
        assert remote.find_manifest(subject.replace(":", "-")) is not None


def test_garbage_collection_of_the_registry_deletes_nothing_of_ours(root, tmp_path, registry_url):
    generate_key(tmp_path / "k")
    sign_ref(root, "net", load_private_key(tmp_path / "k.key"))
    promote(root, "net", Move(channel="prod", actor="wei"))
    push_net(root, registry_url, "prod")
    config = str(tmp_path / "registry.yml")
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "none"}
    argv = ["docker-registry", "garbage-collect", "-m", config]
    subprocess.run(argv, env=environment, capture_output=True, check=True)
    copy(f"oci://{registry_url}/zoo/net:prod", "net", tmp_path / "back")
    ours = {ref.tag: ref.descriptor.digest for ref in Layout(root / "net").refs()}
    kept = {tag: digest for tag, digest in ours.items() if not tag.startswith("1.0.0")}
    assert kept.items() <= {ref.tag: ref.descriptor.digest for ref in Layout(tmp_path / "back/net").refs()}.items()
    verify_ref(tmp_path / "back", "net:prod")


def test_publishing_into_a_registry_follows_the_same_rules(tmp_path, registry_url):
    address = f"oci://{registry_url}/zoo"

    def publish_content(content: bytes, version: str = "") -> str:
        request = PublishRequest(name="net", version=version, targets=(make_release(tmp_path / "a", content=content),))
        return publish_remote(address, request, tmp_path / f"work{time.monotonic_ns()}").version

    assert [publish_content(content) for content in (b"one", b"two", b"one")] == ["1.0.0", "1.0.1", "1.0.0"]
    with pytest.raises(RegistryError) as refusal:
        publish_content(b"three", "1.0.0")
    assert refusal.value.code == "CNV-9009"


def test_a_version_that_is_there_with_other_content_is_refused(root, tmp_path, registry_url):
    push_net(root, registry_url)
    other = make_release(tmp_path / "other", content=b"other")
    publish(tmp_path / "reg2", PublishRequest(name="net", version="1.0.0", targets=(other,)))
    with pytest.raises(RegistryError) as refusal:
        push_net(tmp_path / "reg2", registry_url)
    assert refusal.value.code == "CNV-9065"
    with pytest.raises(RegistryError) as refusal:
        copy(f"oci://{registry_url}/zoo/net:1.0.0", "net", tmp_path / "reg2")
    assert refusal.value.code == "CNV-9065"
    assert fsck(tmp_path / "reg2").clean


def test_the_commands_push_copy_show_verify_and_pull(root, tmp_path, registry_url, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    at = f"oci://{registry_url}/zoo"
    for line in (
        f"push net:1.0.0 {at} --registry {root}",
        f"show net --registry {at}",
        f"verify net:1.0.0 --registry {at}",
        f"verify net@{Layout(root / 'net').find('1.0.0-cpu').digest} --registry {at}",
        f"pull net out --target cpu --registry {at}",
        f"copy {at}/net:1.0.0 oci-archive:net.tar",
        "copy oci-archive:net.tar copied --registry back",
        "verify copied:1.0.0 --registry back",
        "fsck --registry back",
    ):
        assert run_boundary(cli, line.split(), prog="artifacts", usage_code="CNV-2401") == 0, capsys.readouterr().err
    assert run_boundary(cli, ["show", "net:9.9.9", "--registry", at], prog="artifacts", usage_code="CNV-2401") == 9


def test_a_channel_never_moves_back_by_a_push_or_copy_of_an_older_state(root, tmp_path, server):
    at = f"oci://{server.host}/zoo/net"
    promote(root, "net", Move(channel="prod", actor="wei"))
    push_net(root, server.host, "prod")
    copy(f"{at}:prod", "net", tmp_path / "other")
    publish(root, PublishRequest(name="net", targets=(make_release(tmp_path / "new", content=b"new"),)))
    newer = promote(root, "net:1.0.1", Move(channel="prod", actor="wei", waive=("targets",), reason="x"))
    push_net(root, server.host, "prod")
    with pytest.raises(RegistryError) as refusal:
        push_net(tmp_path / "other", server.host, "prod")
    assert refusal.value.code == "CNV-9067"
    with pytest.raises(RegistryError) as refusal:
        copy(f"oci-archive:{_archive(tmp_path / 'other', tmp_path)}", "net", root)
    assert refusal.value.code == "CNV-9067"
    copy(f"{at}:prod", "net", tmp_path / "other")
    assert channel_log(tmp_path / "other", "net", "prod").head == newer.event


def test_two_promotions_of_the_same_number_can_not_both_be_pushed(root, tmp_path, server):
    promote(root, "net", Move(channel="prod", actor="wei"))
    copy("net:1.0.0", f"oci-archive:{tmp_path / 'a.tar'}", root)
    copy(f"oci-archive:{tmp_path / 'a.tar'}", "net", tmp_path / "other")
    promote(tmp_path / "other", "net", Move(channel="prod", actor="eve"))
    push_net(root, server.host, "prod")
    with pytest.raises(RegistryError, match="event-prod-000001 is there with other content"):
        push_net(tmp_path / "other", server.host, "prod")


def _archive(root: Path, tmp_path: Path) -> Path:
    copy("net:prod", f"oci-archive:{tmp_path / 'old.tar'}", root)
    return tmp_path / "old.tar"


# --------------------------------------------------------------------------------------------- a registry that fails


def test_all_goes_well_with_the_scripted_registry(root, tmp_path, server):
    push_net(root, server.host)
    assert pull_remote(f"oci://{server.host}/zoo", "net", tmp_path / "out", target="cpu").main == "net.om"


def pull_cpu(server: Server, tmp_path: Path, **options: object):
    return pull_remote(f"oci://{server.host}/zoo", "net:1.0.0-cpu", tmp_path / "out", options=HttpOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_passing_faults_are_tried_again(root, tmp_path, server, status):
    push_net(root, server.host)
    server.faults = [once("GET .*/blobs/", lambda handler: handler.answer(status, Retry_After="1")) for _ in range(2)]
    pull_cpu(server, tmp_path)


def test_a_fault_that_stays_is_told_with_the_registry_s_words(root, tmp_path, server):
    push_net(root, server.host)
    body = json.dumps({"errors": [{"code": "TOOMANY", "message": "come back \x1b tomorrow"}]}).encode()
    server.faults = [once("GET .*/blobs/", lambda handler: handler.answer(503, body), times=99)]
    with pytest.raises(RegistryError, match=r"answered 503 .*TOOMANY come back") as refusal:
        pull_cpu(server, tmp_path)
    assert refusal.value.code == "CNV-9062"


def half_then_drop(handler: Handler) -> bool:
    data = handler.server.blobs[handler.path.rsplit("/", 1)[1]]
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2])
    handler.wfile.flush()
    return handler.drop()


def big_blob(server: Server) -> str:
    return next(digest for digest, data in server.blobs.items() if data == WEIGHTS)


def test_a_download_that_breaks_goes_on_where_it_stopped(root, tmp_path, server):
    push_net(root, server.host)
    ranges = []
    server.faults = [
        once(f"GET .*{big_blob(server)}", half_then_drop),
        once(f"GET .*{big_blob(server)}", lambda handler: bool(ranges.append(handler.headers.get("Range")))),
    ]
    pull_cpu(server, tmp_path)
    assert ranges == [f"bytes={len(WEIGHTS) // 2}-"]
    assert (tmp_path / "out/net.om").read_bytes() == WEIGHTS


@pytest.mark.parametrize("part", [WEIGHTS[:1000], b"x" * 1000, WEIGHTS + b"more", WEIGHTS])
def test_a_pull_goes_on_from_an_earlier_run_and_does_not_trust_what_it_left(root, tmp_path, server, part):
    push_net(root, server.host)
    server.faults = [once(f"GET .*{big_blob(server)}", lambda handler: handler.drop(), times=9)]
    with pytest.raises(RegistryError):
        pull_cpu(server, tmp_path)
    work = next(path for path in tmp_path.iterdir() if path.name.startswith(".model-convert-pull"))
    left = work / f"net/.tmp/{big_blob(server)[7:]}.part"
    left.write_bytes(part)
    server.faults = []
    pull_cpu(server, tmp_path)
    assert (tmp_path / "out/net.om").read_bytes() == WEIGHTS
    assert not work.exists()


def test_a_finished_file_of_an_earlier_run_is_hashed_again(root, tmp_path, server):
    push_net(root, server.host)
    server.faults = [once("GET .*/referrers/", lambda handler: handler.drop(), times=9)]
    with pytest.raises(RegistryError):
        pull_cpu(server, tmp_path)
    work = next(path for path in tmp_path.iterdir() if path.name.startswith(".model-convert-pull"))
    (work / f"net/blobs/sha256/{big_blob(server)[7:]}").write_bytes(b"z" * len(WEIGHTS))
    server.faults = []
    pull_cpu(server, tmp_path)
    assert (tmp_path / "out/net.om").read_bytes() == WEIGHTS


@pytest.mark.parametrize("place", ["http://[bad", "https://a b/\x00", "", "ftp://x/", "//"])
def test_addresses_that_are_none_are_clear_errors(root, tmp_path, server, place):
    push_net(root, server.host)
    server.faults = [once("GET .*/blobs/", lambda handler: handler.answer(307, Location=place), times=9)]
    with pytest.raises(RegistryError) as refusal:
        pull_cpu(server, tmp_path)
    assert refusal.value.code in ("CNV-9062", "CNV-9060")
    realm = f'Bearer realm="https://[{place}"'
    server.faults = [once("GET .*/blobs/", lambda handler: handler.answer(401, WWW_Authenticate=realm), times=9)]
    with pytest.raises(RegistryError):
        pull_cpu(server, tmp_path)


def test_a_server_that_ignores_ranges_is_read_from_the_start(root, tmp_path, server):
    push_net(root, server.host)

    def whole(handler: Handler) -> bool:
        handler.answer(200, handler.server.blobs[big_blob(server)])
        return True

    server.faults = [once(f"GET .*{big_blob(server)}", half_then_drop), once(f"GET .*{big_blob(server)}", whole)]
    pull_cpu(server, tmp_path)
    assert (tmp_path / "out/net.om").read_bytes() == WEIGHTS


def test_a_range_that_is_refused_starts_again(root, tmp_path, server):
    push_net(root, server.host)
    server.faults = [
        once(f"GET .*{big_blob(server)}", half_then_drop),
        once(f"GET .*{big_blob(server)}", lambda handler: handler.answer(416)),
    ]
    pull_cpu(server, tmp_path)
    assert (tmp_path / "out/net.om").read_bytes() == WEIGHTS


@pytest.mark.parametrize("content", [b"y" * len(WEIGHTS), WEIGHTS[:-1], WEIGHTS + b"x", b""])
def test_other_content_than_the_digest_says_is_never_pulled(root, tmp_path, server, content):
    push_net(root, server.host)
    server.blobs[big_blob(server)] = content
    with pytest.raises(RegistryError) as refusal:
        pull_cpu(server, tmp_path)
    assert refusal.value.code == "CNV-9063"
    assert not (tmp_path / "out").exists()


def test_a_manifest_with_other_content_than_its_digest_is_refused(root, tmp_path, server):
    push_net(root, server.host)
    digest = Layout(root / "net").find("1.0.0-cpu").digest
    data, kind = server.manifests[digest]
    server.manifests[digest] = (data + b" ", kind)
    with pytest.raises(RegistryError) as refusal:
        pull_remote(f"oci://{server.host}/zoo", f"net@{digest}", tmp_path / "out")
    assert refusal.value.code == "CNV-9063"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"schemaVersion":2}', b"x" * (5 << 20)])
def test_answers_that_are_no_manifests_are_clear_errors(root, tmp_path, server, data):
    push_net(root, server.host)
    server.manifests["1.0.0-cpu"] = (data, "application/vnd.oci.image.manifest.v1+json")
    with pytest.raises(RegistryError) as refusal:
        pull_cpu(server, tmp_path)
    assert refusal.value.code in ("CNV-9008", "CNV-9062")


def test_an_upload_that_breaks_is_begun_again(root, server):
    server.faults = [
        once("PUT /v2/uploads", lambda handler: handler.drop()),
        once("PUT /v2/uploads", lambda handler: handler.answer(500)),
    ]
    push_net(root, server.host)
    assert big_blob(server)


def test_a_second_push_sends_nothing(root, server):
    push_net(root, server.host)
    server.seen.clear()
    assert push_net(root, server.host).uploaded == 0
    assert server.requests("PUT", "") == []


def test_blobs_of_another_repository_are_mounted(root, server):
    push_net(root, server.host)
    kept = dict(server.blobs)
    server.faults = [once("HEAD .*/blobs/", lambda handler: handler.answer(404), times=99)]
    server.manifests.clear()
    server.seen.clear()
    with Remote(parse_address(f"oci://{server.host}/other/net")) as remote:
        done = push(Layout(root / "net"), ("1.0.0",), remote, mount_from="zoo/net")
    assert (done.uploaded, server.blobs) == (0, kept)


def test_where_mounting_is_refused_the_blob_is_uploaded(root, server):
    with Remote(parse_address(f"oci://{server.host}/other/net")) as remote:
        done = push(Layout(root / "net"), ("1.0.0",), remote, mount_from="zoo/net")
    assert done.uploaded >= len(WEIGHTS)


def test_a_tag_that_moves_right_after_it_was_pushed_is_noticed(root, server):
    def overwrite(handler: Handler) -> bool:
        handler.server.manifests["1.0.0"] = (b"{}", "application/vnd.oci.image.index.v1+json")
        handler.answer(201)
        return True

    server.faults = [once("PUT .*/manifests/1.0.0$", overwrite)]
    with pytest.raises(RegistryError, match="right after it was pushed") as refusal:
        push_net(root, server.host)
    assert refusal.value.code == "CNV-9065"


def test_a_rule_that_makes_tags_immutable_is_told(root, server):
    server.faults = [
        once(
            "PUT .*/manifests/",
            lambda handler: handler.answer(412, b'{"errors":[{"code":"DENIED","message":"immutable"}]}'),
        )
    ]
    with pytest.raises(RegistryError, match=r"412 .*immutable"):
        push_net(root, server.host)


def test_a_registry_that_keeps_subjects_gets_no_fallback_tag(root, server):
    server.keeps_subjects = True
    push_net(root, server.host)
    assert [name for name in server.manifests if name.startswith("sha256-") and "." not in name] == []


def test_another_client_that_overwrites_the_fallback_tag_does_not_win(root, server):
    empty = json.dumps(
        {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []}
    ).encode()
    subject = Layout(root / "net").find("1.0.0-cpu").digest.replace(":", "-")

    def lose(handler: Handler) -> bool:
        handler.server.manifests[subject] = (empty, "application/vnd.oci.image.index.v1+json")
        handler.answer(201)
        return True

    server.faults = [once(f"PUT .*/manifests/{subject}$", lose)]
    push_net(root, server.host)
    assert len(json.loads(server.manifests[subject][0])["manifests"]) == 1


# ----------------------------------------------------------------------------------------------- logging in, hosts


def ask_for_basic(handler: Handler) -> bool:
    expected = "Basic " + base64.b64encode(b"wei:secret").decode()
    if handler.headers.get("Authorization") == expected:
        return False
    handler.answer(401, WWW_Authenticate='Basic realm="r"')
    return True


def test_basic_credentials_come_from_the_docker_file(root, tmp_path, server):
    server.faults = [ask_for_basic]
    with pytest.raises(RegistryError, match="without credentials") as refusal:
        push_net(root, server.host)
    assert refusal.value.code == "CNV-9061"
    (tmp_path / "docker").mkdir()
    auth = base64.b64encode(b"wei:secret").decode()
    (tmp_path / "docker/config.json").write_text(json.dumps({"auths": {server.host: {"auth": auth}}}))
    push_net(root, server.host)


def test_wrong_credentials_are_told_without_showing_them(root, server, monkeypatch):
    monkeypatch.setenv("CONVERT_REGISTRY_USER", "wei")
    monkeypatch.setenv("CONVERT_REGISTRY_PASSWORD", "hunter2")
    server.faults = [ask_for_basic]
    with pytest.raises(RegistryError) as refusal:
        push_net(root, server.host)
    assert "hunter2" not in f"{refusal.value.message} {refusal.value.hint}"
    assert "hunter2" not in repr(Credentials(user="wei", password="hunter2"))


def bearer(server: Server, realm: str, tokens: list[str]):
    """Ask for a token that ``tokens`` holds, and give one out under ``/token``."""

    def fault(handler: Handler) -> bool:
        if handler.path.startswith("/token"):
            tokens.append(f"t{len(tokens)}")
            handler.answer(200, json.dumps({"token": tokens[-1]}).encode())
            return True
        if handler.headers.get("Authorization", "").removeprefix("Bearer ") in tokens:
            return False
        handler.answer(401, WWW_Authenticate=f'Bearer realm="{realm}",service="reg"')
        return True

    return fault


def test_a_token_is_fetched_once_per_scope_and_again_when_it_expires(root, server, monkeypatch):
    monkeypatch.setenv("CONVERT_REGISTRY_USER", "wei")
    monkeypatch.setenv("CONVERT_REGISTRY_PASSWORD", "secret")
    tokens: list[str] = []
    expire = once("PUT /v2/uploads", lambda handler: tokens.clear() or False)
    server.faults = [expire, bearer(server, f"http://{server.host}/token", tokens)]
    push_net(root, server.host)
    asked = server.requests("GET", "/token")
    assert 2 <= len(asked) <= 4
    assert set(asked) == {"Basic " + base64.b64encode(b"wei:secret").decode()}


def test_no_credentials_go_to_a_token_service_on_another_host_without_tls(root, server, monkeypatch):
    monkeypatch.setenv("CONVERT_REGISTRY_USER", "wei")
    server.faults = [bearer(server, "http://evil.example/token", [])]
    with pytest.raises(RegistryError, match="no credentials were sent") as refusal:
        push_net(root, server.host)
    assert refusal.value.code == "CNV-9061"


def test_a_redirect_to_storage_gets_no_credentials(root, tmp_path, server, monkeypatch):
    push_net(root, server.host)
    storage = Server()
    storage.blobs = dict(server.blobs)
    monkeypatch.setenv("CONVERT_REGISTRY_USER", "wei")
    monkeypatch.setenv("CONVERT_REGISTRY_PASSWORD", "secret")

    def redirect(handler: Handler) -> bool:
        handler.answer(307, Location=f"http://{storage.host}{handler.path}")
        return True

    server.faults = [ask_for_basic, once("GET .*/blobs/", redirect, times=99)]
    pull_cpu(server, tmp_path)
    assert set(storage.requests("GET", "/blobs/")) == {""}
    storage.shutdown()
    storage.server_close()


def test_redirects_in_circles_end(root, tmp_path, server):
    push_net(root, server.host)
    server.faults = [once("GET .*/blobs/", lambda handler: handler.answer(307, Location=handler.path), times=99)]
    with pytest.raises(RegistryError, match="in circles"):
        pull_cpu(server, tmp_path)


def test_a_host_that_is_down_is_told_within_15_seconds(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
        begin = time.monotonic()
        with pytest.raises(RegistryError) as refusal:
            pull_remote(f"oci://{host}/zoo", "net", tmp_path / "out")
        assert time.monotonic() - begin < 15
    assert (refusal.value.code, refusal.value.exit_code) == ("CNV-9060", 9)


def test_a_deadline_ends_a_registry_that_never_gets_better(root, tmp_path, server):
    push_net(root, server.host)
    server.faults = [once("GET ", lambda handler: handler.answer(503, Retry_After="30"), times=99)]
    with pytest.raises(RegistryError) as refusal:
        pull_cpu(server, tmp_path, deadline=5.0)
    assert refusal.value.code == "CNV-9064"


@pytest.mark.parametrize(
    "text",
    [
        "oci://",
        "http://h/x",
        "oci://h/UPPER",
        "oci://u:p@h/x",
        "oci://h/x:a b",
        "oci://h/../x",
        "oci://h/x?y=1",
        "oci://h\n/x",
    ],
)
def test_bad_addresses_are_usage_errors(text):
    with pytest.raises(UsageError) as refusal:
        parse_address(text)
    assert refusal.value.code == "CNV-2430"


@pytest.mark.parametrize("text", ["oci://h", "oci://h:5000/a/b", "oci://[::1]:5000/a:1.0.0"])
def test_addresses_print_as_they_were_read(text):
    assert str(parse_address(text)) == text


def test_credentials_are_looked_up_by_exact_host(tmp_path, monkeypatch):
    (tmp_path / "docker").mkdir()
    auth = base64.b64encode(b"u:p:q").decode()
    auths = {"https://h.example:5000/v2/": {"auth": auth}, "bad": {"auth": "%%"}, "odd": 3}
    (tmp_path / "docker/config.json").write_text(json.dumps({"auths": auths}))
    assert find_credentials("h.example:5000") == Credentials(user="u", password="p:q")
    assert [find_credentials(host) for host in ("h.example", "bad", "odd", "x.h.example:5000")] == [None] * 4
    (tmp_path / "token").write_text("abc\n")
    monkeypatch.setenv("CONVERT_REGISTRY_TOKEN_FILE", str(tmp_path / "token"))
    assert find_credentials("any") == Credentials(token="abc")
    monkeypatch.delenv("CONVERT_REGISTRY_TOKEN_FILE")
    (tmp_path / "docker/config.json").write_text("{")
    with pytest.raises(UsageError) as refusal:
        find_credentials("h.example")
    assert refusal.value.code == "CNV-2431"


@pytest.mark.parametrize(
    ("realm", "plain", "allowed"),
    [
        ("https://auth.example/t", False, True),
        ("http://auth.example/t", False, False),
        ("http://reg.example/t", False, False),
        ("http://reg.example/t", True, True),
        ("http://auth.example/t", True, False),
        ("r", True, False),
        ("", False, False),
    ],
)
def test_where_credentials_may_go(realm, plain, allowed):
    assert may_send_to(realm, "reg.example:5000", plain=plain) is allowed


def test_a_challenge_is_read_whatever_its_order():
    found = parse_challenge('Bearer scope="a b",realm="https://x/t",service="s",junk')
    assert (found.scheme, found.realm, found.service, found.scope) == ("bearer", "https://x/t", "s", "a b")
    assert parse_challenge("").scheme == ""


def test_a_ca_bundle_that_is_none_is_a_usage_error(tmp_path):
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(UsageError) as refusal:
        Remote(parse_address("oci://h.example/x"), HttpOptions(ca=tmp_path / "ca.pem"))
    assert refusal.value.code == "CNV-2432"


def test_other_machines_are_reached_by_tls_alone(monkeypatch):
    seen = []

    def refuse(self: httpx.Client, request: httpx.Request, **_: object) -> httpx.Response:
        seen.append(str(request.url))
        raise httpx.ConnectError("no", request=request)

    monkeypatch.setattr(httpx.Client, "send", refuse)
    for options in (HttpOptions(), HttpOptions(insecure_http=True)):
        with pytest.raises(RegistryError), Remote(parse_address("oci://h.example/x"), options) as remote:
            remote.tags()
    assert {url.split(":")[0] for url in seen[:2]} == {"https"}
    assert {url.split(":")[0] for url in seen[2:]} == {"http"}


# ---------------------------------------------------------------------------------------------------------- archives


def test_an_archive_carries_everything_and_is_the_same_each_time(root, tmp_path):
    promote(root, "net", Move(channel="prod", actor="wei"))
    for name in ("a.tar", "b.tar"):
        copy("net", f"oci-archive:{tmp_path / name}", root, everything=True)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    copy(f"oci-archive:{tmp_path / 'a.tar'}", "net", tmp_path / "back")
    assert channel_log(tmp_path / "back", "net", "prod").problems == ()
    ours = {ref.tag: ref.descriptor.digest for ref in Layout(root / "net").refs()}
    assert {ref.tag: ref.descriptor.digest for ref in Layout(tmp_path / "back/net").refs()} == ours
    assert fsck(tmp_path / "back").clean


def test_a_model_is_copied_under_another_name_with_its_files_linked(root):
    copy("net:1.0.0", "other", root)
    assert [model.name for model in list_models(Registry(root))] == ["net", "other"]
    digest = Layout(root / "net").find("1.0.0-cpu").digest
    assert Layout(root / "other").blob_path(digest).exists()
    verify_ref(root, "other:1.0.0")
    with pytest.raises(UsageError) as refusal:
        copy("net", "net", root)
    assert refusal.value.code == "CNV-2433"


def damaged(path: Path, old: bytes, new: bytes) -> Path:
    path.write_bytes(path.read_bytes().replace(old, new))
    return path


@pytest.mark.parametrize(
    "change",
    [(b"weights weights", b"weights WEIGHTS"), (b"index.json", b"index.jsom"), (b"schemaVersion", b"schemaVersiom")],
)
def test_a_damaged_archive_brings_nothing_in(root, tmp_path, change):
    export_archive(Layout(root / "net"), "net", ("1.0.0",), tmp_path / "a.tar")
    damaged(tmp_path / "a.tar", *change)
    with pytest.raises(RegistryError) as refusal:
        copy(f"oci-archive:{tmp_path / 'a.tar'}", "net", tmp_path / "back")
    assert refusal.value.code in ("CNV-9070", "CNV-9005")
    assert Layout(tmp_path / "back/net").refs() == ()


def test_a_cut_archive_and_other_files_are_refused(root, tmp_path):
    export_archive(Layout(root / "net"), "net", ("1.0.0",), tmp_path / "a.tar")
    data = (tmp_path / "a.tar").read_bytes()
    for number, content in enumerate((data[: len(data) // 2], b"no tar at all", b"")):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(content)
        layout = Layout(tmp_path / f"back{number}")
        layout.create()
        with pytest.raises(RegistryError) as refusal:
            import_archive(path, layout)
        assert refusal.value.code == "CNV-9070"
    with pytest.raises(RegistryError) as refusal:
        import_archive(tmp_path / "none.tar", layout)
    assert refusal.value.code == "CNV-9004"


def test_an_archive_can_not_write_outside_the_layout(root, tmp_path):
    import io
    import tarfile

    export_archive(Layout(root / "net"), "net", ("1.0.0",), tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar", "a") as tar:
        for name in ("../evil", "blobs/sha256/../../evil", "/tmp/evil-of-test"):
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"evil"))
        link = tarfile.TarInfo(f"blobs/sha256/{'0' * 64}")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    copy(f"oci-archive:{tmp_path / 'a.tar'}", "net", tmp_path / "back")
    assert list(tmp_path.rglob("evil*")) == []
    assert not Layout(tmp_path / "back/net").blob_path("sha256:" + "0" * 64).exists()


def test_a_tag_that_an_archive_lacks_is_told_with_those_it_has(root, tmp_path):
    export_archive(Layout(root / "net"), "net", ("1.0.0",), tmp_path / "a.tar")
    with pytest.raises(RegistryError, match=r"has no 2\.0\.0; it has: 1\.0\.0-ascend910b3") as refusal:
        copy(f"oci-archive:{tmp_path / 'a.tar'}:2.0.0", "net", tmp_path / "back")
    assert refusal.value.code == "CNV-9002"


def test_a_manifest_that_the_registry_refuses_is_told_and_no_tag_moves(root, server):
    def refuse(handler) -> bool:
        if handler.command == "PUT" and "/manifests/" in handler.path:
            handler.answer(400, b'{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown to registry"}]}')
            return True
        return False

    server.faults.append(refuse)
    with pytest.raises(RegistryError, match="MANIFEST_BLOB_UNKNOWN blob unknown to registry") as caught:
        push_net(root, server.host)
    assert caught.value.code == "CNV-9062"
    assert server.manifests == {}
    server.faults.clear()
    assert not push_net(root, server.host).already


def test_what_a_registry_asks_to_wait_is_waited_within_limits(root, server, monkeypatch):
    waited: list[float] = []
    monkeypatch.setattr("artifacts.remote_http.time.sleep", waited.append)
    answers = iter(("7", "86400", "soon"))

    def busy(handler) -> bool:
        if (wait := next(answers, None)) is None:
            return False
        handler.answer(429, Retry_After=wait)
        return True

    server.faults.append(busy)
    assert not push_net(root, server.host).already
    assert waited[:3] == [7.0, 30.0, 2.0]


@pytest.mark.parametrize(("length", "whole"), [("3", False), ("99999999", True)])
def test_a_length_that_is_wrong_gives_the_right_file_or_none(root, tmp_path, server, length, whole):
    push_net(root, server.host)
    big = max(server.blobs.values(), key=len)

    def lie(handler) -> bool:
        if handler.command == "GET" and sha256_bytes(big) in handler.path:
            handler.answer(200, big, Content_Length=length)
            return handler.drop()
        return False

    server.faults.append(lie)
    with contextlib.nullcontext() if whole else pytest.raises(RegistryError, match=r"is not what|broke|other content"):
        pull_remote(f"oci://{server.host}/zoo", "net:1.0.0", tmp_path / "out", target="cpu")
    assert (tmp_path / "out").exists() is whole
    assert not whole or (tmp_path / "out" / "net.om").read_bytes() == big
