"""Results that a device measured after the artifact was published, attached to its target: ``device.json``.

The artifact was compiled where the toolkit is and published with what could be said there; the card, on another
machine, speaks later. A version never changes, so its word is an attachment, and the rules of channels count it as if
the target had been validated on its device in the first place. The signature, where there is one, is an in-toto test
result about the target's manifest that names ``device.json`` by digest.
"""

from __future__ import annotations

from typing import Any

import msgspec

from artifacts.attach import Attachment, find_attachments, store_attachment, tag_stem
from artifacts.digest import Digest, canonical_json, sha256_bytes
from artifacts.dsse import BUNDLE_TYPE, Statement, Subject, open_bundle, sign_statement
from artifacts.errors import RegistryError
from artifacts.keys import PrivateKey, PublicKey
from artifacts.layout import Layout, LayoutRef
from artifacts.manifest import Manifest
from artifacts.oci import DOC_TYPE, Descriptor, file_layer
from artifacts.statements import TEST_PREDICATE
from artifacts.strictjson import MANIFEST_BYTES, parse_as

KIND = "device"
TYPE = "application/vnd.io.model-convert.device.v1"
FILE = "device.json"
BUNDLE = "device.sigstore.json"


class DeviceResult(msgspec.Struct, frozen=True, kw_only=True):
    """``device.json``, schema 1. ``validation`` is a JSON object as in ``manifest.json``; it ran on ``device``."""

    schema: int = 1
    subject: Digest
    """The target's OCI manifest."""
    passed: bool
    device: str
    """The card, as its runtime calls it."""
    validation: dict[str, Any]
    machine: dict[str, Any] = {}
    measured: str = ""
    """When, in UTC."""


class FoundResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result as found. ``key``: the id of the trusted key that signed it; empty where none did."""

    tag: str
    result: DeviceResult
    key: str = ""


def attach_result(layout: Layout, target: Descriptor, result: DeviceResult, key: PrivateKey | None = None) -> str:
    """Attach a result to a target, signed where there is a key; gives the tag, which is numbered after all others.

    Raises:
        RegistryError: those of writing.
    """
    data = canonical_json(result)
    layers = [file_layer(DOC_TYPE, layout.put_bytes(data), len(data), FILE)]
    if key is not None:
        bundle = sign_statement(_statement(target.digest, result, sha256_bytes(data)), key)
        layers.append(file_layer(BUNDLE_TYPE, layout.put_bytes(bundle), len(bundle), BUNDLE))
    stored = store_attachment(layout, TYPE, tuple(layers), target)
    stem = f"{tag_stem(target.digest)}{KIND}-"
    with layout.edit() as edit:
        numbers = [_number(ref.tag) for ref in edit.refs() if ref.tag.startswith(stem)]
        tag = f"{stem}{max(numbers, default=0) + 1}"
        edit.set(tag, stored)
    return tag


def _statement(subject: Digest, result: DeviceResult, digest: Digest) -> Statement:
    predicate = {
        "result": "PASSED" if result.passed else "FAILED",
        "configuration": [{"name": FILE, "digest": {"sha256": digest.removeprefix("sha256:")}}],
        "passedTests": ["gate on device"] if result.passed else [],
        "warnedTests": [],
        "failedTests": [] if result.passed else ["gate on device"],
    }
    return Statement(
        subject=(Subject(name="target", digest={"sha256": subject.removeprefix("sha256:")}),),
        predicate_type=TEST_PREDICATE,
        predicate=predicate,
    )


def find_results(
    layout: Layout, refs: tuple[LayoutRef, ...], target: Digest, keys: tuple[PublicKey, ...] = ()
) -> tuple[FoundResult, ...]:
    """The sound results of a target, oldest first. One that is about something else, or whose signature is broken, is
    left out; one by an unknown key counts as unsigned.

    Raises:
        RegistryError: CNV-9006, CNV-9007 (a blob that is missing or damaged).
    """
    attached = sorted(find_attachments(layout, refs, target, KIND), key=lambda item: _number(item.tag))
    return tuple(found for item in attached if (found := _open(layout, item, target, keys)) is not None)


def _number(tag: str) -> int:
    number = tag.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _open(layout: Layout, item: Attachment, target: Digest, keys: tuple[PublicKey, ...]) -> FoundResult | None:
    layers = {layer.title: layer for layer in item.image.layers}
    if FILE not in layers:
        return None
    data = layout.read_blob(layers[FILE].digest, item.tag, limit=MANIFEST_BYTES)
    try:
        result = parse_as(DeviceResult, data, item.tag)
        signer = (
            _signer(layout, layers[BUNDLE], item.tag, (target, layers[FILE].digest), keys) if BUNDLE in layers else ""
        )
    except RegistryError as error:
        if error.code == "CNV-9008":
            return None
        raise
    if result.schema != 1 or result.subject != target or signer is None:
        return None
    return FoundResult(tag=item.tag, result=result, key=signer)


def _signer(
    layout: Layout, layer: Descriptor, what: str, digests: tuple[Digest, Digest], keys: tuple[PublicKey, ...]
) -> str | None:
    """Who signed; empty for a key that nobody trusts here, None where the signature speaks of something else."""
    signed = open_bundle(layout.read_blob(layer.digest, what, limit=MANIFEST_BYTES), keys, what)
    subject, file = digests
    named = signed.statement.predicate.get("configuration")
    expected = [{"name": FILE, "digest": {"sha256": file.removeprefix("sha256:")}}]
    if signed.broken or signed.statement.digests != (subject,) or named != expected:
        return None
    return signed.key


def with_results(
    layout: Layout, refs: tuple[LayoutRef, ...], target: Digest, manifest: Manifest, keys: tuple[str, ...] = ()
) -> Manifest:
    """A manifest as the rules of channels see it: with the newest word of its device, where the device has spoken.

    Args:
        layout: The model's layout.
        refs: Its refs.
        target: The target's OCI manifest.
        manifest: What was published.
        keys: Ids of the keys that must have signed a result; empty: unsigned results count, too.
    """
    from artifacts.keys import trusted_keys

    found = find_results(layout, refs, target, trusted_keys() if keys else ())
    counting = [item.result for item in found if not keys or item.key in keys]
    if not counting:
        return manifest
    newest = counting[-1]
    validation = {**newest.validation, "passed": newest.passed}
    return msgspec.structs.replace(manifest, ran_on="device", validation=validation)
