"""Publishing: a version of a model becomes visible as a whole, or not at all.

    files ─put─▶ blobs ─build─▶ one manifest per target ─lock─▶ version index and tags, in one rename

A target's manifest holds nothing of the version, the clock or the machine, so that the same artifact always has the
same digest; the version's index adds the name and the version.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from artifacts.attach import set_attachment, store_attachment, store_files
from artifacts.digest import Digest
from artifacts.errors import RegistryError
from artifacts.layout import IndexEdit, Layout
from artifacts.manifest import MANIFEST_NAME, RECORD_NAMES, Manifest, check_manifest, lowest, manifest_bytes, verdict
from artifacts.names import check_name, check_version, target_tag, version_tag
from artifacts.oci import (
    DOC_TYPE,
    MANIFEST_TYPE,
    MODEL_CONFIG_TYPE,
    MODEL_TYPE,
    PREFIX,
    WEIGHT_CONFIG_TYPE,
    WEIGHT_TYPE,
    Descriptor,
    ImageManifest,
    describe,
    document,
    file_layer,
)
from artifacts.registry import Registry
from artifacts.release import add_version, choose_version
from artifacts.versions import Versions

RECORD_TYPE = "application/vnd.io.model-convert.run.v1"
"""The artifact type of the record of a run: ``run.json`` and the report page, attached to a target's manifest."""


class TargetRelease(msgspec.Struct, frozen=True, kw_only=True):
    """One target's artifact, ready to be published."""

    manifest: Manifest
    sources: dict[str, Path]
    """Where each file of ``manifest.files`` and ``manifest.reports`` lies, by its name in the manifest."""
    records: dict[str, Path] = {}
    """``run.json`` and ``report.html`` of this run: no part of the artifact's identity."""
    link: bool = False
    """Link ``manifest.files`` into the registry instead of copying them: only where nobody ever edits them."""


class PublishRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A version to publish. Without ``version`` it is the one that has these targets already, else the next patch."""

    name: str
    version: str = ""
    targets: tuple[TargetRelease, ...]


class PublishedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One target of a version. ``path``, ``sha256`` and ``bytes`` are of the main file in the registry."""

    target: str
    soc: str
    precision: str
    ref: str
    digest: Digest
    path: str
    sha256: Digest
    bytes: int


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A version in the registry. ``already``: it was there before, with the same content."""

    ref: str
    name: str
    version: str
    digest: Digest
    targets: tuple[PublishedTarget, ...]
    already: bool


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A target whose blobs are stored, and nothing refers to yet."""

    release: TargetRelease
    descriptor: Descriptor
    """The target's manifest, as the version index lists it."""
    blobs: tuple[Descriptor, ...]


def publish(root: Path, request: PublishRequest) -> Published:
    """Publish a version into the registry at ``root``, which is created if need be.

    Raises:
        UsageError: CNV-2402, CNV-2403 (name, version).
        RegistryError: CNV-9009 (the version exists with other content), CNV-9016 (two artifacts for one SoC),
            CNV-9011 (a file changed since it was made), CNV-9020 (a tag is taken), and those of writing: CNV-9003,
            CNV-9005, CNV-9012, CNV-9018, CNV-9019.
        ResourceLimit: CNV-1003.
    """
    check_request(request)
    registry = Registry(root)
    registry.create()
    layout = registry.layout(request.name)
    layout.create()
    prepared = tuple(store_target(registry, layout, request.name, release) for release in _sorted(request.targets))
    with layout.edit() as edit:
        keep_blobs(registry, layout, request.name, prepared)
        return _release(layout, edit, request, prepared)


def check_request(request: PublishRequest) -> None:
    """Check all of a request that needs no file.

    Raises:
        UsageError: CNV-2402, CNV-2403.
        RegistryError: CNV-9008, CNV-9015, CNV-9016.
    """
    check_name(request.name)
    if request.version:
        check_version(request.version)
    if not request.targets:
        raise RegistryError("CNV-9016", "a version needs at least one target", hint="give the artifact of a target")
    keys: dict[str, str] = {}
    for release in request.targets:
        manifest = check_manifest(release.manifest)
        if manifest.key in keys:
            raise RegistryError(
                "CNV-9016",
                f"two artifacts for {manifest.key}, in {keys[manifest.key]} and {manifest.precision}:"
                " a version holds one precision for each SoC",
                hint="publish the other precision under its own --name or --version",
            )
        keys[manifest.key] = manifest.precision
        _check_sources(release)


def _check_sources(release: TargetRelease) -> None:
    names = {entry.name for entry in (*release.manifest.files, *release.manifest.reports)}
    lost = sorted(names.symmetric_difference(release.sources))
    foreign = sorted(set(release.records).difference(RECORD_NAMES))
    if lost or foreign:
        raise RegistryError(
            "CNV-9008",
            f"the files to publish are not those of the manifest: {', '.join(lost + foreign)}",
            hint="name each file of the manifest once; records are " + " and ".join(RECORD_NAMES),
        )


def _sorted(targets: tuple[TargetRelease, ...]) -> list[TargetRelease]:
    return sorted(targets, key=lambda release: release.manifest.key)


# ------------------------------------------------------------------------------------------------------------- targets


def store_target(registry: Registry, layout: Layout, name: str, release: TargetRelease) -> Prepared:
    """Store all blobs of a target.

    Raises:
        RegistryError: CNV-9011 (a file changed since it was made), CNV-9003, CNV-9004.
        ResourceLimit: CNV-1003.
    """
    manifest = release.manifest
    for entry in (*manifest.files, *manifest.reports):
        twins = registry.twins(entry.sha256, entry.bytes, besides=layout)
        layout.put_file(
            release.sources[entry.name], entry, link=release.link and entry in release.manifest.files, twins=twins
        )
    plain = manifest_bytes(manifest)
    layers = target_layers(manifest, describe(plain, WEIGHT_CONFIG_TYPE))
    config = model_config(name, manifest, layers)
    image = document(target_image(manifest, describe(config, MODEL_CONFIG_TYPE), layers))
    for data in (plain, config, image):
        layout.put_bytes(data)
    descriptor = describe(image, MANIFEST_TYPE, _target_annotations(manifest))
    return Prepared(
        release=release, descriptor=descriptor, blobs=(descriptor, describe(config, MODEL_CONFIG_TYPE), *layers)
    )


def target_layers(manifest: Manifest, plain: Descriptor) -> tuple[Descriptor, ...]:
    """The layers of a target's manifest: its files, ``manifest.json``, its reports."""
    files = [file_layer(WEIGHT_TYPE, entry.sha256, entry.bytes, entry.name) for entry in manifest.files]
    reports = [file_layer(DOC_TYPE, entry.sha256, entry.bytes, entry.name) for entry in manifest.reports]
    return (*files, file_layer(WEIGHT_CONFIG_TYPE, plain.digest, plain.size, MANIFEST_NAME), *reports)


def model_config(name: str, manifest: Manifest, layers: tuple[Descriptor, ...]) -> bytes:
    """The ModelPack config: the few facts that other tools know how to show."""
    suffix = Path(manifest.files[0].name).suffix.lstrip(".")
    return document(
        {
            "descriptor": {"name": name, "revision": manifest.model.sha256},
            "config": {"format": suffix or manifest.backend, "precision": manifest.precision},
            "modelfs": {"type": "layers", "diffIds": [layer.digest for layer in layers]},
        }
    )


def target_image(manifest: Manifest, config: Descriptor, layers: tuple[Descriptor, ...]) -> ImageManifest:
    """The ModelPack manifest of a target."""
    facts = {
        "backend": manifest.backend,
        "ran-on": manifest.ran_on,
        "source.digest": manifest.model.sha256,
        "toolchain": " ".join(f"{name} {version}" for name, version in sorted(manifest.toolchain.items())),
        "verdict": verdict(manifest),
    }
    cosine = lowest(manifest, "cosine")
    if cosine is not None:
        facts["cosine.min"] = repr(cosine)
    annotations = {PREFIX + key: value for key, value in facts.items() if value}
    return ImageManifest(
        schema_version=2,
        media_type=MANIFEST_TYPE,
        artifact_type=MODEL_TYPE,
        config=config,
        layers=layers,
        annotations={**annotations, **_target_annotations(manifest)},
    )


def _target_annotations(manifest: Manifest) -> dict[str, str]:
    facts = {"target": manifest.target, "soc": manifest.soc, "precision": manifest.precision}
    return {PREFIX + key: value for key, value in facts.items() if value}


def keep_blobs(registry: Registry, layout: Layout, name: str, prepared: tuple[Prepared, ...]) -> None:
    """Under the lock, where nothing is swept: store again what was swept since it was stored."""
    for item in prepared:
        if not all(layout.has(blob.digest, blob.size) for blob in item.blobs):
            store_target(registry, layout, name, item.release)


# ------------------------------------------------------------------------------------------------------------- version


def _release(layout: Layout, edit: IndexEdit, request: PublishRequest, prepared: tuple[Prepared, ...]) -> Published:
    targets = tuple(item.descriptor for item in prepared)
    choice = choose_version(Versions(layout, edit.refs()), request.name, request.version, targets)
    digest = choice.present or add_version(layout, edit, choice)
    if not choice.present:
        for item in prepared:
            add_record(layout, edit, item)
    return Published(
        ref=f"{request.name}:{version_tag(choice.version)}",
        name=request.name,
        version=choice.version,
        digest=digest,
        targets=tuple(published_target(layout, request.name, choice.version, item) for item in prepared),
        already=bool(choice.present),
    )


def add_record(layout: Layout, edit: IndexEdit, item: Prepared) -> None:
    """Attach the record of the run that made a target."""
    if not item.release.records:
        return
    layers = store_files(layout, item.release.records)
    record = store_attachment(layout, RECORD_TYPE, layers, item.descriptor)
    set_attachment(edit, item.descriptor.digest, "run", record)


def published_target(layout: Layout, name: str, version: str, item: Prepared) -> PublishedTarget:
    """A target as the caller of publish gets it."""
    manifest = item.release.manifest
    main = manifest.files[0]
    return PublishedTarget(
        target=manifest.target,
        soc=manifest.soc,
        precision=manifest.precision,
        ref=f"{name}:{target_tag(version_tag(version), manifest.target, manifest.soc)}",
        digest=item.descriptor.digest,
        path=str(layout.blob_path(main.sha256)),
        sha256=main.sha256,
        bytes=main.bytes,
    )
