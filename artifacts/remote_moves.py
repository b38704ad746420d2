"""Channels, history, attachments and lists of an OCI registry, without a registry folder.

A repository's documents (never its weights) are brought into a temporary folder, what is asked happens there with the
rules of a registry folder, and what changed is pushed back: the event first, the channel's tags last.

Tags of the distribution API know no compare-and-swap. An event's tag has a number, and one that is there with other
content is never overwritten, so of two who move a channel at once the second one finds the number taken. Between that
look and the write there is a gap of one request; so event and channel are read back at the end, and whoever lost is
told. A registry with a rule that makes ``event-*`` immutable closes the gap.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from artifacts.attach import Attached, attach, tag_stem
from artifacts.channels import Move, Moved, channel_log, check_channel, promote, rollback
from artifacts.durable import reading
from artifacts.errors import RegistryError, UsageError
from artifacts.events import ChannelLog, event_tag
from artifacts.http_options import HttpOptions
from artifacts.keys import PrivateKey, PublicKey
from artifacts.layout import Layout
from artifacts.listing import ListedModel, list_model
from artifacts.names import is_version_tag, parse_ref, version_tag
from artifacts.oci import MANIFEST_TYPE
from artifacts.place import newest_tag
from artifacts.registry import REGISTRY_FILE, Registry
from artifacts.remote import Remote, parse_address
from artifacts.scratch import temporary_folder
from artifacts.transfer import closure, fetch_documents, push, set_refs
from artifacts.versions import Versions, is_event_tag


class _Work:
    """A temporary registry folder with some documents of one repository."""

    def __init__(self, remote: Remote, root: Path, name: str) -> None:
        self.remote = remote
        self.root = root
        self.layout = Registry(root).layout(name)
        self.layout.create()
        self.there = remote.tags()

    def bring(self, tags: Iterable[str], *, depth: int = 1, documents: bool = True) -> None:
        """Bring manifests under their tags; with ``documents`` their small layers too."""
        small = {} if documents else {"small": 0}
        found = [fetch_documents(self.remote, self.layout, tag, depth=depth, **small) for tag in tags]
        set_refs(self.layout, found, str(self.remote.address))

    def bring_history(self, channel: str) -> None:
        """Bring a channel with its events, and every version's index."""
        self.bring((tag for tag in self.there if is_version_tag(tag)), depth=0, documents=False)
        events = [tag for tag in self.there if is_event_tag(tag) and tag.rpartition("-")[0] == f"event-{channel}"]
        self.bring([*events, *([channel] if channel in self.there else [])])

    def push_move(self, moved: Moved) -> Moved:
        """Push a channel that was moved here, and look whether it stayed so.

        Raises:
            RegistryError: CNV-9042, when somebody else moved it at the same time.
        """
        if moved.already:
            return moved
        try:
            push(self.layout, (moved.channel,), self.remote)
        except RegistryError as error:
            if error.code not in ("CNV-9065", "CNV-9067"):
                raise
            raise self._lost(moved) from error
        for tag, digest in ((event_tag(moved.channel, moved.seq), moved.event), (moved.channel, moved.after)):
            back = self.remote.find_manifest(tag)
            if back is None or back.descriptor.digest != digest:
                raise self._lost(moved)
        return moved

    def _lost(self, moved: Moved) -> RegistryError:
        return RegistryError(
            "CNV-9042",
            f"somebody moved {self.remote.address}:{moved.channel} at the same time",
            hint="look at `artifacts log`, and decide again",
        )


@contextlib.contextmanager
def _work(registry: str, name: str, options: HttpOptions | None, policy: Path | None = None) -> Iterator[_Work]:
    address = parse_address(registry).child(parse_ref(name).name)
    with temporary_folder("model-convert") as folder, Remote(address, options) as remote:
        if policy is not None:
            with reading(f"reading {policy}"):
                (Path(folder) / REGISTRY_FILE).write_bytes(policy.read_bytes())
            Registry(Path(folder)).policy()
        yield _Work(remote, Path(folder), name)


def promote_remote(
    registry: str,
    text: str,
    move: Move,
    key: PrivateKey | None = None,
    *,
    policy: Path | None = None,
    options: HttpOptions | None = None,
) -> Moved:
    """Point a channel of an OCI registry to a version, as :func:`artifacts.channels.promote` does in a folder.

    ``policy``: a ``registry.json`` with the channels' rules; without it they are the defaults.

    Raises:
        UsageError: CNV-2404, CNV-2420, CNV-2421, CNV-2430.
        RegistryError: CNV-9040 to CNV-9043, CNV-9002, CNV-9010, CNV-9060 to CNV-9067.
    """
    ref = parse_ref(text)
    check_channel(move.channel)
    with _work(registry, ref.name, options, policy) as work:
        work.bring_history(move.channel)
        wanted = ref.tag or ("" if ref.digest else newest_tag(work.remote))
        work.bring([wanted] if wanted else [])
        return work.push_move(promote(work.root, str(msgspec.structs.replace(ref, tag=wanted)), move, key))


def rollback_remote(
    registry: str,
    name: str,
    move: Move,
    *,
    to: str = "",
    key: PrivateKey | None = None,
    policy: Path | None = None,
    options: HttpOptions | None = None,
) -> Moved:
    """Point a channel of an OCI registry back, as :func:`artifacts.channels.rollback` does in a folder.

    Raises:
        UsageError: CNV-2420, CNV-2430, CNV-2442.
        RegistryError: CNV-9041 to CNV-9044, CNV-9060 to CNV-9067.
    """
    check_channel(move.channel)
    with _work(registry, name, options, policy) as work:
        work.bring_history(move.channel)
        had = {item.event.version for item in channel_log(work.root, name, move.channel).events}
        tags = {version_tag(version) for version in had}.intersection(work.there)
        work.bring(sorted(tags), documents=False)
        return work.push_move(rollback(work.root, name, move, to=to, key=key))


def log_remote(
    registry: str, name: str, channel: str, keys: tuple[PublicKey, ...] = (), *, options: HttpOptions | None = None
) -> ChannelLog:
    """The history of a channel in an OCI registry, checked.

    Raises:
        UsageError: CNV-2420, CNV-2430.
        RegistryError: CNV-9002 (no such channel), CNV-9060 to CNV-9064.
    """
    check_channel(channel)
    with _work(registry, name, options) as work:
        work.bring_history(channel)
        return channel_log(work.root, name, channel, keys)


def attach_remote(
    registry: str,
    text: str,
    files: Iterable[Path],
    *,
    artifact_type: str,
    target: str = "",
    options: HttpOptions | None = None,
) -> Attached:
    """Attach files to a version or target in an OCI registry, as :func:`artifacts.attach.attach` does in a folder.

    Raises:
        UsageError: CNV-2404, CNV-2406, CNV-2430, CNV-2441 (a digest without a tag).
        RegistryError: CNV-9002, CNV-9010, CNV-9015, CNV-9060 to CNV-9066.
    """
    ref = parse_ref(text)
    if ref.digest and not ref.tag:
        raise UsageError(
            "CNV-2441", f"{ref} names no tag", hint="in an OCI registry name the version or target by its tag"
        )
    with _work(registry, ref.name, options) as work:
        tag = ref.tag or newest_tag(work.remote)
        work.bring([tag])
        stems = tuple(tag_stem(digest) for digest in _manifests(work.layout))
        work.bring((name for name in work.there if name.startswith(stems)), documents=False)
        done = attach(work.root, f"{ref.name}:{tag}", files, artifact_type=artifact_type, target=target)
        push(work.layout, (tag,), work.remote)
    return done


def _manifests(layout: Layout) -> set[str]:
    """The digests of all manifests that a layout's tags lead to, attachments aside."""
    refs = layout.refs()
    versions = Versions(layout, refs)
    found = {ref.descriptor.digest for ref in closure(layout, refs, [ref.tag for ref in refs])}
    for ref in refs:
        if ref.descriptor.media_type != MANIFEST_TYPE:
            found |= {child.digest for child in versions.index(ref.descriptor).manifests}
    return found


def list_remote(registry: str, pattern: str = "", *, options: HttpOptions | None = None) -> tuple[ListedModel, ...]:
    """The models below ``oci://HOST/PROJECT`` whose name contains ``pattern``; a model's own address lists that one.

    Raises:
        UsageError: CNV-2430.
        RegistryError: CNV-9062 (the registry gives no list), CNV-9060, CNV-9061, CNV-9064.
    """
    address = parse_address(registry)
    with Remote(address, options) as remote:
        own = bool(address.path) and any(is_version_tag(tag) for tag in remote.tags())
        repositories = [address.path] if own else remote.catalog()
    prefix = f"{address.path}/" if address.path and not own else ""
    found = []
    for repository in sorted(repositories):
        name = repository.removeprefix(prefix)
        if repository.startswith(prefix) and (own or pattern in name):
            found.append(_listed(f"oci://{address.host}", repository, name, options))
    return tuple(found)


def _listed(registry: str, repository: str, name: str, options: HttpOptions | None) -> ListedModel:
    try:
        with _work(registry, repository, options) as work:
            hidden = ("sha256-", "event-", "deleted-")
            tags = [tag for tag in work.there if not tag.startswith(hidden)]
            versions = [tag for tag in tags if is_version_tag(tag)]
            pointers = [tag for tag in tags if not tag[:1].isdigit()]
            work.bring([*versions, *pointers], depth=0, documents=False)
            return list_model(name, work.layout)
    except RegistryError as error:
        return ListedModel(name=name, problem=f"[{error.code}] {error.message}")
