"""Metadata in MLflow: a strict stand-in of its REST API refuses what MLflow refuses."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner
from store_kit import make_request

from artifacts.__main__ import cli
from artifacts.channels import Move, promote
from artifacts.errors import RegistryError, UsageError
from artifacts.http_options import HttpOptions
from artifacts.mlflow_mirror import mirror
from artifacts.publish import publish

PLAIN = HttpOptions()


class MlflowServer(ThreadingHTTPServer):
    """Registered models, versions, tags and aliases, with MLflow's checks and codes; searches are paged by two."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of connections that the client broke."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.models: dict[str, dict[str, object]] = {}
        self.seen: list[tuple[str, str, str]] = []
        self.answer: tuple[int, bytes] | None = None
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        self._serve(query)

    def do_POST(self) -> None:
        assert self.headers["Content-Type"] == "application/json"
        self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _serve(self, body) -> None:
        path = urlsplit(self.path).path.removeprefix("/api/2.0/mlflow/")
        self.server.seen.append((self.command, path, self.headers.get("Authorization", "")))
        if self.server.answer is not None:
            self._send(*self.server.answer)
            return
        routes = {
            ("POST", "registered-models/create"): self._create,
            ("GET", "registered-models/get"): self._get,
            ("POST", "model-versions/create"): self._create_version,
            ("GET", "model-versions/search"): self._search,
            ("POST", "registered-models/alias"): self._alias,
        }
        status, answer = routes[self.command, path](body)
        self._send(status, json.dumps(answer).encode())

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _create(self, body):
        name = body["name"]
        if not name or "/" in name:
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "cannot contain path separator"}
        if name in self.server.models:
            return 400, {"error_code": "RESOURCE_ALREADY_EXISTS", "message": f"({name}) already exists"}
        self.server.models[name] = {"versions": [], "aliases": {}}
        return 200, {"registered_model": {"name": name}}

    def _get(self, body):
        aliases = [
            {"alias": key, "version": value} for key, value in self.server.models[body["name"]]["aliases"].items()
        ]
        return 200, {"registered_model": {"name": body["name"], "aliases": aliases}}

    def _create_version(self, body):
        source = urlsplit(body["source"])
        if source.scheme in ("", "file"):
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "local source without run"}
        for tag in body["tags"]:
            if not re.fullmatch(r"[/\w.\- ]{1,250}", tag["key"]) or len(tag["value"]) > 5000:
                return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": f"bad tag {tag['key']}"}
        versions = self.server.models[body["name"]]["versions"]
        number = str(len(versions) + 1)
        versions.append({"name": body["name"], "version": number, "source": body["source"], "tags": body["tags"]})
        return 200, {"model_version": versions[-1]}

    def _search(self, body):
        name = re.fullmatch(r"name='([^']+)'", body["filter"])[1]
        start = int(body.get("page_token", "0"))
        listed = self.server.models[name]["versions"]
        more = {"next_page_token": str(start + 2)} if start + 2 < len(listed) else {}
        return 200, {"model_versions": listed[start : start + 2], **more}

    def _alias(self, body):
        model, alias = self.server.models[body["name"]], body["alias"]
        if not re.fullmatch(r"[\w\-]+", alias) or alias.lower() == "latest" or re.fullmatch(r"[vV]\d+", alias):
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": f"Invalid alias name: '{alias}'"}
        if body["version"] not in {item["version"] for item in model["versions"]}:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such version"}
        model["aliases"][alias] = body["version"]
        return 200, {}


@pytest.fixture
def mlflow(monkeypatch):
    for name in ("TOKEN", "USERNAME", "PASSWORD"):
        monkeypatch.delenv(f"MLFLOW_TRACKING_{name}", raising=False)
    server = MlflowServer()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def root(tmp_path) -> Path:
    for number in range(5):
        publish(tmp_path / "reg", make_request(tmp_path / str(number), name="zoo/net", version=f"1.0.{number}",
                                               content=b"%d" % number))  # fmt: skip
    promote(tmp_path / "reg", "zoo/net:1.0.0", Move(channel="prod", actor="wei"))
    promote(tmp_path / "reg", "zoo/net:1.0.3", Move(channel="candidate.eu", actor="wei"))
    return tmp_path / "reg"


def test_versions_and_channels_arrive_and_a_second_run_changes_nothing(root, mlflow) -> None:
    done = mirror(root, (), mlflow.url, share="oci://harbor.example/p", options=PLAIN)
    model = mlflow.models["zoo.net"]
    assert done.models[0].created == ("1.0.0", "1.0.1", "1.0.2", "1.0.3", "1.0.4")
    assert model["aliases"] == {"prod": "1", "candidate-eu": "4"}
    first = model["versions"][0]
    tags = {tag["key"]: tag["value"] for tag in first["tags"]}
    assert first["source"] == "oci://harbor.example/p/zoo/net:1.0.0"
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", tags["oci.digest"])
    assert tags["model-convert.version"] == "1.0.0"
    assert tags["model-convert.target.Ascend910B3"] == "fp16, passed, ran on device, cosine 0.9999"
    again = mirror(root, (), mlflow.url, options=PLAIN)
    assert (again.models[0].created, again.models[0].aliases) == ((), ())
    assert len(model["versions"]) == 5


def test_what_is_new_is_added_and_a_moved_channel_moves(root, mlflow, tmp_path) -> None:
    mirror(root, (), mlflow.url, options=PLAIN)
    publish(root, make_request(tmp_path / "n", name="zoo/net", content=b"new"))
    promote(root, "zoo/net", Move(channel="prod", actor="wei"))
    done = mirror(root, ("zoo/net",), mlflow.url, options=PLAIN)
    assert (done.models[0].created, done.models[0].aliases) == (("1.0.5",), ("prod",))
    assert mlflow.models["zoo.net"]["aliases"]["prod"] == "6"


def test_channels_that_can_be_no_alias_are_told(root, mlflow) -> None:
    promote(root, "zoo/net:1.0.1", Move(channel="latest", actor="wei"))
    promote(root, "zoo/net:1.0.1", Move(channel="v2", actor="wei"))
    done = CliRunner().invoke(cli, ["mirror", "--mlflow", mlflow.url, "--registry", str(root)])
    assert done.exit_code == 0
    assert "these channels can't be aliases in MLflow: latest, v2" in done.output
    assert set(mlflow.models["zoo.net"]["aliases"]) == {"prod", "candidate-eu"}


def test_logins_come_from_mlflows_own_variables(root, mlflow, monkeypatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "secret-token")
    mirror(root, (), mlflow.url, options=PLAIN)
    assert {auth for _, _, auth in mlflow.seen} == {"Bearer secret-token"}
    monkeypatch.delenv("MLFLOW_TRACKING_TOKEN")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "wei")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "pass")
    mlflow.seen.clear()
    mirror(root, (), mlflow.url, options=PLAIN)
    assert {auth for _, _, auth in mlflow.seen} == {"Basic d2VpOnBhc3M="}


@pytest.mark.parametrize(
    "answer",
    [
        (500, b"<html>oops"),
        (403, b'{"error_code":"PERMISSION_DENIED","message":"no"}'),
        (302, b""),
        (200, b"[]"),
        (200, b"{"),
        (200, b"[" * 100_000),
        (200, b"x" * (17 << 20)),
    ],
)
def test_odd_answers_are_clear_errors(root, mlflow, answer) -> None:
    mlflow.answer = answer
    with pytest.raises(RegistryError) as caught:
        mirror(root, (), mlflow.url, options=PLAIN)
    assert caught.value.code == "CNV-9075"


def test_an_mlflow_that_is_away_is_told(root) -> None:
    with pytest.raises(RegistryError, match="can't reach MLflow") as caught:
        mirror(root, (), "http://127.0.0.1:9", options=PLAIN)
    assert caught.value.code == "CNV-9075"


@pytest.mark.parametrize(
    "address",
    ["mlflow.example", "ftp://h", "https://", "https://u:p@h", "http://mlflow.example", "file:///tmp", "https://h?x=1"],
)
def test_what_is_no_address_is_a_usage_error(root, address) -> None:
    with pytest.raises(UsageError) as caught:
        mirror(root, (), address, options=PLAIN)
    assert caught.value.code == "CNV-2450"
