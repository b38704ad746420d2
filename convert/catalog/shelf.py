"""One model in the registry, a folder or an OCI registry, seen as a layout on this machine.

For a folder it is the layout itself. For ``oci://…`` it is a temporary one with the documents of what matters (every
version's index, the newest version and the drafts in full, what is attached to their targets) and no weights; what was
changed in it is pushed back by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from artifacts.attach import tag_stem
from artifacts.digest import Digest
from artifacts.layout import Layout
from artifacts.names import is_version_tag, target_tag, version_key, version_of_tag, version_tag
from artifacts.oci import MANIFEST_TYPE, PREFIX, Descriptor
from artifacts.registry import Registry, root_of
from artifacts.release import target_key
from artifacts.resolve import load_facts
from artifacts.scratch import temporary_folder
from artifacts.versions import Versions

if TYPE_CHECKING:
    from artifacts.remote import Remote

DRAFT = "draft-"


class Shelf:
    """A model's place. ``root`` is a registry folder that has the model at ``layout``."""

    def __init__(self, registry: str, name: str, root: Path, *, remote: bool) -> None:
        self.registry = registry
        self.name = name
        self.root = root
        self.remote = remote
        self.layout = Registry(root).layout(name)

    def versions(self) -> Versions:
        """What its refs mean now."""
        return Versions(self.layout, self.layout.refs() if self.layout.exists else ())

    def create(self) -> Layout:
        """The layout, made where it isn't there."""
        Registry(self.root).create()
        self.layout.create()
        return self.layout

    def open_remote(self) -> Remote:
        """The repository of a model in an OCI registry."""
        from artifacts.remote import Remote, parse_address

        return Remote(parse_address(self.registry).child(self.name))

    def fetch_attached(self, subject: Digest) -> None:
        """Bring what is attached to a manifest, so that what is attached here gets the number after it."""
        if self.remote:
            from artifacts.transfer import fetch_documents, set_refs

            with self.open_remote() as remote:
                mine = [tag for tag in remote.tags() if tag.startswith(tag_stem(subject))]
                set_refs(self.layout, [fetch_documents(remote, self.layout, tag) for tag in mine], self.registry)

    def fetch_tag(self, tag: str) -> None:
        """Bring one tag's documents, where the remote has it."""
        if self.remote:
            from artifacts.transfer import fetch_documents, set_refs

            with self.open_remote() as remote:
                if remote.find_manifest(tag) is not None:
                    set_refs(self.layout, [fetch_documents(remote, self.layout, tag)], self.registry)

    def fetch_blobs(self, blobs: Iterable[Descriptor]) -> None:
        """Bring blobs that are not here yet."""
        if self.remote:
            from artifacts.transfer import fetch_blobs

            with self.open_remote() as remote:
                fetch_blobs(remote, self.layout, blobs)

    def fetch_channel(self, channel: str) -> None:
        """Bring a channel with its history, so that it can be moved."""
        if self.remote:
            from artifacts.transfer import fetch_documents, set_refs

            with self.open_remote() as remote:
                stems = (f"event-{channel}-", f"{channel}-")
                wanted = [tag for tag in remote.tags() if tag == channel or tag.startswith(stems)]
                set_refs(self.layout, [fetch_documents(remote, self.layout, tag) for tag in wanted], self.registry)

    def send(self, tags: Iterable[str]) -> None:
        """Push refs with all that belongs to them; nothing to do for a folder.

        Raises:
            RegistryError: CNV-9060 to CNV-9067.
        """
        if self.remote:
            from artifacts.transfer import push

            with self.open_remote() as remote:
                push(self.layout, tuple(tags), remote)


@contextmanager
def open_shelf(registry: str, name: str) -> Iterator[Shelf]:
    """The place of a model, there or not.

    Raises:
        UsageError: CNV-2402, CNV-2430.
        RegistryError: CNV-9005 to CNV-9008, CNV-9060 to CNV-9064.
    """
    root = root_of(registry)
    if root is not None:
        yield Shelf(registry, name, root, remote=False)
        return
    with temporary_folder("model-convert") as folder:
        shelf = Shelf(registry, name, Path(folder), remote=True)
        shelf.create()
        _fetch(shelf)
        yield shelf


def _fetch(shelf: Shelf) -> None:
    from artifacts.transfer import fetch_documents, set_refs

    layout = shelf.layout
    with shelf.open_remote() as remote:
        tags = remote.tags()
        names = sorted((tag for tag in tags if is_version_tag(tag)), key=lambda tag: version_key(version_of_tag(tag)))
        drafts = [tag for tag in tags if tag.startswith(DRAFT) and not _is_done(tag, names)]
        refs = [fetch_documents(remote, layout, tag, depth=int(tag == names[-1])) for tag in names]
        refs += [fetch_documents(remote, layout, tag) for tag in drafts]
        set_refs(layout, refs, shelf.registry)
        versions = shelf.versions()
        now = [*published(layout, versions).values(), *delivered(layout, versions, open_draft(versions)).values()]
        stems = tuple(tag_stem(target.digest) for target in now)
        attached = [tag for tag in tags if tag.startswith(stems)] if stems else []
        set_refs(layout, [fetch_documents(remote, layout, tag) for tag in attached], shelf.registry)


def _is_done(draft: str, versions: list[str]) -> bool:
    """Whether a draft's tag is a leftover: its version was published since."""
    rest = draft.removeprefix(DRAFT)
    return any(rest == tag or rest.startswith(f"{tag}-") for tag in versions)


def open_draft(versions: Versions) -> str:
    """The newest version in the making; empty where there is none."""
    return max((name for name in versions.drafts if name not in versions.names), key=version_key, default="")


def draft_tag(version: str, key: str = "") -> str:
    """The tag of a draft, or of one of its targets."""
    base = f"{DRAFT}{version_tag(version)}"
    return target_tag(base, key) if key else base


def delivered(layout: Layout, versions: Versions, version: str) -> dict[str, Descriptor]:
    """The targets that a draft has, or that were delivered for it since it was written; by SoC, else target."""
    stem = f"{draft_tag(version)}-"
    found = (ref.descriptor for ref in versions.refs if ref.tag.startswith(stem))
    return _by_key(layout, (item for item in found if item.media_type == MANIFEST_TYPE))


def published(layout: Layout, versions: Versions) -> dict[str, Descriptor]:
    """The targets of the newest version; by SoC, else target."""
    return _by_key(layout, versions.targets(versions.newest)) if versions.newest else {}


def _by_key(layout: Layout, targets: Iterable[Descriptor]) -> dict[str, Descriptor]:
    whole = [msgspec.structs.replace(item, annotations=_facts(layout, item)) for item in targets]
    return {target_key(item): item for item in whole}


def _facts(layout: Layout, target: Descriptor) -> dict[str, str]:
    """The annotations of a target in an index; a tag that came from a remote lacks them."""
    return {PREFIX + name: value for name, value in load_facts(layout, target).items() if value}
