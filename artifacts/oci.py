"""OCI documents: descriptors, image manifests and image indexes, read strictly and written canonically.

Read here, a document keeps only what the store uses; its bytes are always kept as they are, since digests name bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from artifacts.digest import Digest, canonical_json, sha256_bytes
from artifacts.errors import RegistryError
from artifacts.names import DIGEST_PATTERN, check_file_name
from artifacts.strictjson import parse_as

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
MODEL_TYPE = "application/vnd.cncf.model.manifest.v1+json"
MODEL_CONFIG_TYPE = "application/vnd.cncf.model.config.v1+json"
WEIGHT_TYPE = "application/vnd.cncf.model.weight.v1.raw"
WEIGHT_CONFIG_TYPE = "application/vnd.cncf.model.weight.config.v1.raw"
DOC_TYPE = "application/vnd.cncf.model.doc.v1.raw"

REF_NAME = "org.opencontainers.image.ref.name"
TITLE = "org.opencontainers.image.title"
VERSION = "org.opencontainers.image.version"
FILE_PATH = "org.cncf.model.filepath"
PREFIX = "io.model-convert."

MAX_LAYERS = 1024
MAX_TARGETS = 1024


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a document says of a blob."""

    media_type: str
    digest: Digest
    size: int
    annotations: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The file name of a layer; empty where it has none."""
        return self.annotations.get(TITLE, "")


class ImageManifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An OCI 1.1 image manifest. ``subject``: what an attached manifest is about."""

    schema_version: int
    media_type: str
    artifact_type: str = ""
    config: Descriptor
    layers: tuple[Descriptor, ...] = ()
    subject: Descriptor | None = None
    annotations: dict[str, str] = {}


class ImageIndex(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An OCI image index: a version, with one manifest for each target."""

    schema_version: int
    media_type: str
    manifests: tuple[Descriptor, ...]
    annotations: dict[str, str] = {}


EMPTY_JSON = b"{}"


def document(value: Any) -> bytes:
    """The canonical bytes of an OCI document."""
    return canonical_json(value)


def describe(data: bytes, media_type: str, annotations: dict[str, str] | None = None) -> Descriptor:
    """The descriptor of bytes."""
    return Descriptor(media_type=media_type, digest=sha256_bytes(data), size=len(data), annotations=annotations or {})


def file_layer(media_type: str, digest: Digest, size: int, title: str) -> Descriptor:
    """The descriptor of a file, with its name where ``oras``, ``modctl`` and the store look for it."""
    return Descriptor(media_type=media_type, digest=digest, size=size, annotations={TITLE: title, FILE_PATH: title})


def parse_image(data: bytes, what: str) -> ImageManifest:
    """Read an image manifest.

    Raises:
        RegistryError: CNV-9008, or CNV-9015 for a layer title that could leave its folder.
    """
    image = parse_as(ImageManifest, data, what)
    _check_head(image.schema_version, image.media_type, MANIFEST_TYPE, what)
    if len(image.layers) > MAX_LAYERS:
        raise _bad(what, f"it has {len(image.layers)} layers, more than {MAX_LAYERS}")
    subject = (image.subject,) if image.subject else ()
    _check_descriptors((image.config, *image.layers, *subject), what)
    titles = [check_file_name(layer.title) for layer in image.layers if layer.title]
    if len(titles) != len(set(titles)):
        raise _bad(what, "two layers have the same title")
    return image


def parse_index(data: bytes, what: str) -> ImageIndex:
    """Read an image index; all it lists must be image manifests, so that indexes can't nest or loop.

    Raises:
        RegistryError: CNV-9008.
    """
    index = parse_as(ImageIndex, data, what)
    _check_head(index.schema_version, index.media_type, INDEX_TYPE, what)
    if len(index.manifests) > MAX_TARGETS:
        raise _bad(what, f"it lists {len(index.manifests)} manifests, more than {MAX_TARGETS}")
    _check_descriptors(index.manifests, what)
    if any(entry.media_type != MANIFEST_TYPE for entry in index.manifests):
        raise _bad(what, "it lists something that is not an image manifest")
    return index


def _check_head(schema_version: int, media_type: str, expected: str, what: str) -> None:
    if schema_version != 2 or media_type != expected:
        raise _bad(
            what, f"it says schemaVersion {schema_version} and mediaType {media_type[:80]!r}, not 2 and {expected}"
        )


def _check_descriptors(descriptors: tuple[Descriptor, ...], what: str) -> None:
    for item in descriptors:
        if not DIGEST_PATTERN.fullmatch(item.digest):
            raise _bad(what, f"{item.digest[:80]!r} is no sha256 digest")
        if item.size < 0:
            raise _bad(what, f"{item.digest} has the size {item.size}")


def _bad(what: str, why: str) -> RegistryError:
    return RegistryError("CNV-9008", f"{what} is not valid: {why}", hint="publish or copy it again")
