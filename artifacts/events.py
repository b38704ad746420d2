"""The history of a channel: one event for each change of the pointer, chained by digest, stored as attachments.

    event-prod-000001 ◀─prev─ event-prod-000002 ◀─prev─ event-prod-000003 ◀─ annotation of the channel's ref

An event is an in-toto statement about the version index that the channel then points to, signed where a key was given.
The chain shows what happened in which order to everybody who knows its last digest; whoever can write the folder could
replace all of it, so that digest is printed with each promotion, to be kept elsewhere.
"""

from __future__ import annotations

import msgspec

from artifacts.attach import store_attachment
from artifacts.digest import Digest
from artifacts.dsse import (
    BUNDLE_TYPE,
    STATEMENT_MEDIA_TYPE,
    Statement,
    Subject,
    open_bundle,
    parse_statement,
    sign_statement,
    statement_bytes,
)
from artifacts.errors import RegistryError
from artifacts.keys import PrivateKey, PublicKey
from artifacts.layout import Layout, LayoutRef
from artifacts.oci import PREFIX, Descriptor, parse_image
from artifacts.rules import GateResult

EVENT_PREDICATE = "urn:model-convert:promotion:v1"
EVENT_ANNOTATION = PREFIX + "event"

LOST_MARK = "the channel's ref lost the mark of its newest event: another tool rewrote index.json"


class Waiver(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that somebody set aside, and why."""

    rule: str
    by: str
    reason: str


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a channel. ``before`` and ``after`` are version indexes; ``before`` is empty for the first."""

    seq: int
    prev: Digest = ""
    """The event before, as the digest of its manifest."""
    model: str
    channel: str
    before: Digest = ""
    after: Digest
    version: str
    actor: str
    reason: str = ""
    time: str
    rollback: bool = False
    gates: tuple[GateResult, ...] = ()
    waivers: tuple[Waiver, ...] = ()


class LoggedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as read. ``signature``: ``verified``, ``unknown-key``, ``invalid`` or ``unsigned``."""

    digest: Digest
    event: Event
    signature: str
    key: str = ""


class ChannelLog(msgspec.Struct, frozen=True, kw_only=True):
    """The history of a channel, newest first. ``problems``: what doesn't hold together, one sentence each."""

    channel: str
    now: Digest
    head: Digest
    events: tuple[LoggedEvent, ...]
    problems: tuple[str, ...] = ()


def event_tag(channel: str, seq: int) -> str:
    """The tag of an event."""
    return f"event-{channel}-{seq:06d}"


def store_event(layout: Layout, event: Event, subject: Descriptor, key: PrivateKey | None) -> Descriptor:
    """Store an event, signed where there is a key."""
    name = Subject(name=f"{event.model}:{event.version}", digest={"sha256": event.after.removeprefix("sha256:")})
    predicate = msgspec.to_builtins(event)
    statement = Statement(subject=(name,), predicate_type=EVENT_PREDICATE, predicate=predicate)
    data = sign_statement(statement, key) if key else statement_bytes(statement)
    kind = BUNDLE_TYPE if key else STATEMENT_MEDIA_TYPE
    layer = Descriptor(media_type=kind, digest=layout.put_bytes(data), size=len(data))
    annotations = {PREFIX + "channel": event.channel, PREFIX + "seq": str(event.seq)}
    return store_attachment(layout, kind, (layer,), subject, annotations)


def read_event(layout: Layout, digest: Digest, keys: tuple[PublicKey, ...] = ()) -> LoggedEvent:
    """Read one event and judge its signature.

    Raises:
        RegistryError: CNV-9006, CNV-9007, CNV-9008.
    """
    what = f"the event {digest}"
    image = parse_image(layout.read_blob(digest, what), what)
    if len(image.layers) != 1:
        raise _bad(what, "it has not one layer")
    layer = image.layers[0]
    data = layout.read_blob(layer.digest, what)
    signature, key = "unsigned", ""
    if layer.media_type == BUNDLE_TYPE:
        signed = open_bundle(data, keys, what)
        statement, key = signed.statement, signed.key or signed.claimed
        signature = "verified" if signed.key else "invalid" if signed.broken else "unknown-key"
    else:
        statement = parse_statement(data, what)
    if statement.predicate_type != EVENT_PREDICATE:
        raise _bad(what, f"it states {statement.predicate_type[:80]!r}")
    try:
        event = msgspec.convert(statement.predicate, Event)
    except msgspec.ValidationError as error:
        raise _bad(what, str(error)) from None
    about = (image.subject.digest if image.subject else "", *statement.digests)
    if about != (event.after, event.after):
        raise _bad(what, "it is attached to another version than it speaks of")
    return LoggedEvent(digest=digest, event=event, signature=signature, key=key)


def read_log(
    layout: Layout,
    refs: tuple[LayoutRef, ...],
    channel: str,
    keys: tuple[PublicKey, ...] = (),
    *,
    allowed: tuple[str, ...] = (),
) -> ChannelLog:
    """The history of a channel, checked link by link.

    Args:
        layout: The model's layout.
        refs: Its refs, from one reading.
        channel: The channel; one without events has an empty log.
        keys: Trusted keys.
        allowed: Key ids that may sign, where the channel is protected.
    """
    pointer = next((ref.descriptor for ref in refs if ref.tag == channel), None)
    stem = f"event-{channel}-"
    tagged = {ref.tag: ref.descriptor.digest for ref in refs if _is_event(ref.tag, stem)}
    newest = tagged[max(tagged)] if tagged else ""
    marked = pointer.annotations.get(EVENT_ANNOTATION, "") if pointer else ""
    problems = []
    if pointer and not marked and newest:
        problems.append(LOST_MARK)
    events, faults = _walk(layout, marked or newest, keys)
    problems += faults
    now = pointer.digest if pointer else ""
    if now != (events[0].event.after if events else ""):
        problems.append(f"the channel points to {now or 'nothing'}, and no event says so")
    chained = {item.digest for item in events}
    problems += [f"{tag} is not in the chain" for tag, digest in sorted(tagged.items()) if digest not in chained]
    for item in events:
        problems += _faults(item, channel, allowed)
    return ChannelLog(
        channel=channel,
        now=now,
        head=events[0].digest if events else "",
        events=tuple(events),
        problems=tuple(problems),
    )


def _is_event(tag: str, stem: str) -> bool:
    return tag.startswith(stem) and tag[len(stem) :].isdecimal()


def _walk(layout: Layout, head: Digest, keys: tuple[PublicKey, ...]) -> tuple[list[LoggedEvent], list[str]]:
    events: list[LoggedEvent] = []
    while head:
        try:
            item = read_event(layout, head, keys)
        except RegistryError as error:
            return events, [error.message]
        if events and events[-1].event.seq != item.event.seq + 1:
            return events, [f"event {events[-1].event.seq} follows event {item.event.seq}"]
        if events and events[-1].event.before != item.event.after:
            return [*events, item], [f"event {events[-1].event.seq} starts from another version than the one before it"]
        events.append(item)
        head = item.event.prev
    gap = [f"the chain begins with event {events[-1].event.seq}"] if events and events[-1].event.seq != 1 else []
    return events, gap


def _faults(item: LoggedEvent, channel: str, allowed: tuple[str, ...]) -> list[str]:
    seq, found = item.event.seq, []
    if item.event.channel != channel:
        found.append(f"event {seq} is of the channel {item.event.channel}")
    if item.signature == "invalid":
        found.append(f"event {seq} has a broken signature")
    if allowed and (item.key not in allowed or item.signature != "verified"):
        found.append(f"event {seq} is not signed by a key that may move this channel ({item.signature})")
    return found


def _bad(what: str, why: str) -> RegistryError:
    return RegistryError("CNV-9008", f"{what} is not valid: {why}", hint="see `artifacts log` and `artifacts fsck`")
