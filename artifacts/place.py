"""Where artifacts are: a registry folder, an OCI registry (``oci://…``), or an archive; and copying between them."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from artifacts.archive import SCHEME as ARCHIVE
from artifacts.archive import export_archive, import_archive
from artifacts.attach import find_attachments
from artifacts.cards import Card
from artifacts.digest import FileEntry, sha256_file
from artifacts.durable import make_folders, reading, writing
from artifacts.errors import RegistryError, UsageError
from artifacts.http_options import HttpOptions
from artifacts.layout import Layout
from artifacts.names import Ref, base_version, is_version_tag, parse_ref, version_key, version_of_tag, version_tag
from artifacts.oci import INDEX_TYPE, MANIFEST_TYPE, parse_image
from artifacts.publish import Published, PublishRequest, publish
from artifacts.pull import Pulled, pull
from artifacts.registry import Registry
from artifacts.remote import SCHEME, Address, Remote, parse_address
from artifacts.resolve import choose_target, load_target, resolve, targets_of
from artifacts.scratch import temporary_folder
from artifacts.transfer import (
    closure,
    fetch,
    fetch_attachments,
    fetch_blobs,
    fetch_documents,
    push,
    set_refs,
    version_refs,
)
from artifacts.trust import Trust
from artifacts.versions import Versions

PUBLISH_TRIES = 3


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What was copied where. ``tags``: all that are at the destination now."""

    source: str
    destination: str
    tags: tuple[str, ...]


def is_remote(text: str) -> bool:
    """Whether a registry is named by an ``oci://`` address."""
    return text.startswith(SCHEME)


# --------------------------------------------------------------------------------------------------------------- pull


def pull_remote(
    registry: str,
    text: str,
    out: Path | None = None,
    *,
    target: str = "",
    soc: str = "",
    cards: Sequence[Card] | None = None,
    trust: Trust | None = None,
    options: HttpOptions | None = None,
) -> Pulled:
    """Pull one target from an OCI registry into a folder, as :func:`artifacts.pull.pull` does from a registry folder.

    Only the chosen target's files are downloaded, each once. A pull that was cut off goes on where it stopped when it
    is run again.

    Raises:
        UsageError: CNV-2404, CNV-2405, CNV-2430.
        RegistryError: CNV-9002, CNV-9010, CNV-9071, CNV-9072, CNV-9030, CNV-9060 to CNV-9064, and those of ``pull``.
        ResourceLimit: CNV-1003.
    """
    ref = parse_ref(text)
    parent = Path.cwd() if out is None else out.absolute().parent
    key = hashlib.sha256(f"{registry} {text} {target} {soc}".encode()).hexdigest()[:12]
    work = parent / f".model-convert-pull-{key}"
    with _remote(registry, ref.name, options) as remote:
        _drop_damaged(Registry(work).layout(ref.name))
        root, found = _view(remote, work, ref)
        layout, resolved = resolve(Registry(root), found)
        chosen = choose_target(layout, resolved, target=target, soc=soc, cards=cards)
        set_refs(layout, fetch_attachments(remote, layout, [chosen.digest], remote.tags()), registry)
        stored = load_target(layout, chosen)
        attached = find_attachments(layout, layout.refs(), chosen.digest)
        records = [layer for item in attached if item.kind in ("run", "sig") for layer in item.image.layers]
        fetch_blobs(remote, layout, (*stored.image.layers, *records))
    pulled = pull(root, str(found), out, target=target, soc=soc, cards=cards, trust=trust, take=True)
    shutil.rmtree(work, ignore_errors=True)
    return pulled


def _drop_damaged(layout: Layout) -> None:
    """Delete what an earlier run left and isn't what its name says, before any of it is trusted."""
    for entry in layout.stored() if layout.exists else ():
        path = Path(entry.path)
        with reading(f"reading {path}"):
            if not entry.is_file(follow_symlinks=False) or sha256_file(path) != f"sha256:{entry.name}":
                path.unlink()


@contextlib.contextmanager
def remote_view(registry: str, text: str, *, whole: bool, options: HttpOptions | None = None) -> Iterator[Path]:
    """A temporary registry folder with what ``text`` names in an OCI registry: documents alone, or ``whole``.

    Raises:
        UsageError: CNV-2404, CNV-2430.
        RegistryError: CNV-9002, CNV-9060 to CNV-9064.
    """
    ref = parse_ref(text)
    with temporary_folder("model-convert") as work, _remote(registry, ref.name, options) as remote:
        root, found = _view(remote, Path(work), ref)
        layout, resolved = resolve(Registry(root), found)
        if whole and resolved.tag:
            fetch(remote, layout, (resolved.tag,))
        for descriptor in targets_of(layout, resolved) if whole else ():
            fetch_blobs(remote, layout, load_target(layout, descriptor).image.layers)
        yield root


def _remote(registry: str, name: str, options: HttpOptions | None) -> Remote:
    return Remote(parse_address(registry).child(name), options)


def _view(remote: Remote, work: Path, ref: Ref) -> tuple[Path, Ref]:
    """A registry folder in ``work`` with the documents of one reference, and the reference in it."""
    with writing(f"creating {work}"):
        make_folders(work)
    layout = Registry(work).layout(ref.name)
    layout.create()
    tag = ref.tag or ref.digest or newest_tag(remote)
    found = fetch_documents(remote, layout, tag)
    # A manifest that was asked for by digest has no tag; in the view it needs one to be found.
    named = msgspec.structs.replace(found, tag=found.tag or "pulled")
    set_refs(layout, [named, *version_refs(remote, layout, found)], str(remote.address))
    return work, Ref(name=ref.name, tag=found.tag, digest=ref.digest)


def newest_tag(remote: Remote) -> str:
    """The tag of the newest version in a repository.

    Raises:
        RegistryError: CNV-9002, when it has no version.
    """
    tags = [tag for tag in remote.tags() if is_version_tag(tag)]
    for tag in sorted(tags, key=lambda tag: version_key(version_of_tag(tag)), reverse=True):
        found = remote.find_manifest(tag)
        if found is not None and found.descriptor.media_type == INDEX_TYPE:
            return tag
    raise RegistryError("CNV-9002", f"{remote.address} has no version", hint="check the address and the model's name")


# ------------------------------------------------------------------------------------------------------------ publish


def publish_remote(registry: str, request: PublishRequest, work: Path, options: HttpOptions | None = None) -> Published:
    """Publish a version into an OCI registry, with the rules of :func:`artifacts.publish.publish`.

    Args:
        registry: ``oci://host/project``; the model becomes the repository below it.
        request: What to publish.
        work: A folder for a temporary layout, best on the file system of the files (they are then linked if allowed).
        options: TLS, deadline.

    Raises:
        UsageError: CNV-2402, CNV-2403, CNV-2430.
        RegistryError: CNV-9009, CNV-9016, CNV-9011, CNV-9060 to CNV-9066.
        ResourceLimit: CNV-1003.
    """
    with _remote(registry, request.name, options) as remote:
        for turn in range(PUBLISH_TRIES):
            done = _publish_local(remote, request, work / f"publish-{turn}")
            try:
                push(Registry(work / f"publish-{turn}").layout(request.name), (version_tag(done.version),), remote)
                break
            except RegistryError as error:
                if error.code != "CNV-9065" or request.version or turn + 1 == PUBLISH_TRIES:
                    raise
    return msgspec.structs.replace(done, ref=f"{remote.address}:{version_tag(done.version)}")


def _publish_local(remote: Remote, request: PublishRequest, root: Path) -> Published:
    """Publish into a temporary folder that knows the versions of the remote one."""
    Registry(root).create()
    layout = Registry(root).layout(request.name)
    layout.create()
    _fetch_versions(remote, layout, request.version)
    return publish(root, request)


def _fetch_versions(remote: Remote, layout: Layout, version: str) -> None:
    """Bring the index of every version, and the target manifests of those that ``version`` could revise."""
    tags = [tag for tag in remote.tags() if is_version_tag(tag)]
    line = {tag for tag in tags if version and base_version(version_of_tag(tag)) == base_version(version)}
    refs = [fetch_documents(remote, layout, tag, depth=int(tag in line), small=0) for tag in tags]
    set_refs(layout, refs, str(remote.address))


# --------------------------------------------------------------------------------------------------------------- copy


def copy(
    source: str, destination: str, root: Path, *, everything: bool = False, options: HttpOptions | None = None
) -> Copied:
    """Copy versions, digests unchanged, between ``NAME[:TAG]``, ``oci://…/NAME[:TAG]`` and ``oci-archive:FILE[:TAG]``.

    Args:
        source: Where from. Without a tag the newest version; of an archive, everything.
        destination: Where to; tags there are those of the source.
        root: The registry folder that plain names are in.
        everything: All versions, channels and events.
        options: TLS, deadline.

    Raises:
        UsageError: CNV-2433 (both are the same kind of thing that can't be copied), CNV-2402, CNV-2404, CNV-2430.
        RegistryError: CNV-9065 (a version is there with other content), and those of reading and writing.
        ResourceLimit: CNV-1003.
    """
    if destination.startswith((SCHEME, ARCHIVE)):
        with temporary_folder("model-convert") as work:
            layout, name, tags = _load(source, root, Path(work), everything, options)
            written = _save(layout, name, tags, destination, options)
    else:
        registry = Registry(root)
        registry.create()
        name = parse_ref(destination).name
        target = registry.layout(name)
        target.create()
        written = _into(source, root, target, everything, options)
    return Copied(source=source, destination=destination, tags=written)


def _load(
    source: str, root: Path, work: Path, everything: bool, options: HttpOptions | None
) -> tuple[Layout, str, tuple[str, ...]]:
    """A layout that has the source, its name and the tags to copy."""
    if not source.startswith((SCHEME, ARCHIVE)):
        ref = parse_ref(source)
        layout = Registry(root).open_model(ref.name)
        return layout, ref.name, _local_tags(layout, ref, everything)
    layout = Layout(work)
    layout.create()
    tags = _into(source, root, layout, everything, options)
    name = parse_address(source).path if is_remote(source) else "model"
    return layout, name, tags


def _save(
    layout: Layout, name: str, tags: tuple[str, ...], destination: str, options: HttpOptions | None
) -> tuple[str, ...]:
    if not is_remote(destination):
        return export_archive(layout, name, tags, Path(destination.removeprefix(ARCHIVE))).tags
    with Remote(_repository(destination), options) as remote:
        return push(layout, tags, remote).tags


def _into(source: str, root: Path, target: Layout, everything: bool, options: HttpOptions | None) -> tuple[str, ...]:
    if is_remote(source):
        address = _repository(source)
        with Remote(address, options) as remote:
            if everything:
                tags = tuple(tag for tag in remote.tags() if not tag.startswith(("sha256-", "event-")))
            else:
                tags = (address.tag or newest_tag(remote),)
            return fetch(remote, target, tags)
    if source.startswith(ARCHIVE):
        path, _, tag = source.removeprefix(ARCHIVE).partition(":")
        return import_archive(Path(path), target, (tag,) if tag else ()).tags
    ref = parse_ref(source)
    layout = Registry(root).open_model(ref.name)
    if layout.root == target.root:
        raise UsageError("CNV-2433", f"{source} would be copied onto itself", hint="give the copy another name")
    return _copy_local(layout, target, _local_tags(layout, ref, everything))


def _repository(text: str) -> Address:
    address = parse_address(text)
    if not address.path:
        raise UsageError("CNV-2430", f"{text} names no repository", hint="write oci://HOST/PROJECT/NAME")
    return address


def _local_tags(layout: Layout, ref: Ref, everything: bool) -> tuple[str, ...]:
    refs = layout.refs()
    if everything:
        return tuple(item.tag for item in refs if item.tag)
    tag = ref.tag or version_tag(Versions(layout, refs).newest)
    if tag not in {item.tag for item in refs}:
        raise RegistryError(
            "CNV-9002", f"{ref.name} has no {tag or 'version'}", hint=f"see `artifacts show {ref.name}`"
        )
    return (tag,)


def _copy_local(source: Layout, target: Layout, tags: tuple[str, ...]) -> tuple[str, ...]:
    refs = closure(source, source.refs(), tags)
    for ref in refs:
        digest = ref.descriptor.digest
        data = source.read_blob(digest, f"the manifest {digest}")
        target.put_bytes(data)
        if ref.descriptor.media_type == MANIFEST_TYPE:
            image = parse_image(data, f"the manifest {digest}")
            for blob in (image.config, *image.layers):
                entry = FileEntry(name=blob.title or blob.digest, sha256=blob.digest, bytes=blob.size)
                target.put_file(source.blob_path(blob.digest), entry, link=True)
    return set_refs(target, list(refs), str(source.root))
