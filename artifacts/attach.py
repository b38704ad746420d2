"""Attachments: manifests about another manifest (their ``subject``): run records, signatures, reports that come later.

Each has a tag ``sha256-<hex>.<kind>-<n>`` after its subject, so that it is found without reading every manifest and no
registry's garbage collection deletes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from artifacts.digest import Digest, FileEntry, sha256_file
from artifacts.durable import reading
from artifacts.errors import UsageError
from artifacts.layout import IndexEdit, Layout, LayoutRef
from artifacts.names import check_file_name, parse_ref
from artifacts.oci import (
    DOC_TYPE,
    EMPTY_JSON,
    EMPTY_TYPE,
    MANIFEST_TYPE,
    Descriptor,
    ImageManifest,
    describe,
    document,
    file_layer,
    parse_image,
)
from artifacts.registry import Registry
from artifacts.resolve import choose_target, resolve

TYPE_PREFIX = "application/vnd.io.model-convert."
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}", re.IGNORECASE)
_WORD = re.compile(r"[a-z0-9][a-z0-9.-]{0,40}")


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """One attachment as stored."""

    tag: str
    kind: str
    descriptor: Descriptor
    image: ImageManifest


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """What :func:`attach` did."""

    ref: str
    subject: Digest
    digest: Digest
    tag: str
    artifact_type: str
    files: tuple[str, ...]


def tag_stem(subject: Digest) -> str:
    """How the tags of a manifest's attachments begin."""
    return f"{subject.replace(':', '-')}."


def find_attachments(
    layout: Layout, refs: tuple[LayoutRef, ...], subject: Digest, kind: str = ""
) -> tuple[Attachment, ...]:
    """The attachments of a manifest, oldest first; of one kind, where ``kind`` is given.

    Raises:
        RegistryError: CNV-9006, CNV-9007, CNV-9008.
    """
    stem = tag_stem(subject) + (f"{kind}-" if kind else "")
    found = []
    for ref in refs:
        if not ref.tag.startswith(stem) or ref.descriptor.media_type != MANIFEST_TYPE:
            continue
        what = f"the attachment {ref.tag}"
        image = parse_image(layout.read_blob(ref.descriptor.digest, what), what)
        if image.subject is not None and image.subject.digest == subject:
            name = ref.tag[len(tag_stem(subject)) :].rpartition("-")[0]
            found.append(Attachment(tag=ref.tag, kind=name, descriptor=ref.descriptor, image=image))
    return tuple(found)


def store_attachment(
    layout: Layout,
    artifact_type: str,
    layers: tuple[Descriptor, ...],
    subject: Descriptor | None,
    annotations: dict[str, str] | None = None,
) -> Descriptor:
    """Store a manifest about another one, or about none; the layers' blobs must be there already."""
    layout.put_bytes(EMPTY_JSON)
    image = ImageManifest(
        schema_version=2,
        media_type=MANIFEST_TYPE,
        artifact_type=artifact_type,
        config=describe(EMPTY_JSON, EMPTY_TYPE),
        layers=layers,
        subject=msgspec.structs.replace(subject, annotations={}) if subject else None,
        annotations=annotations or {},
    )
    data = document(image)
    layout.put_bytes(data)
    return describe(data, MANIFEST_TYPE)


def store_files(layout: Layout, files: dict[str, Path]) -> tuple[Descriptor, ...]:
    """Store files as layers, by name.

    Raises:
        RegistryError: CNV-9015 (a name that could escape), CNV-9004, CNV-9003.
    """
    layers = []
    for name in sorted(files):
        with reading(f"reading {files[name]}"):
            entry = FileEntry(
                name=check_file_name(name), sha256=sha256_file(files[name]), bytes=files[name].stat().st_size
            )
        layout.put_file(files[name], entry)
        layers.append(file_layer(DOC_TYPE, entry.sha256, entry.bytes, name))
    return tuple(layers)


def set_attachment(edit: IndexEdit, subject: Digest, kind: str, descriptor: Descriptor) -> str:
    """Give an attachment its tag; the one that it has already, if it has."""
    stem = f"{tag_stem(subject)}{kind}-"
    taken = {ref.tag: ref.descriptor.digest for ref in edit.refs() if ref.tag.startswith(stem)}
    for tag, digest in taken.items():
        if digest == descriptor.digest:
            return tag
    number = 1
    while f"{stem}{number}" in taken:
        number += 1
    edit.set(f"{stem}{number}", descriptor)
    return f"{stem}{number}"


def attach(root: Path, text: str, files: Iterable[Path], *, artifact_type: str, target: str = "") -> Attached:
    """Attach files to a version or, with ``target`` or a target's reference, to one of its targets.

    Args:
        root: The registry folder.
        text: The reference.
        files: Files with flat names; what is attached already is not attached twice.
        artifact_type: A media type, or a word that makes ``application/vnd.io.model-convert.<word>``.
        target: The target or SoC, to attach to one target of a version.

    Raises:
        UsageError: CNV-2404, CNV-2406 (not a type, no file, or two of one name).
        RegistryError: CNV-9001, CNV-9002, CNV-9010, CNV-9015, and those of writing.
    """
    paths = tuple(files)
    kind = full_type(artifact_type)
    named = {path.name: path for path in paths}
    if not paths or len(named) != len(paths):
        raise UsageError("CNV-2406", "nothing to attach, or two files of one name", hint="name each file once")
    layout, resolved = resolve(Registry(root), parse_ref(text))
    subject = choose_target(layout, resolved, target=target) if target else resolved.descriptor
    descriptor = store_attachment(layout, kind, store_files(layout, named), subject)
    with layout.edit() as edit:
        tag = set_attachment(edit, subject.digest, "att", descriptor)
    return Attached(
        ref=resolved.ref,
        subject=subject.digest,
        digest=descriptor.digest,
        tag=tag,
        artifact_type=kind,
        files=tuple(sorted(named)),
    )


def full_type(text: str) -> str:
    """The media type that a user's ``--type`` means.

    Raises:
        UsageError: CNV-2406.
    """
    if _MEDIA_TYPE.fullmatch(text):
        return text
    if _WORD.fullmatch(text):
        return TYPE_PREFIX + text
    raise UsageError(
        "CNV-2406",
        f"{text[:80]!r} is no type of an attachment",
        hint="give a media type (application/vnd.acme.latency+json), or a word of lower-case letters (latency)",
    )
