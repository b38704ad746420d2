"""``artifacts serve`` as a process: what it prints, what it refuses before it listens, how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from store_kit import make_request
from web_kit import TOKEN, write_tokens

from artifacts.channels import channel_log
from artifacts.commands.serve import command
from artifacts.errors import UsageError
from artifacts.keys import generate_key, load_private_key
from artifacts.publish import publish

ROOT = Path(__file__).resolve().parents[2]


def refused(*arguments: str) -> UsageError:
    done = CliRunner().invoke(command, list(arguments))
    assert isinstance(done.exception, UsageError), done.output
    return done.exception


def test_it_serves_signs_promotions_and_ends_on_a_signal(tmp_path) -> None:
    publish(tmp_path / "reg", make_request(tmp_path / "a"))
    generate_key(tmp_path / "server")
    arguments = ["serve", "--registry", str(tmp_path / "reg"), "--port", "0", "--json"]
    arguments += ["--token-file", str(write_tokens(tmp_path / "tokens")), "--sign-key", str(tmp_path / "server.key")]
    process = subprocess.Popen(
        [sys.executable, "-m", "artifacts", *arguments],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
    )
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert told == {"schema": 1, "url": told["url"], "registry": str(tmp_path / "reg"), "promotion": True}
        with httpx.Client(base_url=told["url"], trust_env=False) as web:
            assert web.get("healthz").json() == {"status": "ok"}
            assert web.get("/", headers={"Host": "evil.example"}).status_code == 421
            asked = {"ref": "net:1.0.0", "channel": "staging", "expect": "none"}
            answer = web.post("api/v1/promotions", json=asked, headers={"Authorization": f"Bearer {TOKEN}"})
            assert answer.json()["seq"] == 1
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130, -signal.SIGINT)
        process.stdout.close()
    key = load_private_key(tmp_path / "server.key").public
    assert channel_log(tmp_path / "reg", "net", "staging", (key,)).events[0].signature == "verified"


def test_a_port_in_use_is_told(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        error = refused("--port", str(taken.getsockname()[1]), "--registry", str(tmp_path))
    assert error.code == "CNV-2449"


def test_a_bad_token_file_is_told_before_it_listens(tmp_path) -> None:
    error = refused("--token-file", str(write_tokens(tmp_path / "t", "li short\n")), "--registry", str(tmp_path))
    assert error.code == "CNV-2445"


def test_without_its_packages_it_says_what_to_install(tmp_path, monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "artifacts.web.app", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    error = refused("--registry", str(tmp_path))
    assert (error.code, error.hint) == ("CNV-2443", "pip install 'model-convert[web]'")


@pytest.mark.parametrize("host", ["not a host", "203.0.113.77"])
def test_an_address_that_is_not_ours_is_told(tmp_path, host) -> None:
    assert refused("--host", host, "--port", "0", "--registry", str(tmp_path)).code == "CNV-2449"
