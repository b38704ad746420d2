"""Signing what is in the store, and judging the signatures on it.

Signatures are attached as Sigstore bundles, the way cosign lays them out: a manifest with the signed one as subject and
the bundle as its only layer. Judging goes from the outside in: bytes against digest, signature against the caller's
keys (never one that the artifact brings along), subject against the manifest, names and digests against the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from artifacts.attach import Attachment, find_attachments, set_attachment, store_attachment
from artifacts.digest import Digest
from artifacts.dsse import BUNDLE_TYPE, Signed, Statement, open_bundle, sign_statement, statement_bytes
from artifacts.errors import RegistryError
from artifacts.keys import PrivateKey, PublicKey
from artifacts.layout import Layout, LayoutRef
from artifacts.manifest import RECORD_NAMES
from artifacts.names import parse_ref
from artifacts.oci import Descriptor
from artifacts.registry import Registry
from artifacts.resolve import Resolved, StoredTarget, load_target, resolve, targets_of
from artifacts.statements import (
    MODEL_PREDICATE,
    PROVENANCE_PREDICATE,
    RELEASE_PREDICATE,
    TEST_PREDICATE,
    model_statement,
    provenance_statement,
    release_statement,
    signed_files,
    test_statement,
)

State = Literal["verified", "unknown-key", "invalid", "unsigned"]
KINDS = {
    MODEL_PREDICATE: "sig",
    PROVENANCE_PREDICATE: "provenance",
    TEST_PREDICATE: "test",
    RELEASE_PREDICATE: "release",
}
PREDICATE_ANNOTATION = "dev.sigstore.bundle.predicateType"
CONTENT_ANNOTATION = "dev.sigstore.bundle.content"


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """One bundle on a manifest. ``key``: id of the key that it names or that verified it; ``why``: what is wrong."""

    kind: str
    state: State
    key: str
    tag: str
    why: str = ""


class SignatureCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The signatures of one manifest. ``state`` is that of what must be signed: a target's files, a version's index."""

    subject: Digest
    name: str
    state: State
    signatures: tuple[Signature, ...]


class SignedRef(msgspec.Struct, frozen=True, kw_only=True):
    """What :func:`sign_ref` did. ``tags``: the new attachments; those there already by the same key are left alone."""

    ref: str
    key: str
    tags: tuple[str, ...]
    already: int


# --------------------------------------------------------------------------------------------------------------- sign


def sign_ref(root: Path, text: str, key: PrivateKey) -> SignedRef:
    """Sign a version with all its targets, or one target: its files, how it was made, how it was tested.

    Raises:
        RegistryError: CNV-9001, CNV-9002, and those of reading and writing.
    """
    layout, resolved = resolve(Registry(root), parse_ref(text))
    work = [item for descriptor in targets_of(layout, resolved) for item in _target_work(layout, resolved, descriptor)]
    if resolved.kind == "version":
        statement = release_statement(resolved.name, resolved.version or resolved.tag, resolved.descriptor.digest)
        work.append((resolved.descriptor, statement))
    refs = layout.refs()
    new = [item for item in work if not _signed_already(layout, refs, item, key.public)]
    stored = [(subject, statement, _store_bundle(layout, subject, statement, key)) for subject, statement in new]
    with layout.edit() as edit:
        tags = [
            set_attachment(edit, subject.digest, KINDS[statement.predicate_type], descriptor)
            for subject, statement, descriptor in stored
        ]
    return SignedRef(ref=resolved.ref, key=key.public.id, tags=tuple(tags), already=len(work) - len(new))


def _target_work(layout: Layout, resolved: Resolved, descriptor: Descriptor) -> list[tuple[Descriptor, Statement]]:
    stored = load_target(layout, descriptor)
    name = f"{resolved.name}-{stored.manifest.key}"
    return [
        (descriptor, model_statement(name, target_files(stored))),
        (descriptor, provenance_statement(name, stored.manifest, descriptor.digest)),
        (descriptor, test_statement(name, stored.manifest, descriptor.digest)),
    ]


def target_files(stored: StoredTarget) -> dict[str, Digest]:
    """The files of a target by name, ``manifest.json`` and reports included."""
    return {layer.title: layer.digest for layer in stored.image.layers}


def _signed_already(
    layout: Layout, refs: tuple[LayoutRef, ...], work: tuple[Descriptor, Statement], key: PublicKey
) -> bool:
    subject, statement = work
    for item in find_attachments(layout, refs, subject.digest, KINDS[statement.predicate_type]):
        signed = _open(layout, item, (key,))
        if isinstance(signed, Signed) and signed.key == key.id and _same(signed.statement, statement):
            return True
    return False


def _same(one: Statement, other: Statement) -> bool:
    return statement_bytes(one) == statement_bytes(other)


def _store_bundle(layout: Layout, subject: Descriptor, statement: Statement, key: PrivateKey) -> Descriptor:
    return store_bundle(layout, subject, sign_statement(statement, key), statement.predicate_type)


def store_bundle(layout: Layout, subject: Descriptor, bundle: bytes, predicate_type: str) -> Descriptor:
    """Store a signed bundle as an attachment of a manifest."""
    layer = Descriptor(media_type=BUNDLE_TYPE, digest=layout.put_bytes(bundle), size=len(bundle))
    annotations = {CONTENT_ANNOTATION: "dsse-envelope", PREDICATE_ANNOTATION: predicate_type}
    return store_attachment(layout, BUNDLE_TYPE, (layer,), subject, annotations)


# -------------------------------------------------------------------------------------------------------------- judge


def check_target_signatures(
    layout: Layout, refs: tuple[LayoutRef, ...], stored: StoredTarget, keys: tuple[PublicKey, ...]
) -> SignatureCheck:
    """Judge the signatures of a target. Its state is that of the statement about its files."""
    subject = stored.descriptor.digest
    found = [
        _judge(layout, item, keys, files=target_files(stored), subject=subject)
        for item in find_attachments(layout, refs, subject)
        if item.kind in ("sig", "provenance", "test")
    ]
    files = [signature for signature in found if signature.kind == "sig"]
    return SignatureCheck(subject=subject, name=stored.manifest.key, state=_best(files), signatures=tuple(found))


def check_version_signatures(
    layout: Layout, refs: tuple[LayoutRef, ...], descriptor: Descriptor, keys: tuple[PublicKey, ...]
) -> SignatureCheck:
    """Judge the signatures of a version's index: that it is the release with this set of targets."""
    attached = find_attachments(layout, refs, descriptor.digest, "release")
    found = tuple(_judge(layout, item, keys, files={}, subject=descriptor.digest) for item in attached)
    return SignatureCheck(subject=descriptor.digest, name="index", state=_best(list(found)), signatures=found)


def _best(signatures: list[Signature]) -> State:
    order: tuple[State, ...] = ("verified", "invalid", "unknown-key")
    states = {signature.state for signature in signatures}
    return next((state for state in order if state in states), "unsigned")


def _judge(
    layout: Layout, item: Attachment, keys: tuple[PublicKey, ...], *, files: dict[str, Digest], subject: Digest
) -> Signature:
    signed = _open(layout, item, keys)
    if isinstance(signed, str):
        return Signature(kind=item.kind, state="invalid", key="", tag=item.tag, why=signed)
    why = _contradiction(signed.statement, item.kind, files, subject)
    state: State = "verified" if signed.key else "unknown-key"
    if signed.broken:
        state, why = "invalid", "the signature is not one of the key that it names"
    elif signed.key and why:
        state = "invalid"
    return Signature(kind=item.kind, state=state, key=signed.key or signed.claimed, tag=item.tag, why=why)


def _open(layout: Layout, item: Attachment, keys: tuple[PublicKey, ...]) -> Signed | str:
    if len(item.image.layers) != 1 or item.image.artifact_type != BUNDLE_TYPE:
        return "it holds no single Sigstore bundle"
    what = f"the bundle of {item.tag}"
    try:
        return open_bundle(layout.read_blob(item.image.layers[0].digest, what), keys, what)
    except RegistryError as error:
        return error.message


def _contradiction(statement: Statement, kind: str, files: dict[str, Digest], subject: Digest) -> str:
    """Why a statement isn't about the manifest that it hangs on; empty where it is."""
    if KINDS.get(statement.predicate_type) != kind:
        return f"it states {statement.predicate_type}"
    if kind != "sig":
        return "" if statement.digests == (subject,) else "it is about another manifest"
    return files_contradiction(statement, files)


def files_contradiction(statement: Statement, files: dict[str, Digest]) -> str:
    """Why a model statement isn't about exactly these files (records of a run aside); empty where it is."""
    named = signed_files(statement)
    if named is None:
        return "it is no statement about files, or contradicts itself"
    differing = {name for name in {*named, *files} if named.get(name) != files.get(name)}
    differing.difference_update(name for name in RECORD_NAMES if name not in files)
    return f"it is about other files: {', '.join(sorted(differing)[:8])}" if differing else ""
