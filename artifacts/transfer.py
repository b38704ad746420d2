"""Moving versions between a registry folder and a repository of an OCI registry, digests unchanged.

push:   blobs ─▶ target manifests, each under its tag ─▶ version index ─▶ attachments ─▶ events ─▶ channels last
fetch:  manifests and small documents ─▶ the chosen blobs ─▶ refs, in one rename
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

import msgspec

from artifacts.attach import tag_stem
from artifacts.digest import Digest
from artifacts.durable import make_folders, writing
from artifacts.errors import RegistryError
from artifacts.events import EVENT_ANNOTATION
from artifacts.layout import Layout, LayoutRef, missing_blob
from artifacts.names import TAG_PATTERN, is_version_tag, target_tag, version_of_tag, version_tag
from artifacts.oci import INDEX_TYPE, MANIFEST_TYPE, VERSION, Descriptor, ImageManifest, parse_image, parse_index
from artifacts.release import revive, target_key
from artifacts.remote import Found, Remote
from artifacts.strictjson import parse_json

_ATTACHMENT = re.compile(r"(?:sha256-[0-9a-f]{64}\.|deleted-).+")
_EVENT = re.compile(r"event-(.+)-[0-9]{6}")
DOC_BYTES = 1 << 20
"""Layers up to this size are documents, and are fetched with their manifest."""


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """What a push did. ``uploaded``: bytes that the registry didn't have; ``tags``: all that now point there."""

    address: str
    tags: tuple[str, ...]
    blobs: int
    uploaded: int
    already: bool


# --------------------------------------------------------------------------------------------------------------- push


def closure(layout: Layout, refs: tuple[LayoutRef, ...], tags: Iterable[str]) -> tuple[LayoutRef, ...]:
    """The refs to push so that ``tags`` arrive whole, in the order in which they may appear.

    A version brings its targets' tags, both what is attached to them; a channel brings its version and its events.

    Raises:
        RegistryError: CNV-9006 to CNV-9008.
    """
    by_tag = {ref.tag: ref for ref in refs if ref.tag}
    chosen = {name for tag in tags if tag in by_tag for name in _family(layout, by_tag, tag)}
    wanted = {digest for tag in chosen for digest in _manifests_of(layout, by_tag[tag].descriptor)}
    stems = [tag_stem(digest) for digest in wanted]
    while stems:
        new = {tag for tag in by_tag if tag not in chosen and tag.startswith(tuple(stems))}
        chosen |= new
        stems = [tag_stem(by_tag[tag].descriptor.digest) for tag in new]
    return tuple(sorted((by_tag[tag] for tag in chosen), key=lambda ref: (_rank(ref), ref.tag)))


def _family(layout: Layout, by_tag: dict[str, LayoutRef], tag: str) -> set[str]:
    """A tag with those of its targets; for a channel also its version's, and its events."""
    descriptor = by_tag[tag].descriptor
    if descriptor.media_type != INDEX_TYPE:
        return {tag}
    family = {tag, *target_tags(layout, descriptor, tag)}
    if not is_version_tag(tag):
        for name, ref in by_tag.items():
            if is_version_tag(name) and ref.descriptor.digest == descriptor.digest:
                family |= {name, *target_tags(layout, descriptor, name)}
            event = _EVENT.fullmatch(name)
            if event and event.group(1) == tag:
                family.add(name)
    return family & by_tag.keys()


def target_tags(layout: Layout, index: Descriptor, tag: str) -> tuple[str, ...]:
    """The tags of an index's targets under a version's or channel's tag."""
    what = f"the index {index.digest}"
    targets = parse_index(layout.read_blob(index.digest, what), what).manifests
    return tuple(target_tag(tag, target_key(target)) for target in targets)


def _rank(ref: LayoutRef) -> int:
    """Manifests before indexes, then attachments, then events, and what may move last."""
    if _ATTACHMENT.fullmatch(ref.tag):
        return 2
    if _EVENT.fullmatch(ref.tag):
        return 3
    if _is_pointer(ref):
        return 4
    return 1 if ref.descriptor.media_type == INDEX_TYPE else 0


def push(layout: Layout, tags: tuple[str, ...], remote: Remote, *, mount_from: str = "") -> Pushed:
    """Push refs with all that belongs to them. Repeating it is cheap and changes nothing.

    Args:
        layout: The model's layout.
        tags: Versions, targets or channels.
        remote: The repository.
        mount_from: Another repository of the same registry that may have the blobs already.

    Raises:
        RegistryError: CNV-9065 (a version or event is there with other content), CNV-9067 (a channel there was moved
            since), CNV-9060 to CNV-9066.
    """
    refs = closure(layout, layout.refs(), tags)
    present = {ref.tag: _remote_digest(remote, ref) for ref in refs}
    for ref in refs:
        if not _is_pointer(ref) and present[ref.tag] not in ("", ref.descriptor.digest):
            raise RegistryError(
                "CNV-9065",
                f"{remote.address}:{ref.tag} is there with other content:"
                f" {present[ref.tag]}, not {ref.descriptor.digest}",
                hint="a version never changes; publish under another version, or find out who pushed the other one",
            )
    _refuse_behind({ref.tag for ref in refs}, remote.tags() if any(map(_is_pointer, refs)) else (), str(remote.address))
    missing = tuple(ref for ref in refs if present[ref.tag] != ref.descriptor.digest)
    uploaded, blobs = 0, _blobs(layout, missing)
    for blob in blobs:
        if not remote.has_blob(blob.digest, blob.size):
            if not layout.has(blob.digest, blob.size):
                raise missing_blob(blob.title or blob.media_type, blob.digest)
            sent = remote.put_blob(layout.blob_path(blob.digest), blob.digest, blob.size, mount_from=mount_from)
            uploaded += blob.size if sent else 0
    for ref in missing:
        _put(layout, ref, remote)
    return Pushed(
        address=str(remote.address),
        tags=tuple(ref.tag for ref in refs),
        blobs=len(blobs),
        uploaded=uploaded,
        already=not missing,
    )


def _refuse_behind(coming: set[str], there: Iterable[str], where: str) -> None:
    """Refuse to move a channel back: the place has events of it that do not come along."""
    for tag in there:
        event = _EVENT.fullmatch(tag)
        if event and event.group(1) in coming and tag not in coming:
            raise RegistryError(
                "CNV-9067",
                f"the channel {event.group(1)} was moved in {where} since ({tag})",
                hint="copy the channel from there first, then promote again",
            )


def _is_pointer(ref: LayoutRef) -> bool:
    """Whether a tag may move: a channel's, or that of one of its targets, or an open draft's."""
    return not (ref.tag[:1].isdigit() or _ATTACHMENT.fullmatch(ref.tag) or _EVENT.fullmatch(ref.tag))


def _remote_digest(remote: Remote, ref: LayoutRef) -> Digest:
    found = remote.find_manifest(ref.tag)
    return found.descriptor.digest if found else ""


def _blobs(layout: Layout, refs: tuple[LayoutRef, ...]) -> tuple[Descriptor, ...]:
    """The configs and layers of image manifests, each once, the largest last."""
    found: dict[Digest, Descriptor] = {}
    for ref in refs:
        if ref.descriptor.media_type == MANIFEST_TYPE:
            image = _image(layout, ref.descriptor)
            found.update({blob.digest: blob for blob in (image.config, *image.layers)})
    return tuple(sorted(found.values(), key=lambda blob: blob.size))


def _image(layout: Layout, descriptor: Descriptor) -> ImageManifest:
    what = f"the manifest {descriptor.digest}"
    return parse_image(layout.read_blob(descriptor.digest, what), what)


def _put(layout: Layout, ref: LayoutRef, remote: Remote) -> None:
    data = layout.read_blob(ref.descriptor.digest, f"the manifest {ref.descriptor.digest}")
    keeps_subject = remote.put_manifest(ref.tag, data, ref.descriptor.media_type)
    if ref.descriptor.media_type == MANIFEST_TYPE and not keeps_subject:
        image = parse_image(data, ref.tag)
        if image.subject is not None:
            remote.add_to_fallback(image.subject.digest, ref.descriptor, image.artifact_type)
    back = remote.find_manifest(ref.tag)
    if back is None or back.descriptor.digest != ref.descriptor.digest:
        raise RegistryError(
            "CNV-9065",
            f"{remote.address}:{ref.tag} is {back.descriptor.digest if back else 'gone'} right after it was pushed",
            hint="another client pushes the same tag; run the command again",
        )


# -------------------------------------------------------------------------------------------------------------- fetch


def fetch_documents(remote: Remote, layout: Layout, tag: str, *, depth: int = 1, small: int = DOC_BYTES) -> LayoutRef:
    """Bring a tag's manifest, its targets' manifests and all small documents into a layout; no weights.

    Args:
        remote: The repository.
        layout: The layout, which exists.
        tag: A tag or digest.
        depth: 0 to leave out the manifests that an index lists.
        small: Layers up to this many bytes are documents.

    Raises:
        RegistryError: CNV-9002 (no such tag), CNV-9060 to CNV-9064.
    """
    found = remote.find_manifest(tag)
    if found is None:
        raise RegistryError(
            "CNV-9002", f"{remote.address} has no {tag}", hint=f"`artifacts show {remote.address}` lists what there is"
        )
    ref = LayoutRef(tag="" if tag.startswith("sha256:") else tag, descriptor=found.descriptor)
    _store_documents(remote, layout, found, depth, small)
    return ref


def _store_documents(remote: Remote, layout: Layout, found: Found, depth: int, small: int) -> None:
    layout.put_bytes(found.data)
    what = f"the manifest {found.descriptor.digest}"
    if found.descriptor.media_type == INDEX_TYPE:
        index = parse_index(found.data, what)
        for child in index.manifests if depth else ():
            inner = remote.find_manifest(child.digest)
            if inner is None:
                raise RegistryError("CNV-9006", f"{remote.address} lacks {child.digest}", hint="push the version again")
            _store_documents(remote, layout, inner, depth - 1, small)
    elif found.descriptor.media_type == MANIFEST_TYPE:
        image = parse_image(found.data, what)
        fetch_blobs(remote, layout, [blob for blob in (image.config, *image.layers) if blob.size <= small])
    else:
        raise RegistryError(
            "CNV-9008",
            f"{what} has the media type {found.descriptor.media_type[:80]!r}",
            hint="name a version or target",
        )


def fetch_blobs(remote: Remote, layout: Layout, blobs: Iterable[Descriptor]) -> int:
    """Download blobs into a layout, skipping those it has; returns the bytes that were fetched.

    A download that was cut off is gone on with, also by the next run.

    Raises:
        RegistryError: CNV-9063, CNV-9060, CNV-9062, CNV-9064, CNV-9003.
        ResourceLimit: CNV-1003.
    """
    total = 0
    for blob in {blob.digest: blob for blob in blobs}.values():
        if layout.has(blob.digest, blob.size):
            continue
        path = layout.blob_path(blob.digest)
        part = layout.temporary / f"{path.name}.part"
        with writing(f"downloading {blob.title or blob.digest}"):
            make_folders(layout.temporary)
            remote.fetch_blob(blob, part, blob.title or blob.digest)
            part.chmod(0o444)
            os.rename(part, path)  # noqa: PTH104
        total += blob.size
    return total


def fetch_attachments(
    remote: Remote, layout: Layout, subjects: Iterable[Digest], tags: tuple[str, ...]
) -> list[LayoutRef]:
    """Bring what is attached to manifests: by tag, and whatever else the registry lists as referrers."""
    refs: list[LayoutRef] = []
    for subject in subjects:
        stem = tag_stem(subject)
        mine = [fetch_documents(remote, layout, tag) for tag in tags if tag.startswith(stem)]
        known = {ref.descriptor.digest for ref in mine}
        others = [
            entry
            for entry in remote.referrers(subject)
            if entry.digest not in known and entry.media_type == MANIFEST_TYPE
        ]
        for entry in others:
            ref = fetch_documents(remote, layout, entry.digest)
            mine.append(msgspec.structs.replace(ref, tag=f"{stem}ref-{entry.digest[7:19]}"))
        refs += mine
    return refs


def fetch(remote: Remote, layout: Layout, tags: tuple[str, ...]) -> tuple[str, ...]:
    """Bring versions, targets or channels whole, with targets' tags and attachments, into a layout that exists.

    Returns:
        The tags that were written.

    Raises:
        RegistryError: CNV-9065 (a version is here with other content), and those of :func:`fetch_documents`.
    """
    there = remote.tags()
    refs = {tag: fetch_documents(remote, layout, tag) for tag in tags}
    for ref in list(refs.values()):
        refs.update({version.tag: version for version in version_refs(remote, layout, ref)})
    along = [name for ref in refs.values() for name in _along(layout, ref, there)]
    refs.update({name: fetch_documents(remote, layout, name) for name in along if name not in refs})
    subjects = {digest for ref in refs.values() for digest in _manifests_of(layout, ref.descriptor)}
    attached = fetch_attachments(remote, layout, sorted(subjects), there)
    for digest in sorted(subjects.union(ref.descriptor.digest for ref in attached)):
        _fetch_layers(remote, layout, digest)
    return set_refs(layout, [*refs.values(), *attached], str(remote.address))


def version_refs(remote: Remote, layout: Layout, ref: LayoutRef) -> tuple[LayoutRef, ...]:
    """The version that a channel points to, under the version's own tag, where the repository has it as such."""
    if ref.descriptor.media_type != INDEX_TYPE or is_version_tag(ref.tag):
        return ()
    what = f"the index {ref.descriptor.digest}"
    version = parse_index(layout.read_blob(ref.descriptor.digest, what), what).annotations.get(VERSION, "")
    tag = version_tag(version)
    found = remote.find_manifest(tag) if is_version_tag(tag) and TAG_PATTERN.fullmatch(tag) else None
    same = found is not None and found.descriptor.digest == ref.descriptor.digest
    return (LayoutRef(tag=tag, descriptor=ref.descriptor),) if same else ()


def _along(layout: Layout, ref: LayoutRef, there: tuple[str, ...]) -> list[str]:
    """The tags of a repository that belong to one: its targets', and a channel's events."""
    if ref.descriptor.media_type != INDEX_TYPE:
        return []
    mine = set(target_tags(layout, ref.descriptor, ref.tag))
    channel = "" if is_version_tag(ref.tag) else ref.tag
    return [tag for tag in there if tag in mine or ((event := _EVENT.fullmatch(tag)) and event.group(1) == channel)]


def _fetch_layers(remote: Remote, layout: Layout, digest: Digest) -> None:
    what = f"the manifest {digest}"
    data = layout.read_blob(digest, what)
    if parse_json(data, what).get("mediaType") == MANIFEST_TYPE:
        image = parse_image(data, what)
        fetch_blobs(remote, layout, (image.config, *image.layers))


def _manifests_of(layout: Layout, descriptor: Descriptor) -> tuple[Digest, ...]:
    """A manifest's digest, and for an index those of its targets."""
    if descriptor.media_type != INDEX_TYPE:
        return (descriptor.digest,)
    what = f"the index {descriptor.digest}"
    index = parse_index(layout.read_blob(descriptor.digest, what), what)
    return (descriptor.digest, *(item.digest for item in index.manifests))


def set_refs(layout: Layout, refs: list[LayoutRef], where: str) -> tuple[str, ...]:
    """Write refs in one rename; a version that is here already must be the same.

    Raises:
        RegistryError: CNV-9065, CNV-9067 (a channel here was moved since), CNV-9073 (removed here, with other content).
    """
    events = {ref.tag: ref.descriptor.digest for ref in refs if _EVENT.fullmatch(ref.tag)}
    with layout.edit() as edit:
        _refuse_behind({ref.tag for ref in refs}, [ref.tag for ref in edit.refs()], str(layout.root))
        for ref in refs:
            present = edit.find(ref.tag)
            if present is not None and present.digest != ref.descriptor.digest and not _is_pointer(ref):
                raise RegistryError(
                    "CNV-9065",
                    f"{ref.tag} is here with other content than in {where}:"
                    f" {present.digest}, not {ref.descriptor.digest}",
                    hint="a version never changes; find out which of the two is the right one",
                )
            if ref.descriptor.media_type == INDEX_TYPE and is_version_tag(ref.tag):
                revive(layout, edit, ref.tag, version_of_tag(ref.tag), ref.descriptor.digest)
            newest = max((tag for tag in events if tag.startswith(f"event-{ref.tag}-")), default="")
            mark = {EVENT_ANNOTATION: events[newest]} if newest else {}
            edit.set(ref.tag, ref.descriptor, {**ref.descriptor.annotations, **mark})
    return tuple(ref.tag for ref in refs)
