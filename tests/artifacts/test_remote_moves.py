"""Promotion, rollback, history, attachments and lists directly on an OCI registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from store_kit import make_release, make_request

from artifacts import remote_moves
from artifacts.__main__ import cli
from artifacts.channels import Move, promote
from artifacts.cli import run_boundary
from artifacts.errors import RegistryError, UsageError
from artifacts.keys import generate_key, load_private_key
from artifacts.layout import Layout
from artifacts.place import copy
from artifacts.publish import PublishRequest, publish
from artifacts.remote import Remote, parse_address
from artifacts.remote_moves import attach_remote, list_remote, log_remote, promote_remote, rollback_remote
from artifacts.versions import Versions

MOVE = Move(channel="prod", actor="wei", reason="it is right")


@pytest.fixture(autouse=True)
def plain_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("CONVERT_REGISTRY", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("CONVERT_TRUST", str(tmp_path / "trust"))


@pytest.fixture
def zoo(registry_url, tmp_path) -> str:
    """``oci://…/zoo`` with net:1.0.0 and net:1.1.0, and nothing on this machine."""
    for version, content in (("1.0.0", b"one" * 9000), ("1.1.0", b"two" * 9000)):
        publish(tmp_path / "reg", make_request(tmp_path / version, version=version, content=content))
        copy(f"net:{version}", f"oci://{registry_url}/zoo/net", tmp_path / "reg")
    return f"oci://{registry_url}/zoo"


def digest_of(zoo: str, tag: str) -> str:
    with Remote(parse_address(zoo).child("net")) as remote:
        found = remote.find_manifest(tag)
    return found.descriptor.digest if found else ""


def test_a_channel_is_moved_there_and_back_and_the_history_is_there(zoo) -> None:
    first = promote_remote(zoo, "net:1.0.0", MOVE)
    second = promote_remote(zoo, "net", MOVE)
    assert (first.version, second.version, second.seq) == ("1.0.0", "1.1.0", 2)
    assert digest_of(zoo, "prod") == second.after == digest_of(zoo, "1.1.0")
    assert digest_of(zoo, "prod-ascend910b3") == digest_of(zoo, "1.1.0-ascend910b3")
    back = rollback_remote(zoo, "net", MOVE)
    assert (back.version, back.seq) == ("1.0.0", 3)
    assert digest_of(zoo, "prod-ascend910b3") == digest_of(zoo, "1.0.0-ascend910b3")
    log = log_remote(zoo, "net", "prod")
    assert log.problems == ()
    assert [(item.event.seq, item.event.version, item.event.rollback) for item in log.events] == [
        (3, "1.0.0", True),
        (2, "1.1.0", False),
        (1, "1.0.0", False),
    ]


def test_the_remote_digests_are_those_of_a_folder(zoo, tmp_path) -> None:
    promote_remote(zoo, "net:1.0.0", MOVE)
    copy(f"{zoo}/net:prod", "net", tmp_path / "copy")
    layout = Layout(tmp_path / "copy" / "net")
    assert Versions(layout, layout.refs()).channels["prod"].digest == digest_of(zoo, "1.0.0")
    assert promote(tmp_path / "copy", "net:1.0.0", MOVE).already


def test_one_channel_may_follow_another(zoo) -> None:
    promote_remote(zoo, "net:1.0.0", Move(channel="staging", actor="wei"))
    assert promote_remote(zoo, "net:staging", MOVE).version == "1.0.0"


def test_gates_and_expectations_hold_there_as_well(zoo, registry_url, tmp_path) -> None:
    cold = make_release(tmp_path / "cold", ran_on="none", validation={})
    publish(tmp_path / "reg", PublishRequest(name="net", version="1.2.0", targets=(cold,)))
    copy("net:1.2.0", f"oci://{registry_url}/zoo/net", tmp_path / "reg")
    with pytest.raises(RegistryError) as caught:
        promote_remote(zoo, "net:1.2.0", MOVE)
    assert caught.value.code == "CNV-9040"
    promote_remote(zoo, "net:1.0.0", MOVE)
    with pytest.raises(RegistryError) as caught:
        promote_remote(zoo, "net:1.1.0", Move(channel="prod", actor="li", expect="1.1.0"))
    assert caught.value.code == "CNV-9042"
    assert promote_remote(zoo, "net:1.1.0", Move(channel="prod", actor="li", expect="1.0.0")).seq == 2


def test_a_policy_file_asks_for_what_a_registry_json_would(zoo, tmp_path) -> None:
    generate_key(tmp_path / "team")
    key = load_private_key(tmp_path / "team.key")
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"version": 1, "channels": {"prod": {"keys": [key.public.id]}}}))
    with pytest.raises(RegistryError) as caught:
        promote_remote(zoo, "net:1.0.0", MOVE, policy=policy)
    assert caught.value.code == "CNV-9043"
    assert promote_remote(zoo, "net:1.0.0", MOVE, key, policy=policy).seq == 1
    assert log_remote(zoo, "net", "prod", (key.public,)).events[0].signature == "verified"


def test_of_two_who_move_a_channel_at_once_the_second_is_told(zoo, monkeypatch) -> None:
    promote_remote(zoo, "net:1.0.0", MOVE)
    once = remote_moves.push

    def slow(*arguments):
        monkeypatch.setattr(remote_moves, "push", once)
        promote_remote(zoo, "net:1.1.0", Move(channel="prod", actor="li"))
        return once(*arguments)

    monkeypatch.setattr(remote_moves, "push", slow)
    with pytest.raises(RegistryError) as caught:
        promote_remote(zoo, "net:1.1.0", Move(channel="prod", actor="wei", waive=(), reason="also"))
    assert caught.value.code == "CNV-9042"
    log = log_remote(zoo, "net", "prod")
    assert (log.problems, [item.event.actor for item in log.events]) == ((), ["li", "wei"])


def test_an_event_lost_between_look_and_write_is_told(zoo, monkeypatch) -> None:
    promote_remote(zoo, "net:1.0.0", MOVE)
    once = remote_moves.push

    def overtaken(layout, tags, remote):
        done = once(layout, tags, remote)
        found = remote.find_manifest("event-prod-000001")
        remote.put_manifest("event-prod-000002", found.data, found.descriptor.media_type)
        return done

    monkeypatch.setattr(remote_moves, "push", overtaken)
    with pytest.raises(RegistryError) as caught:
        promote_remote(zoo, "net:1.1.0", MOVE)
    assert caught.value.code == "CNV-9042"


def test_an_attachment_goes_to_the_target_and_comes_along(zoo, tmp_path) -> None:
    (tmp_path / "latency.json").write_text('{"p50":1.5}')
    done = attach_remote(zoo, "net:1.0.0", [tmp_path / "latency.json"], artifact_type="latency", target="Ascend910B3")
    (tmp_path / "latency.json").write_text('{"p50":1.6}')
    again = attach_remote(zoo, "net:1.0.0", [tmp_path / "latency.json"], artifact_type="latency", target="Ascend910B3")
    assert (done.tag[-2:], again.tag[-2:]) == ("-1", "-2")
    copy(f"{zoo}/net:1.0.0", "net", tmp_path / "copy")
    tags = {ref.tag for ref in Layout(tmp_path / "copy" / "net").refs()}
    assert {done.tag, again.tag} <= tags


def test_a_digest_alone_cannot_be_attached_to(zoo, tmp_path) -> None:
    with pytest.raises(UsageError) as caught:
        attach_remote(zoo, f"net@{digest_of(zoo, '1.0.0')}", [tmp_path / "x"], artifact_type="latency")
    assert caught.value.code == "CNV-2441"


def test_a_project_and_a_model_are_listed(zoo, registry_url, tmp_path) -> None:
    promote_remote(zoo, "net:1.0.0", MOVE)
    publish(tmp_path / "reg", make_request(tmp_path / "o", name="other", version="3.0.0"))
    copy("other:3.0.0", f"{zoo}/other", tmp_path / "reg")
    copy("other:3.0.0", f"oci://{registry_url}/elsewhere/other", tmp_path / "reg")
    models = list_remote(zoo)
    assert [model.name for model in models] == ["net", "other"]
    assert [(v.version, v.channels, v.targets) for v in models[0].versions] == [
        ("1.1.0", (), ("ascend910b3",)),
        ("1.0.0", ("prod",), ("ascend910b3",)),
    ]
    assert [model.name for model in list_remote(zoo, "oth")] == ["other"]
    assert [model.name for model in list_remote(f"{zoo}/net")] == ["zoo/net"]


def test_the_commands_take_a_full_address(zoo, tmp_path) -> None:
    def run(*arguments: str) -> dict[str, object]:
        done = CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False)
        return json.loads(done.stdout)

    assert run("promote", f"{zoo}/net:1.0.0", "prod", "--actor", "wei")["version"] == "1.0.0"
    assert run("promote", "net:1.1.0", "prod", "--actor", "wei", "--registry", zoo)["seq"] == 2
    assert run("rollback", f"{zoo}/net", "prod", "--actor", "wei")["version"] == "1.0.0"
    assert len(run("log", f"{zoo}/net", "prod")["events"]) == 3
    assert run("list", zoo)["models"][0]["name"] == "net"
    assert run("show", f"{zoo}/net:prod")["version"] == "1.0.0"
    assert run("pull", f"{zoo}/net:prod", str(tmp_path / "out"), "--target", "Ascend910B3")["version"] == "1.0.0"
    assert run("verify", f"{zoo}/net:1.0.0")["ok"] is True
    (tmp_path / "r.json").write_text("{}")
    assert run("attach", f"{zoo}/net:1.0.0", str(tmp_path / "r.json"), "--type", "x")["files"] == ["r.json"]


@pytest.mark.parametrize("arguments", [["log", "net", "canary"], ["rollback", "net", "canary", "--actor", "w"]])
def test_a_channel_that_is_not_there_is_an_error(tmp_path, capsys, arguments) -> None:
    publish(tmp_path / "reg", make_request(tmp_path / "a"))
    promote(tmp_path / "reg", "net", MOVE)
    code = run_boundary(cli, [*arguments, "--registry", str(tmp_path / "reg")], prog="artifacts", usage_code="CNV-2401")
    assert code == 9
    assert "[CNV-9002]: net has no channel canary; channels: prod" in capsys.readouterr().err


def test_going_back_further_than_the_history_is_a_wrong_request(tmp_path, capsys) -> None:
    publish(tmp_path / "reg", make_request(tmp_path / "a"))
    promote(tmp_path / "reg", "net", MOVE)
    base = ["rollback", "net", "prod", "--actor", "w", "--registry", str(tmp_path / "reg")]
    assert run_boundary(cli, base, prog="artifacts", usage_code="CNV-2401") == 2
    assert "prod had no version before 1.0.0" in capsys.readouterr().err
    assert run_boundary(cli, [*base, "--to", "0.9.0"], prog="artifacts", usage_code="CNV-2401") == 2
    assert "0.9.0 was never in prod" in capsys.readouterr().err


def test_a_model_outside_a_project_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["show", "oci://net"])
    assert isinstance(done.exception, UsageError)
    assert done.exception.code == "CNV-2430"
