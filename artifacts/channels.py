"""Channels: named pointers to versions (``candidate``, ``staging``, ``prod``, …), moved by promotion and rollback.

The pointer, the tags of its targets and the mark of its newest event change in one rename, so there is no pointer
without a record of who moved it, why, and what the gates said.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from artifacts.device_results import with_results
from artifacts.digest import Digest
from artifacts.errors import RegistryError, UsageError
from artifacts.events import EVENT_ANNOTATION, LOST_MARK, ChannelLog, Event, Waiver, event_tag, read_log, store_event
from artifacts.keys import PrivateKey, PublicKey
from artifacts.layout import IndexEdit, Layout, LayoutRef
from artifacts.manifest import Manifest
from artifacts.names import CHANNEL_PATTERN, RESERVED_CHANNELS, parse_ref, target_tag, version_tag
from artifacts.oci import INDEX_TYPE, Descriptor
from artifacts.registry import Registry
from artifacts.release import target_key
from artifacts.resolve import load_target, resolve
from artifacts.rules import DEFAULT_RULES, RULES, ChannelRule, GateResult, judge_version
from artifacts.versions import Versions


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody asks of a channel. ``expect``: the version or digest that it must have now (``none``: nothing)."""

    channel: str
    actor: str
    reason: str = ""
    expect: str = ""
    waive: tuple[str, ...] = ()


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A channel after a move. ``event``: the digest to keep elsewhere; ``already``: nothing changed."""

    model: str
    channel: str
    version: str
    before: Digest
    after: Digest
    event: Digest
    seq: int
    gates: tuple[GateResult, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    already: bool = False


def check_channel(name: str) -> str:
    """The name, if it can be a channel's.

    Raises:
        UsageError: CNV-2420.
    """
    if CHANNEL_PATTERN.fullmatch(name) and not name.startswith(RESERVED_CHANNELS):
        return name
    raise UsageError(
        "CNV-2420",
        f"{name[:80]!r} can't be a channel: use lower-case letters, digits and . _ -, beginning with a letter",
        hint="for example candidate, staging or prod",
    )


def channel_rule(registry: Registry, channel: str) -> ChannelRule:
    """What a channel asks: as ``registry.json`` says, else the default of its name."""
    return registry.policy().channels.get(channel) or DEFAULT_RULES.get(channel, ChannelRule())


def promote(root: Path, text: str, move: Move, key: PrivateKey | None = None) -> Moved:
    """Point a channel to a version.

    Args:
        root: The registry folder.
        text: The version: ``name:version``, ``name`` (newest), or another channel.
        move: Channel, actor, reason, what the channel must point to now, rules to waive.
        key: Signs the event; required by a protected channel.

    Raises:
        UsageError: CNV-2420 (channel), CNV-2421 (a waiver without a reason, or of no rule).
        RegistryError: CNV-9040 (gates), CNV-9041 (the channel's history doesn't hold together), CNV-9042 (moved
            meanwhile), CNV-9043 (protected), CNV-9010 (no version), and those of reading and writing.
    """
    check_channel(move.channel)
    _check_waivers(move)
    registry = Registry(root)
    layout, resolved = resolve(registry, parse_ref(text))
    if resolved.kind != "version" or not resolved.version:
        raise RegistryError(
            "CNV-9010", f"{resolved.ref} is no version: channels point to versions", hint="name a version, as net:1.0.0"
        )
    rule = channel_rule(registry, move.channel)
    _check_key(rule, move.channel, key)
    with layout.edit() as edit:
        current = _current(edit, move)
        gates = _judge(layout, edit.refs(), rule, resolved.descriptor, current)
        waivers = _apply_gates(move, gates, f"{resolved.name}:{version_tag(resolved.version)}")
        event = _event(resolved.name, resolved.version, resolved.descriptor, move)
        event = msgspec.structs.replace(event, gates=gates, waivers=waivers)
        return _move(layout, edit, event, resolved.descriptor, key)


def rollback(root: Path, name: str, move: Move, *, to: str = "", key: PrivateKey | None = None) -> Moved:
    """Point a channel back to a version that it had: the one before, or ``to`` (a version). Gates don't ask again.

    Raises:
        UsageError: CNV-2420, CNV-2442 (it had no such version, or none before).
        RegistryError: CNV-9002 (no such channel), CNV-9044 (that version was removed), and those of :func:`promote`.
    """
    check_channel(move.channel)
    registry = Registry(root)
    layout = registry.open_model(name)
    _check_key(channel_rule(registry, move.channel), move.channel, key)
    with layout.edit() as edit:
        _current(edit, move)
        log = read_log(layout, edit.refs(), move.channel)
        versions = Versions(layout, edit.refs())
        if not log.events:
            raise _no_channel(name, move.channel, versions)
        digest = _earlier(log, versions, to)
        version = versions.version_of(digest)
        if not version:
            raise _nowhere(f"{digest} was in {move.channel} and is no version any more")
        descriptor = versions.names[version]
        event = msgspec.structs.replace(_event(name, version, descriptor, move), rollback=True)
        return _move(layout, edit, event, descriptor, key)


def channel_log(root: Path, name: str, channel: str, keys: tuple[PublicKey, ...] = ()) -> ChannelLog:
    """The history of a channel, checked.

    Raises:
        UsageError: CNV-2420.
        RegistryError: CNV-9001, CNV-9002 (no such channel), CNV-9005.
    """
    registry = Registry(root)
    layout = registry.open_model(name)
    rule = channel_rule(registry, check_channel(channel))
    refs = layout.refs()
    log = read_log(layout, refs, channel, keys, allowed=rule.keys)
    if not log.events and not log.now:
        raise _no_channel(name, channel, Versions(layout, refs))
    return log


def _check_waivers(move: Move) -> None:
    unknown = sorted(set(move.waive).difference(RULES))
    if unknown or (move.waive and not move.reason.strip()):
        raise UsageError(
            "CNV-2421",
            f"no rule is called {', '.join(unknown)}" if unknown else "a waiver needs a reason",
            hint=f"rules are {', '.join(RULES)}; say why with --reason",
        )


def _check_key(rule: ChannelRule, channel: str, key: PrivateKey | None) -> None:
    if rule.keys and (key is None or key.public.id not in rule.keys):
        given = f"the key {key.public.id[:16]}… may not" if key else "no key was given"
        raise RegistryError(
            "CNV-9043",
            f"the channel {channel} is protected: {given}",
            hint="sign with --sign-key and one of the keys that registry.json allows for this channel",
        )


def _current(edit: IndexEdit, move: Move) -> Descriptor | None:
    """What the channel points to now, if that is what the caller expects."""
    current = edit.find(move.channel)
    if current is not None and current.media_type != INDEX_TYPE:
        raise RegistryError("CNV-9020", f"the tag {move.channel} is taken by a target", hint="choose another channel")
    expected = edit.find(version_tag(move.expect)) if move.expect else None
    now = current.digest if current else "none"
    if move.expect and now not in (move.expect, expected.digest if expected else ""):
        raise RegistryError(
            "CNV-9042",
            f"the channel {move.channel} points to {now}, not to {move.expect}: somebody moved it",
            hint="look at `artifacts log`, and decide again",
        )
    return current


def _manifests(layout: Layout, index: Descriptor | None) -> dict[Digest, Manifest]:
    if index is None:
        return {}
    return {item.digest: load_target(layout, item).manifest for item in Versions(layout, ()).index(index).manifests}


def _judge(
    layout: Layout, refs: tuple[LayoutRef, ...], rule: ChannelRule, new: Descriptor, current: Descriptor | None
) -> tuple[GateResult, ...]:
    """Judge a version, with what devices have measured since it was published."""
    coming = tuple(
        with_results(layout, refs, digest, manifest, rule.device_keys)
        for digest, manifest in _manifests(layout, new).items()
    )
    return judge_version(rule, coming, tuple(_manifests(layout, current if rule.targets else None).values()))


def _apply_gates(move: Move, gates: tuple[GateResult, ...], ref: str) -> tuple[Waiver, ...]:
    failed = [gate for gate in gates if not gate.passed]
    kept = [gate for gate in failed if gate.rule not in move.waive]
    if kept:
        waive = " ".join(f"--waive {gate.rule}" for gate in kept)
        raise RegistryError(
            "CNV-9040",
            f"{ref} may not go to {move.channel}: {'; '.join(gate.detail for gate in kept)}",
            hint=f"validate it where it lacks, or take the responsibility with {waive} --reason TEXT",
        )
    return tuple(Waiver(rule=gate.rule, by=move.actor, reason=move.reason) for gate in failed)


def _event(name: str, version: str, descriptor: Descriptor, move: Move) -> Event:
    return Event(
        seq=0,
        model=name,
        channel=move.channel,
        after=descriptor.digest,
        version=version,
        actor=move.actor,
        reason=move.reason,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _move(layout: Layout, edit: IndexEdit, event: Event, index: Descriptor, key: PrivateKey | None) -> Moved:
    current = edit.find(event.channel)
    log = read_log(layout, edit.refs(), event.channel)
    if log.problems and not _only_lost_mark(log):
        raise RegistryError(
            "CNV-9041",
            f"the history of {event.model}:{event.channel} does not hold together: {'; '.join(log.problems)}",
            hint="find out who wrote it (`artifacts log`); restore index.json from a copy, or begin another channel",
        )
    last = log.events[0].event.seq if log.events else 0
    if current is not None and current.digest == event.after and log.events:
        return _moved(event, log.head, seq=last, already=True)
    before = current.digest if current else ""
    event = msgspec.structs.replace(event, seq=last + 1, prev=log.head, before=before)
    stored = store_event(layout, event, index, key)
    edit.set(event_tag(event.channel, event.seq), stored)
    _point(layout, edit, event.channel, index, {EVENT_ANNOTATION: stored.digest})
    return _moved(event, stored.digest, seq=event.seq)


def _only_lost_mark(log: ChannelLog) -> bool:
    """Whether all that is wrong is the mark, which the next event writes anew."""
    return log.problems == (LOST_MARK,) and log.now == log.events[0].event.after


def _point(layout: Layout, edit: IndexEdit, channel: str, index: Descriptor, mark: dict[str, str]) -> None:
    versions = Versions(layout, ())
    old = edit.find(channel)
    for target in versions.index(old).manifests if old else ():
        edit.drop(target_tag(channel, target_key(target)))
    edit.set(channel, index, mark)
    for target in versions.index(index).manifests:
        edit.set(target_tag(channel, target_key(target)), target, target.annotations)


def _moved(event: Event, digest: Digest, *, seq: int, already: bool = False) -> Moved:
    return Moved(
        model=event.model,
        channel=event.channel,
        version=event.version,
        before=event.after if already else event.before,
        after=event.after,
        event=digest,
        seq=seq,
        gates=event.gates,
        waivers=event.waivers,
        already=already,
    )


def _earlier(log: ChannelLog, versions: Versions, to: str) -> Digest:
    """The version index to go back to: what the channel had before all that rollbacks undid already."""
    had: list[Digest] = []
    for item in reversed(log.events):
        if item.event.rollback and item.event.after in had:
            del had[had.index(item.event.after) + 1 :]
        elif not had or had[-1] != item.event.after:
            had.append(item.event.after)
    if to:
        wanted = versions.names[to].digest if to in versions.names else to
        if wanted in {item.event.after for item in log.events}:
            return wanted
        before = list(dict.fromkeys(item.event.version for item in log.events))
        raise UsageError(
            "CNV-2442", f"{to} was never in {log.channel}", hint=f"it had: {', '.join(before[:8])}; see `artifacts log`"
        )
    if len(had) < 2:
        raise UsageError(
            "CNV-2442",
            f"can't roll back: {log.channel} had no version before {log.events[0].event.version}",
            hint="promote another version instead; `artifacts log` shows what the channel had",
        )
    return had[-2]


def _no_channel(name: str, channel: str, versions: Versions) -> RegistryError:
    known = ", ".join(list(versions.channels)[:8])
    return RegistryError(
        "CNV-9002",
        f"{name} has no channel {channel}; {f'channels: {known}' if known else 'it has no channel yet'}",
        hint=f"`artifacts promote {name}:VERSION {channel}` makes it",
    )


def _nowhere(why: str) -> RegistryError:
    return RegistryError("CNV-9044", f"can't roll back: {why}", hint="`artifacts log` shows what the channel had")
