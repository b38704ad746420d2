"""Promotion, rollback and the history of channels."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from faults import KILLED, run_killed_at
from store_kit import make_release

from artifacts.__main__ import cli
from artifacts.channels import Move, channel_log, promote, rollback
from artifacts.cli import run_boundary
from artifacts.digest import canonical_json
from artifacts.errors import RegistryError, UsageError
from artifacts.events import EVENT_ANNOTATION, event_tag, store_event
from artifacts.fsck import fsck
from artifacts.keys import PrivateKey, generate_key, load_private_key
from artifacts.layout import Layout
from artifacts.publish import PublishRequest, publish
from artifacts.pull import pull


def add_version(root: Path, folder: Path, version: str, **fields: object) -> None:
    release = make_release(folder / f"npu{version}", content=f"for the npu {version}".encode(), **fields)
    cpu = make_release(
        folder / f"cpu{version}", content=f"for the cpu {version}".encode(), target="cpu", soc="", **fields
    )
    publish(root, PublishRequest(name="net", version=version, targets=(release, cpu)))


@pytest.fixture
def root(tmp_path) -> Path:
    """A registry with three versions that pass every gate on their device."""
    for version in ("1.0.0", "1.1.0", "1.2.0"):
        add_version(tmp_path / "reg", tmp_path, version)
    return tmp_path / "reg"


@pytest.fixture
def key(tmp_path) -> PrivateKey:
    generate_key(tmp_path / "team")
    return load_private_key(tmp_path / "team.key")


def move(channel: str = "prod", **fields: object) -> Move:
    return Move(channel=channel, actor="wei@lab", **fields)  # type: ignore[arg-type]


def history(root: Path, channel: str = "prod") -> list[str]:
    log = channel_log(root, "net", channel)
    assert log.problems == ()
    return [item.event.version for item in log.events]


def test_a_promoted_version_is_pulled_by_its_channel(root, tmp_path):
    moved = promote(root, "net:1.0.0", move(reason="first"))
    assert (moved.version, moved.before, moved.seq) == ("1.0.0", "", 1)
    assert pull(root, "net:prod", tmp_path / "a", target="cpu").version == "1.0.0"
    assert pull(root, "net:prod-cpu", tmp_path / "b").digest == pull(root, "net:1.0.0-cpu", tmp_path / "c").digest
    assert fsck(root).clean


def test_the_event_tells_who_when_why_and_what_the_gates_said(root):
    promote(root, "net:1.0.0", move(reason="first"))
    event = channel_log(root, "net", "prod").events[0].event
    assert (event.actor, event.reason, event.version, event.prev) == ("wei@lab", "first", "1.0.0", "")
    assert [(gate.rule, gate.passed) for gate in event.gates] == [("passed", True), ("device", True), ("targets", True)]


def test_each_event_names_the_one_before(root):
    moves = [promote(root, f"net:{version}", move()) for version in ("1.0.0", "1.1.0", "1.2.0")]
    log = channel_log(root, "net", "prod")
    assert [item.digest for item in log.events] == [item.event for item in reversed(moves)]
    assert [item.event.prev for item in log.events] == [moves[1].event, moves[0].event, ""]
    assert log.head == moves[-1].event


def test_promoting_what_is_there_already_adds_no_event(root):
    first = promote(root, "net:1.0.0", move())
    again = promote(root, "net:1.0.0", move())
    assert (again.already, again.event) == (True, first.event)
    assert history(root) == ["1.0.0"]


def test_the_version_of_one_channel_is_promoted_to_the_next(root):
    promote(root, "net:1.1.0", move("staging"))
    promote(root, "net:staging", move("prod"))
    assert history(root, "prod") == ["1.1.0"]


def test_expecting_another_version_than_the_channel_has_fails(root):
    promote(root, "net:1.0.0", move(expect="none"))
    promote(root, "net:1.1.0", move(expect="1.0.0"))
    for expect in ("none", "1.0.0", "7.0.0", "sha256:" + "0" * 64):
        with pytest.raises(RegistryError, match="somebody moved it") as refusal:
            promote(root, "net:1.2.0", move(expect=expect))
        assert refusal.value.code == "CNV-9042"
    assert history(root) == ["1.1.0", "1.0.0"]


def test_of_promoters_that_expect_the_same_exactly_one_wins(root):
    promote(root, "net:1.0.0", move())
    children = []
    for version in ("1.1.0", "1.2.0") * 3:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                promote(root, f"net:{version}", move(expect="1.0.0"))
                code = 0
            except RegistryError as error:
                code = 42 if error.code == "CNV-9042" else 1
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(codes) == [0, 42, 42, 42, 42, 42]
    assert len(history(root)) == 2


def test_rollback_goes_to_the_version_before_and_further_with_each_call(root):
    for version in ("1.0.0", "1.1.0", "1.2.0"):
        promote(root, f"net:{version}", move())
    assert rollback(root, "net", move(reason="slow")).version == "1.1.0"
    assert rollback(root, "net", move()).version == "1.0.0"
    with pytest.raises(UsageError) as refusal:
        rollback(root, "net", move())
    assert refusal.value.code == "CNV-2442"
    assert history(root) == ["1.0.0", "1.1.0", "1.2.0", "1.1.0", "1.0.0"]
    promote(root, "net:1.2.0", move())
    assert rollback(root, "net", move()).version == "1.0.0"


def test_rollback_to_a_version_that_the_channel_never_had_fails(root):
    promote(root, "net:1.0.0", move())
    promote(root, "net:1.1.0", move())
    with pytest.raises(UsageError, match=r"1\.2\.0 was never in prod"):
        rollback(root, "net", move(), to="1.2.0")
    assert rollback(root, "net", move(), to="1.0.0").version == "1.0.0"


@pytest.mark.parametrize(
    ("channel", "fields", "rule"),
    [
        ("prod", {"ran_on": "forecast"}, "device"),
        ("prod", {"ran_on": "host"}, "device"),
        ("staging", {"validation": {"passed": False}}, "passed"),
        ("staging", {"validation": {}}, "passed"),
        ("canary", {"ran_on": "simulator"}, "device"),
    ],
)
def test_what_a_channel_asks_for_keeps_a_version_out_unless_waived_by_name_and_reason(
    root, tmp_path, channel, fields, rule
):
    add_version(root, tmp_path, "2.0.0", **fields)
    with pytest.raises(RegistryError) as refusal:
        promote(root, "net:2.0.0", move(channel))
    assert (refusal.value.code, f"--waive {rule}" in refusal.value.hint) == ("CNV-9040", True)
    with pytest.raises(UsageError) as usage:
        promote(root, "net:2.0.0", move(channel, waive=(rule,)))
    assert usage.value.code == "CNV-2421"
    moved = promote(root, "net:2.0.0", move(channel, waive=(rule,), reason="the customer waits"))
    assert [(waiver.rule, waiver.by, waiver.reason) for waiver in moved.waivers] == [
        (rule, "wei@lab", "the customer waits")
    ]


def test_staging_takes_what_has_not_run_on_a_device_and_candidate_takes_anything(root, tmp_path):
    add_version(root, tmp_path, "2.0.0", ran_on="forecast")
    assert promote(root, "net:2.0.0", move("staging")).version == "2.0.0"
    add_version(root, tmp_path, "2.1.0", ran_on="none", validation={})
    assert promote(root, "net:2.1.0", move("candidate")).version == "2.1.0"


def test_a_version_that_lacks_a_target_of_the_channel_is_kept_out(root, tmp_path):
    promote(root, "net:1.0.0", move())
    publish(root, PublishRequest(name="net", version="3.0.0", targets=(make_release(tmp_path / "x", content=b"3"),)))
    with pytest.raises(RegistryError, match="cpu is in the channel and not in the version"):
        promote(root, "net:3.0.0", move())
    promote(root, "net:3.0.0", move(waive=("targets",), reason="cpu is retired"))
    assert Layout(root / "net").find("prod-cpu") is None


def set_policy(root: Path, **channels: object) -> None:
    (root / "registry.json").write_text(json.dumps({"version": 1, "channels": channels}))


def test_registry_json_sets_limits_for_metrics(root):
    set_policy(root, prod={"minimum": {"cosine": 0.99999}, "maximum": {"rel_l2": 0.0001, "latency": 5}})
    with pytest.raises(RegistryError) as refusal:
        promote(root, "net:1.0.0", move())
    for part in (
        "cosine of cpu is 0.9999, the limit is 0.99999",
        "rel_l2 of cpu is 0.001",
        "latency of cpu is not measured",
    ):
        assert part in refusal.value.message


def test_a_protected_channel_wants_a_key_that_may(root, key, tmp_path):
    generate_key(tmp_path / "other")
    set_policy(root, prod={"keys": [key.public.id]})
    for given in (None, load_private_key(tmp_path / "other.key")):
        with pytest.raises(RegistryError) as refusal:
            promote(root, "net:1.0.0", move(), given)
        assert refusal.value.code == "CNV-9043"
    promote(root, "net:1.0.0", move(), key)
    assert channel_log(root, "net", "prod", (key.public,)).problems == ()
    assert channel_log(root, "net", "prod").problems == (
        "event 1 is not signed by a key that may move this channel (unknown-key)",
    )
    with pytest.raises(RegistryError):
        rollback(root, "net", move())


def test_signed_events_are_verified_or_by_an_unknown_key(root, key):
    promote(root, "net:1.0.0", move(), key)
    assert channel_log(root, "net", "prod", (key.public,)).events[0].signature == "verified"
    assert channel_log(root, "net", "prod").events[0].signature == "unknown-key"


def test_a_pointer_moved_without_an_event_is_found_and_blocks_promotion(root):
    promote(root, "net:1.0.0", move())
    layout = Layout(root / "net")
    with layout.edit() as edit:
        edit.set("prod", layout.find("1.2.0"), {EVENT_ANNOTATION: layout.find(event_tag("prod", 1)).digest})
    assert "no event says so" in channel_log(root, "net", "prod").problems[0]
    with pytest.raises(RegistryError) as refusal:
        promote(root, "net:1.1.0", move())
    assert refusal.value.code == "CNV-9041"


def test_a_lost_mark_is_told_and_the_next_promotion_writes_it_anew(root):
    promote(root, "net:1.0.0", move())
    layout = Layout(root / "net")
    with layout.edit() as edit:
        edit.set("prod", layout.find("prod"))
    assert "another tool rewrote index.json" in channel_log(root, "net", "prod").problems[0]
    promote(root, "net:1.1.0", move())
    assert history(root) == ["1.1.0", "1.0.0"]


def test_an_old_index_json_put_back_is_seen_by_whoever_kept_the_head(root):
    promote(root, "net:1.0.0", move())
    before = (root / "net/index.json").read_bytes()
    head = promote(root, "net:1.1.0", move()).event
    (root / "net/index.json").write_bytes(before)
    argv = ["log", "net", "prod", "--registry", str(root), "--head"]
    assert (
        run_boundary(cli, [*argv, channel_log(root, "net", "prod").head], prog="artifacts", usage_code="CNV-2401") == 0
    )
    assert run_boundary(cli, [*argv, head], prog="artifacts", usage_code="CNV-2401") == 9


def forge(root: Path, key: PrivateKey | None = None, **fields: object) -> None:
    """Put another event at the head of ``prod``, with some fields changed."""
    layout = Layout(root / "net")
    log = channel_log(root, "net", "prod")
    changes = {"seq": 2, "prev": log.head, "before": log.now, **fields}
    event = msgspec.structs.replace(log.events[0].event, **changes)
    with layout.edit() as edit:
        stored = store_event(layout, event, layout.find("1.1.0"), key)
        edit.set(event_tag("prod", event.seq), stored)
        edit.set("prod", layout.find("1.1.0"), {EVENT_ANNOTATION: stored.digest})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"seq": 3}, "event 3 follows event 1"),
        ({"before": "sha256:" + "0" * 64}, "starts from another version"),
        ({"channel": "staging"}, "is of the channel staging"),
        ({"prev": ""}, "the chain begins with event 2"),
        ({"prev": "sha256:" + "0" * 64}, "missing"),
        ({"after": "sha256:" + "0" * 64}, "attached to another version"),
    ],
)
def test_gaps_forks_and_forgeries_in_the_history_are_named(root, fields, said):
    promote(root, "net:1.0.0", move())
    forge(root, **{"after": Layout(root / "net").find("1.1.0").digest, **fields})
    assert said in "; ".join(channel_log(root, "net", "prod").problems)


def test_a_changed_event_is_found_by_its_signature(root, key):
    promote(root, "net:1.0.0", move(), key)
    layout = Layout(root / "net")
    digest = layout.find(event_tag("prod", 1)).digest
    image = json.loads(layout.read_blob(digest, "event"))
    bundle = json.loads(layout.read_blob(image["layers"][0]["digest"], "bundle"))
    payload = bundle["dsseEnvelope"]["payload"]
    import base64

    changed = base64.b64decode(payload).replace(b"wei@lab", b"eve@lab")
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(changed).decode()
    data = canonical_json(bundle)
    image["layers"][0] |= {"digest": layout.put_bytes(data), "size": len(data)}
    forged = canonical_json(image)
    with layout.edit() as edit:
        found = msgspec.structs.replace(
            layout.find(event_tag("prod", 1)), digest=layout.put_bytes(forged), size=len(forged)
        )
        edit.set(event_tag("prod", 1), found)
        edit.set("prod", layout.find("prod"), {EVENT_ANNOTATION: found.digest})
    assert channel_log(root, "net", "prod", (key.public,)).problems == ("event 1 has a broken signature",)


def test_killed_at_every_step_pointer_and_history_agree(root):
    promote(root, "net:1.0.0", move())
    step, code = 0, KILLED
    while code == KILLED:
        step += 1
        code = run_killed_at(step, lambda: promote(root, "net:1.1.0", move()))
        log = channel_log(root, "net", "prod")
        assert log.problems == ()
        assert fsck(root).clean
    assert history(root) == ["1.1.0", "1.0.0"]


@pytest.mark.parametrize("name", ["", "Prod", "1.0", "sha256-x", "event-x", "draft-1", "a b", "../x"])
def test_bad_channel_names_are_usage_errors(root, name):
    with pytest.raises(UsageError) as refusal:
        promote(root, "net:1.0.0", move(name))
    assert refusal.value.code == "CNV-2420"


def test_a_target_can_not_be_promoted_and_its_tag_is_no_channel(root):
    with pytest.raises(RegistryError) as refusal:
        promote(root, "net:1.0.0-cpu", move())
    assert refusal.value.code == "CNV-9010"
    promote(root, "net:1.0.0", move())
    with pytest.raises(RegistryError) as refusal:
        promote(root, "net:1.0.0", move("prod-cpu"))
    assert refusal.value.code == "CNV-9020"


def test_the_commands_promote_roll_back_and_tell_the_history(root, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CONVERT_REGISTRY", str(root))
    for line in (
        "promote net:1.0.0 prod --reason first",
        "promote net:1.1.0 prod --expect 1.0.0",
        "rollback net prod --reason slow",
        "list",
    ):
        assert run_boundary(cli, line.split(), prog="artifacts", usage_code="CNV-2401") == 0
    assert "net:prod is 1.0.0 now" in capsys.readouterr().out
    assert run_boundary(cli, ["log", "net", "prod", "--json"], prog="artifacts", usage_code="CNV-2401") == 0
    log = json.loads(capsys.readouterr().out)
    assert [item["event"]["rollback"] for item in log["events"]] == [True, False, False]
    assert log["events"][0]["event"]["actor"].count("@") == 1
