"""From a reference to a version or a target in the store, each document checked on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from artifacts.cards import Card
from artifacts.digest import Digest
from artifacts.errors import RegistryError
from artifacts.layout import Layout
from artifacts.manifest import MANIFEST_JSON_BYTES, MANIFEST_NAME, Manifest, parse_manifest
from artifacts.matching import describe, label, match_cards
from artifacts.names import Ref, version_tag
from artifacts.oci import INDEX_TYPE, MANIFEST_TYPE, MODEL_TYPE, PREFIX, Descriptor, ImageManifest, parse_image
from artifacts.registry import Registry
from artifacts.versions import Versions


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """What a reference points to."""

    name: str
    tag: str
    """The tag that led here: the one asked for, or that of the newest version; empty for a digest."""
    kind: Literal["version", "target"]
    version: str
    """The version it belongs to; empty for a target found by tag or digest alone."""
    descriptor: Descriptor

    @property
    def ref(self) -> str:
        """The reference in full."""
        return f"{self.name}:{self.tag}" if self.tag else f"{self.name}@{self.descriptor.digest}"


class StoredTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One target's documents, read from the store and checked."""

    descriptor: Descriptor
    image: ImageManifest
    manifest: Manifest


def resolve(registry: Registry, ref: Ref) -> tuple[Layout, Resolved]:
    """Find what a reference points to: without a tag, the newest version.

    Raises:
        RegistryError: CNV-9001 (no such model), CNV-9002 (no such tag or digest; the message lists what there is).
    """
    layout = registry.open_model(ref.name)
    versions = Versions(layout, layout.refs())
    tag = ref.tag or ("" if ref.digest else version_tag(versions.newest))
    descriptor = next((item.descriptor for item in versions.refs if tag and item.tag == tag), None)
    if not tag and ref.digest:
        descriptor = _by_digest(versions, ref.digest)
    if descriptor is None:
        raise _unknown(
            versions, ref, f"no tag {tag}" if tag else f"no manifest {ref.digest}" if ref.digest else "no version"
        )
    if ref.digest and descriptor.digest != ref.digest:
        raise _unknown(versions, ref, f"the tag {tag} points to {descriptor.digest} now")
    if descriptor.media_type == INDEX_TYPE:
        version = versions.version_of(descriptor.digest)
        return layout, Resolved(name=ref.name, tag=tag, kind="version", version=version, descriptor=descriptor)
    return layout, Resolved(name=ref.name, tag=tag, kind="target", version="", descriptor=descriptor)


def _by_digest(versions: Versions, digest: Digest) -> Descriptor | None:
    direct = (ref.descriptor for ref in versions.refs)
    nested = (child for index in versions.names.values() for child in versions.index(index).manifests)
    return next((item for source in (direct, nested) for item in source if item.digest == digest), None)


def _unknown(versions: Versions, ref: Ref, why: str) -> RegistryError:
    known = [version_tag(name) for name in reversed(versions.names)][:8]
    channels = list(versions.channels)[:8]
    there = f"versions: {', '.join(known) or 'none'}" + (f"; channels: {', '.join(channels)}" if channels else "")
    return RegistryError(
        "CNV-9002", f"{ref}: {why}; {there}", hint=f"`artifacts show {ref.name}` lists the versions and their targets"
    )


def load_target(layout: Layout, descriptor: Descriptor) -> StoredTarget:
    """Read a target's OCI manifest and its ``manifest.json``, and hold them against each other.

    Raises:
        RegistryError: CNV-9006, CNV-9007, CNV-9008, CNV-9015, CNV-9017.
    """
    what = f"the manifest {descriptor.digest}"
    image = parse_image(layout.read_blob(descriptor.digest, what), what)
    plain = next((layer for layer in image.layers if layer.title == MANIFEST_NAME), None)
    if descriptor.media_type != MANIFEST_TYPE or image.artifact_type != MODEL_TYPE or plain is None:
        raise RegistryError(
            "CNV-9008",
            f"{what} is no model artifact of model-convert: {image.artifact_type or 'no artifactType'}",
            hint="name a version or a target; `artifacts show` lists them",
        )
    data = layout.read_blob(plain.digest, f"{MANIFEST_NAME} of {descriptor.digest}", limit=MANIFEST_JSON_BYTES)
    manifest = parse_manifest(data, f"{MANIFEST_NAME} of {descriptor.digest}")
    _hold_together(image, manifest, what)
    return StoredTarget(descriptor=descriptor, image=image, manifest=manifest)


def _hold_together(image: ImageManifest, manifest: Manifest, what: str) -> None:
    layers = {(layer.title, layer.digest, layer.size) for layer in image.layers if layer.title != MANIFEST_NAME}
    listed = {(entry.name, entry.sha256, entry.bytes) for entry in (*manifest.files, *manifest.reports)}
    if layers != listed:
        names = ", ".join(sorted({name for name, _, _ in layers ^ listed}))
        raise RegistryError(
            "CNV-9008", f"{what} and its {MANIFEST_NAME} disagree about: {names}", hint="publish the artifact again"
        )


def targets_of(layout: Layout, resolved: Resolved) -> tuple[Descriptor, ...]:
    """The target manifests of what a reference points to."""
    if resolved.kind == "target":
        return (resolved.descriptor,)
    return Versions(layout, ()).index(resolved.descriptor).manifests


def choose_target(
    layout: Layout, resolved: Resolved, *, target: str = "", soc: str = "", cards: Sequence[Card] | None = None
) -> Descriptor:
    """The one target that was asked for. ``target`` matches a target or a SoC, in any case of letters.

    With neither, ``cards`` decide: what fits the cards of this machine.

    Raises:
        RegistryError: CNV-9010, listing the targets that exist; CNV-9071 (nothing for the card), CNV-9072 (several).
    """
    targets = targets_of(layout, resolved)
    if resolved.kind == "target" and not (target or soc):
        return targets[0]
    if cards is not None and not (target or soc) and targets:
        facts = [load_facts(layout, item) for item in targets]
        if (match := match_cards(facts, cards, resolved.ref)) is not None:
            return targets[match]
    found = [item for item in targets if _matches(load_facts(layout, item), target, soc)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(sorted(label(load_facts(layout, item)) for item in targets))
    wanted = " ".join(filter(None, (target, soc)))
    if not found:
        message = f"{resolved.ref} has nothing for {wanted}; it has: {known}"
    else:
        asked = f"{_no_card(cards)}; " if cards is not None else ""
        message = f"{asked}{resolved.ref} has several targets: {known}"
    raise RegistryError("CNV-9010", message, hint="choose one with --target or --soc")


def _no_card(cards: Sequence[Card]) -> str:
    if cards:
        return f"this machine's {describe(cards)} is no target that is known"
    return "no card was found on this machine"


def load_facts(layout: Layout, descriptor: Descriptor) -> dict[str, str]:
    """``target``, ``soc`` and ``precision`` of a target, from the descriptor or else from its manifest."""
    annotations = descriptor.annotations
    if PREFIX + "target" not in annotations:
        what = f"the manifest {descriptor.digest}"
        annotations = parse_image(layout.read_blob(descriptor.digest, what), what).annotations
    return {key: annotations.get(PREFIX + key, "") for key in ("target", "soc", "precision")}


def _matches(facts: dict[str, str], target: str, soc: str) -> bool:
    names = {facts["target"].lower(), facts["soc"].lower()}
    return (not target or target.lower() in names) and (not soc or soc.lower() == facts["soc"].lower())
