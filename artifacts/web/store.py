"""The registry as the web reads it: lists that are remembered until ``index.json`` changes, blobs that were hashed."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from urllib.parse import urlencode

from artifacts.attach import find_attachments
from artifacts.channels import Move, Moved, channel_log, promote
from artifacts.device_results import FoundResult, find_results
from artifacts.digest import sha256_file
from artifacts.durable import reading
from artifacts.errors import RegistryError, UsageError
from artifacts.events import ChannelLog
from artifacts.fetch_commands import download_script, remote_fetch_commands
from artifacts.keys import PrivateKey
from artifacts.layout import Layout, corrupt_blob, missing_blob
from artifacts.list_cache import Stamp, index_stamp
from artifacts.listing import ListedModel, Shown, ShownTarget, list_remembered, show
from artifacts.names import parse_ref
from artifacts.registry import Registry
from artifacts.trust import Trust, check_ref
from artifacts.web.diff import diff_versions
from artifacts.web.values import (
    AttachedFile,
    Fetch,
    FetchText,
    Models,
    Signatures,
    VersionDiff,
    VersionPage,
)

PAGE = 50
RECHECK_SECONDS = 3600.0
"""How long a file that was hashed is believed while its size and times stay as they are."""
MAX_REMEMBERED = 10_000


class WebStore:
    """A registry folder behind the web. Safe for use by several threads."""

    def __init__(self, root: Path, trust: Trust, *, remote: str = "") -> None:
        self.registry = Registry(root)
        self.trust = trust
        self.remote = remote
        self._lists: dict[str, tuple[Stamp, ListedModel]] = {}
        self._hashed: dict[Path, tuple[Stamp, float]] = {}
        self._lock = threading.Lock()

    # ----------------------------------------------------------------------------------------------------------- lists

    def models(self, pattern: str = "", page: int = 1) -> Models:
        """One page of the models whose name contains ``pattern``."""
        names = [name for name in self.registry.models() if pattern in name]
        pages = max(1, -(-len(names) // PAGE))
        page = min(max(page, 1), pages)
        chosen = names[(page - 1) * PAGE : page * PAGE]
        return Models(models=tuple(map(self._listed, chosen)), total=len(names), page=page, pages=pages)

    def every_model(self) -> tuple[ListedModel, ...]:
        """All models."""
        return tuple(map(self._listed, self.registry.models()))

    def model(self, name: str) -> ListedModel:
        """One model.

        Raises:
            UsageError: CNV-2402.
            RegistryError: CNV-9001.
        """
        self.registry.open_model(name)
        return self._listed(name)

    def _listed(self, name: str) -> ListedModel:
        layout = self.registry.layout(name)
        try:
            stamp = index_stamp(layout)
            with self._lock:
                known = self._lists.get(name)
            if known is not None and known[0] == stamp:
                return known[1]
            listed = list_remembered(self.registry, name)
        except RegistryError as error:
            told = error.message.replace(str(self.registry.root), "REGISTRY")
            return ListedModel(name=name, problem=f"[{error.code}] {told}")
        with self._lock:
            if len(self._lists) > MAX_REMEMBERED:
                self._lists.clear()
            self._lists[name] = (stamp, listed)
        return listed

    # -------------------------------------------------------------------------------------------------------- versions

    def version(self, text: str) -> VersionPage:
        """All of a version or target.

        Raises:
            UsageError: CNV-2402, CNV-2404.
            RegistryError: CNV-9001, CNV-9002, and those of reading.
        """
        ref = parse_ref(text)
        shown = show(self.registry.root, ref)
        layout = self.registry.layout(ref.name)
        return VersionPage(
            shown=shown,
            signatures=self.signatures(shown.ref).checks,
            attachments=_attachments(layout, shown),
            measured=self._measured(layout, shown),
            diff=self.diff(shown.ref) if shown.kind == "version" else None,
        )

    def _measured(self, layout: Layout, shown: Shown) -> dict[str, tuple[FoundResult, ...]]:
        refs, keys = layout.refs(), self.trust.keys
        return {target.digest: find_results(layout, refs, target.digest, keys) for target in shown.targets}

    def diff(self, text: str, against: str = "") -> VersionDiff | None:
        """What differs from another version (the one that ``prod`` has now) to this one; None where that is the same.

        Raises:
            RegistryError: CNV-9001, CNV-9002 (``against`` is named and isn't there).
        """
        ref = parse_ref(text)
        after = show(self.registry.root, ref)
        if not against and "prod" not in _tags(self.registry.layout(ref.name)):
            return None
        before = show(self.registry.root, parse_ref(f"{ref.name}:{against or 'prod'}"))
        return None if before.digest == after.digest else diff_versions(before, after)

    def signatures(self, text: str) -> Signatures:
        """The signatures of a version or target, judged by the keys that this server trusts."""
        return Signatures(ref=text, checks=check_ref(self.registry.root, text, self.trust))

    def log(self, name: str, channel: str) -> ChannelLog:
        """The history of a channel."""
        return channel_log(self.registry.root, name, channel, self.trust.keys)

    def fetch(self, text: str, server: str) -> Fetch:
        """How to fetch a version's targets with standard tools: from this server, or the OCI registry that is shared.

        ``server`` is the address by which the visitor reached this server; where the folder lies is not told.
        """
        shown = show(self.registry.root, parse_ref(text))
        return Fetch(targets=tuple(self._fetch_text(shown, target, server.rstrip("/")) for target in shown.targets))

    def _fetch_text(self, shown: Shown, target: ShownTarget, server: str) -> FetchText:
        if self.remote:
            commands = remote_fetch_commands(self.remote, target)
            return FetchText(ref=target.ref, scripts={"skopeo": commands.skopeo, "curl": commands.curl})
        query = {"ref": shown.ref, "target": target.soc or target.target}
        urls = {entry.name: f"{server}/download?{urlencode({**query, 'file': entry.name})}" for entry in target.files}
        return FetchText(ref=target.ref, scripts={"curl": download_script(target, urls)})

    # ----------------------------------------------------------------------------------------------------------- files

    def file(self, text: str, target: str, name: str, attachment: str = "") -> Path:
        """The path of a file of a target, or of something attached, hashed before it is handed out.

        Raises:
            UsageError: CNV-2402, CNV-2404.
            RegistryError: CNV-9001, CNV-9002, CNV-9006, CNV-9007, CNV-9074 (no such file).
        """
        ref = parse_ref(text)
        shown = show(self.registry.root, ref)
        layout = self.registry.layout(ref.name)
        if attachment:
            attached = (item for items in _attachments(layout, shown).values() for item in items)
            named = [item for item in attached if (item.tag, item.name) == (attachment, name)]
            digests = [item.sha256 for item in named]
        else:
            files = [
                entry
                for item in shown.targets
                if not target or target.lower() in (item.target.lower(), item.soc.lower())
                for entry in item.files
            ]
            digests = sorted({entry.sha256 for entry in files if entry.name == name})
        if len(digests) != 1:
            why = "no such file" if not digests else "several targets have that file"
            raise RegistryError("CNV-9074", f"{shown.ref}: {why}", hint="name the target and the file as the page does")
        return self._checked(layout, digests[0], name)

    def _checked(self, layout: Layout, digest: str, name: str) -> Path:
        path = layout.blob_path(digest)
        if not path.is_file():
            raise missing_blob(f"the file {name}", digest)
        stamp = _stamp(path)
        with self._lock:
            known = self._hashed.get(path)
        if known is not None and known[0] == stamp and time.monotonic() < known[1]:
            return path
        with reading(f"reading {path}"):
            good = sha256_file(path) == digest and _stamp(path) == stamp
        if not good:
            raise corrupt_blob(f"the file {name}", digest)
        with self._lock:
            if len(self._hashed) > MAX_REMEMBERED:
                self._hashed.clear()
            self._hashed[path] = (stamp, time.monotonic() + RECHECK_SECONDS)
        return path

    # --------------------------------------------------------------------------------------------------------- promote

    def promote(self, ref: str, move: Move, key: PrivateKey | None) -> Moved:
        """Point a channel to a version; ``expect`` must be given, so that nobody moves what he hasn't seen.

        Raises:
            UsageError: CNV-2444, and those of :func:`artifacts.channels.promote`.
        """
        if not move.expect:
            raise UsageError("CNV-2444", "expect is missing", hint="name the version that the channel has now, or none")
        return promote(self.registry.root, ref, move, key)


def _tags(layout: Layout) -> set[str]:
    return {ref.tag for ref in layout.refs()}


def _attachments(layout: Layout, shown: Shown) -> dict[str, tuple[AttachedFile, ...]]:
    refs = layout.refs()
    found = {}
    for digest in (shown.digest, *(target.digest for target in shown.targets)):
        found[digest] = tuple(
            AttachedFile(
                tag=item.tag,
                artifact_type=item.image.artifact_type or "",
                name=layer.title or layer.digest.removeprefix("sha256:")[:12],
                sha256=layer.digest,
                bytes=layer.size,
            )
            for item in find_attachments(layout, refs, digest)
            for layer in item.image.layers
        )
    return found


def _stamp(path: Path) -> Stamp:
    with reading(f"reading {path.name}"):
        status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
