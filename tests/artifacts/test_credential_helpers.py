"""Docker's credential helpers: asked safely, and never a reason to fail where no login is needed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from fake_registry import Server

from artifacts import remote_auth
from artifacts.errors import RegistryError
from artifacts.http_options import HttpOptions
from artifacts.remote import Remote, parse_address
from artifacts.remote_auth import Credentials, find_credentials

HOST = "harbor.example:8443"


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Write Docker's config.json, and a helper ``docker-credential-vault`` that runs a line of shell."""
    for name in ("USER", "PASSWORD", "TOKEN", "TOKEN_FILE"):
        monkeypatch.delenv(f"CONVERT_REGISTRY_{name}", raising=False)
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")

    def write(document: dict[str, object], script: str = "") -> Path:
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "config.json").write_text(json.dumps(document))
        helper = tmp_path / "bin" / "docker-credential-vault"
        helper.write_text(f"#!/bin/sh\n{script}\n")
        helper.chmod(0o755)
        return tmp_path

    return write


@pytest.fixture
def server():
    server = Server()
    yield server
    server.shutdown()
    server.server_close()


ANSWER = """
read -r host
[ "$1" = get ] || exit 3
printf '{"ServerURL":"%s","Username":"wei","Secret":"s:%s"}' "$host" "$host"
"""


def facts(found: Credentials | None) -> tuple[str, ...]:
    assert found is not None
    return found.user, found.password, found.renewal, found.problem


@pytest.mark.parametrize("document", [{"credHelpers": {HOST: "vault"}}, {"credsStore": "vault", "auths": {HOST: {}}}])
def test_a_helper_is_asked_for_the_host(config, document) -> None:
    config(document, ANSWER)
    assert facts(find_credentials(HOST)) == ("wei", f"s:{HOST}", "", "")


def test_a_helper_of_another_host_is_not_asked(config, tmp_path) -> None:
    config({"credHelpers": {"other.example": "vault"}}, f"touch {tmp_path}/asked")
    assert find_credentials(HOST) is None
    assert not (tmp_path / "asked").exists()


def test_a_helper_that_knows_nothing_leaves_the_plain_login(config) -> None:
    login = {"username": "u", "password": "p"}
    config({"credsStore": "vault", "auths": {HOST: login}}, "echo credentials not found in native keychain; exit 1")
    assert facts(find_credentials(HOST)) == ("u", "p", "", "")


@pytest.mark.parametrize(
    ("name", "script", "problem"),
    [
        ("absent", "", "the credential helper docker-credential-absent is not on PATH"),
        ("../../bin/evil", "", "the credential helper docker-credential-../../bin/evil is not on PATH"),
        ("vault", "exit 4", "the credential helper docker-credential-vault failed (4)"),
        ("vault", "echo '{\"Username\": 1}'", "the credential helper docker-credential-vault gave no credentials"),
        ("vault", "head -c 300000 /dev/zero", "the credential helper docker-credential-vault gave no credentials"),
        ("vault", "yes '[' | head -c 60000", "the credential helper docker-credential-vault gave no credentials"),
    ],
)
def test_a_helper_that_fails_is_a_problem_and_no_error(config, name, script, problem) -> None:
    config({"credsStore": name}, script)
    assert facts(find_credentials(HOST)) == ("", "", "", problem)


def test_a_helper_that_hangs_is_ended_with_its_children(config, monkeypatch, tmp_path) -> None:
    config({"credsStore": "vault"}, f"sleep 300 & echo $! > {tmp_path}/child; wait")
    monkeypatch.setattr(remote_auth, "HELPER_SECONDS", 0.5)
    assert facts(find_credentials(HOST))[3] == "the credential helper docker-credential-vault failed (-9)"
    status = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()


def test_the_environment_stands_over_a_helper(config, monkeypatch, tmp_path) -> None:
    config({"credsStore": "vault"}, f"touch {tmp_path}/asked")
    monkeypatch.setenv("CONVERT_REGISTRY_USER", "env")
    assert facts(find_credentials(HOST))[0] == "env"
    assert not (tmp_path / "asked").exists()


def test_a_secret_is_never_shown(config) -> None:
    config({"credsStore": "vault"}, ANSWER)
    assert "s:" not in repr(find_credentials(HOST))


def bearer(server: Server, bodies: list[tuple[str, bytes]]):
    def fault(handler) -> bool:
        if handler.path.startswith("/token"):
            bodies.append((handler.command, handler.body))
            handler.answer(200, b'{"access_token":"good"}')
            return True
        if handler.headers.get("Authorization") != "Bearer good":
            challenge = f'Bearer realm="http://{server.host}/token",service="reg"'
            handler.answer(401, WWW_Authenticate=challenge)
            return True
        return False

    return fault


@pytest.mark.parametrize("where", ["helper", "file"])
def test_an_identity_token_is_exchanged_at_the_token_service(config, server, where) -> None:
    bodies: list[tuple[str, bytes]] = []
    server.faults.append(bearer(server, bodies))
    if where == "helper":
        config({"credsStore": "vault"}, """echo '{"Username":"<token>","Secret":"long-lived"}'""")
    else:
        config({"auths": {server.host: {"identitytoken": "long-lived"}}})
    with Remote(parse_address(f"oci://{server.host}/zoo/net"), HttpOptions()) as remote:
        assert remote.tags() == ()
    assert bodies[0][0] == "POST"
    form = parse_qs(bodies[0][1].decode())
    assert form["grant_type"] == ["refresh_token"]
    assert form["refresh_token"] == ["long-lived"]
    assert form["scope"] == ["repository:zoo/net:pull"]
    assert all("long-lived" not in auth for _, _, auth in server.seen)


def test_a_denial_tells_of_the_helper_that_failed(config, server) -> None:
    server.faults.append(lambda handler: handler.answer(401, WWW_Authenticate='Basic realm="r"') or True)
    config({"credsStore": "absent"})
    with pytest.raises(RegistryError) as caught, Remote(parse_address(f"oci://{server.host}/n")) as remote:
        remote.tags()
    assert caught.value.code == "CNV-9061"
    assert "docker-credential-absent is not on PATH" in caught.value.message
