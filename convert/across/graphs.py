"""A model's graph in the registry, beside its versions: ``graph-<digest>``, one layer for each file.

Made once, where the model's file and torch are; fetched by machines that compile it, and without its weights by
machines that measure an artifact on a card.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import msgspec

from artifacts.digest import Digest, FileEntry, canonical_json
from artifacts.layout import Layout, LayoutRef
from artifacts.names import TAG_PATTERN
from artifacts.oci import (
    DOC_TYPE,
    EMPTY_JSON,
    EMPTY_TYPE,
    MANIFEST_TYPE,
    MODEL_TYPE,
    WEIGHT_TYPE,
    Descriptor,
    ImageManifest,
    describe,
    document,
    file_layer,
    parse_image,
)
from artifacts.registry import Registry
from artifacts.resolve import load_target
from artifacts.strictjson import MANIFEST_BYTES, parse_as
from convert.catalog.shelf import DRAFT, Shelf
from convert.errors import RegistryError
from convert.links import link_or_copy
from convert.request import StageRun
from convert.values import ModelFile, OnnxGraph, moved

TYPE = "application/vnd.io.model-convert.graph.v1"
FILE = "shared.json"
FOLDERS = ("samples", "reference", "calibration", "ties")
"""Where a graph's files may lie beside the graph itself."""


class SharedWork(msgspec.Struct, frozen=True, kw_only=True):
    """What the shared stages gave: the model's file, its graph, and how the stages went."""

    model: ModelFile
    graph: OnnxGraph
    stages: tuple[StageRun, ...] = ()


def graph_tag(graph: Digest) -> str:
    """The tag of a graph."""
    return f"graph-{graph.removeprefix('sha256:')[:32]}"


def store_graph(shelf: Shelf, work: SharedWork) -> str:
    """Store a graph where every machine of the registry can fetch it; gives its tag. Linked, not copied, into a folder.

    Raises:
        RegistryError: those of writing.
        ResourceLimit: CNV-1003.
    """
    layout = shelf.create()
    tag = graph_tag(work.graph.digest)
    if layout.find(tag) is None:
        layers = []
        for number, entry in enumerate(work.graph.files):
            layout.put_file(work.graph.path(entry.name), entry, link=True)
            title = f"{number:04d}-{PurePosixPath(entry.name).name}"
            layers.append(file_layer(WEIGHT_TYPE, entry.sha256, entry.bytes, title))
        bare = msgspec.structs.replace(
            work,
            graph=msgspec.structs.replace(work.graph, folder=""),
            model=msgspec.structs.replace(work.model, path=Path(work.model.path).name),
        )
        plain = canonical_json(bare)
        layers.append(file_layer(DOC_TYPE, layout.put_bytes(plain), len(plain), FILE))
        layout.put_bytes(EMPTY_JSON)
        image = ImageManifest(
            schema_version=2,
            media_type=MANIFEST_TYPE,
            artifact_type=TYPE,
            config=describe(EMPTY_JSON, EMPTY_TYPE),
            layers=tuple(layers),
        )
        data = document(image)
        layout.put_bytes(data)
        with layout.edit() as edit:
            edit.set(tag, describe(data, MANIFEST_TYPE))
    shelf.send([tag])
    return tag


def fetch_graph(shelf: Shelf, tag: str, folder: Path, *, weights: bool = True) -> SharedWork:
    """A stored graph, its files in ``folder``; without ``weights`` only samples and reference outputs are there.

    Raises:
        RegistryError: CNV-9002 (no such graph), CNV-9008 (it isn't one), and those of reading.
        ResourceLimit: CNV-1003.
    """
    found = _find(shelf, tag)
    image = parse_image(shelf.layout.read_blob(found.digest, tag), tag)
    layers = {layer.title: layer for layer in image.layers}
    if image.artifact_type != TYPE or FILE not in layers:
        raise RegistryError("CNV-9008", f"{shelf.name}:{tag} is no graph", hint="convert the model again")
    shelf.fetch_blobs([layers[FILE]])
    work = parse_as(SharedWork, shelf.layout.read_blob(layers[FILE].digest, tag, limit=MANIFEST_BYTES), tag)
    if graph_tag(work.graph.digest) != tag:
        raise RegistryError(
            "CNV-9008",
            f"{shelf.name}:{tag} was made by another version of model-convert, which describes graphs differently",
            hint="install the same version on all machines, then convert the model again",
        )
    wanted = [entry for entry in work.graph.files if weights or "/" in entry.name]
    for entry in work.graph.files:
        _check_name(entry, tag)
    blobs = {layer.digest: layer for layer in image.layers}
    lost = [entry.name for entry in wanted if entry.sha256 not in blobs]
    if lost:
        raise RegistryError("CNV-9008", f"{shelf.name}:{tag} lacks {', '.join(lost)}", hint="convert the model again")
    shelf.fetch_blobs([blobs[entry.sha256] for entry in wanted])
    for entry in wanted:
        link_or_copy(shelf.layout.blob_path(entry.sha256), folder / entry.name)
    return msgspec.structs.replace(work, graph=moved(work.graph, folder))


def _find(shelf: Shelf, tag: str) -> Descriptor:
    if not TAG_PATTERN.fullmatch(tag) or not tag.startswith("graph-"):
        raise RegistryError("CNV-9002", f"{tag[:80]!r} is no tag of a graph", hint="a graph's tag begins with graph-")
    shelf.fetch_tag(tag)
    found = shelf.layout.find(tag) if shelf.layout.exists else None
    if found is None:
        raise RegistryError(
            "CNV-9002",
            f"{shelf.name} has no {tag} in {shelf.registry}",
            hint="convert the model again, then its targets",
        )
    return found


def _check_name(entry: FileEntry, tag: str) -> None:
    """A file's name stays in its folder: ``model.onnx``, ``model.onnx.data``, ``samples/000.npz``, …"""
    parts = PurePosixPath(entry.name).parts
    flat = len(parts) == 1 and parts[0].startswith("model.onnx")
    inside = len(parts) == 2 and parts[0] in FOLDERS
    if not (flat or inside) or any(part in ("..", ".", "/") or "\\" in part or "\0" in part for part in parts):
        raise RegistryError("CNV-9015", f"{tag} has a file called {entry.name[:80]!r}", hint="convert the model again")


def drop_stale_graphs(root: Path, name: str, *, apply: bool) -> tuple[str, ...]:
    """The graphs of a model that no version and no draft of it was made of; dropped with ``apply``.

    Raises:
        RegistryError: CNV-9001, CNV-9005 to CNV-9008, and those of writing.
    """
    layout = Registry(root).open_model(name)
    refs = layout.refs()
    targets = {ref.descriptor.digest: ref.descriptor for ref in refs if _is_target(layout, ref)}
    needed = {
        graph_tag(link.digest) for target in targets.values() for link in load_target(layout, target).manifest.chain
    }
    if any(ref.tag.startswith(DRAFT) for ref in refs):
        return ()  # targets of it may still be converted from a graph that nothing refers to yet
    stale = tuple(ref.tag for ref in refs if ref.tag.startswith("graph-") and ref.tag not in needed)
    if apply and stale:
        with layout.edit() as edit:
            for tag in stale:
                edit.drop(tag)
    return stale


def _is_target(layout: Layout, ref: LayoutRef) -> bool:
    if ref.descriptor.media_type != MANIFEST_TYPE or ref.tag.startswith(("sha256-", "event-", "graph-")):
        return False
    return parse_image(layout.read_blob(ref.descriptor.digest, ref.tag), ref.tag).artifact_type == MODEL_TYPE
