"""Graphs stored beside a model's versions, fetched by other machines, and dropped when nothing needs them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from artifacts.digest import FileEntry, canonical_json, file_entry, sha256_bytes
from artifacts.oci import DOC_TYPE, EMPTY_JSON, EMPTY_TYPE, MANIFEST_TYPE, ImageManifest, describe, document, file_layer
from convert.across.graphs import FILE, TYPE, SharedWork, drop_stale_graphs, fetch_graph, graph_tag, store_graph
from convert.catalog.shelf import Shelf, open_shelf
from convert.errors import RegistryError
from convert.request import StageRun
from convert.values import ModelFile, OnnxGraph, TensorSpec

NAMES = ("model.onnx", "samples/000.npz", "reference/000.npz")


@pytest.fixture
def work(tmp_path: Path) -> SharedWork:
    folder = tmp_path / "graph"
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    spec = TensorSpec(name="x", dtype="float32", shape=(2, 4))
    graph = OnnxGraph(
        parent=sha256_bytes(b"export"),
        stage="simplify",
        opset=17,
        inputs=(spec,),
        outputs=(spec,),
        sample_count=1,
        files=tuple(file_entry(folder, name) for name in NAMES),
        folder=str(folder),
    )
    model = ModelFile(path="/home/somebody/net.onnx", format="onnx", sha256=sha256_bytes(b"model"), bytes=5)
    return SharedWork(model=model, graph=graph, stages=(StageRun(stage="load", seconds=1.0, cached=False),))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    with open_shelf(str(tmp_path / "registry"), "net") as found:
        return found


def test_a_graph_arrives_as_it_was_stored_and_tells_no_path_of_the_machine(
    shelf: Shelf, work: SharedWork, tmp_path: Path
) -> None:
    tag = store_graph(shelf, work)
    assert tag == store_graph(shelf, work) == graph_tag(work.graph.digest)
    found = fetch_graph(shelf, tag, tmp_path / "there")
    assert found.graph.digest == work.graph.digest
    assert {name: (tmp_path / "there" / name).read_bytes() for name in NAMES} == {n: n.encode() for n in NAMES}
    assert (found.model.path, found.stages) == ("net.onnx", work.stages)


def test_a_machine_with_a_card_fetches_no_weights(shelf: Shelf, work: SharedWork, tmp_path: Path) -> None:
    fetch_graph(shelf, store_graph(shelf, work), tmp_path / "card", weights=False)
    assert not (tmp_path / "card" / "model.onnx").exists()
    assert (tmp_path / "card" / "reference/000.npz").is_file()


def forged(shelf: Shelf, work: SharedWork, tag: str) -> None:
    """A graph's manifest as somebody else would write it."""
    layout = shelf.create()
    plain = canonical_json(msgspec.structs.replace(work, graph=msgspec.structs.replace(work.graph, folder="")))
    layers = [file_layer(DOC_TYPE, layout.put_bytes(plain), len(plain), FILE)]
    layers += [file_layer(DOC_TYPE, layout.put_bytes(b"x"), 1, "0000-x")]
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


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "samples/../../evil", "samples/a/b", "samples/..", "other.bin"]
)
def test_no_file_of_a_graph_leaves_its_folder(shelf: Shelf, work: SharedWork, tmp_path: Path, name: str) -> None:
    entry = FileEntry(name=name, sha256=sha256_bytes(b"x"), bytes=1)
    bad = msgspec.structs.replace(work, graph=msgspec.structs.replace(work.graph, files=(entry,)))
    tag = graph_tag(bad.graph.digest)
    forged(shelf, bad, tag)
    with pytest.raises(RegistryError) as caught:
        fetch_graph(shelf, tag, tmp_path / "there")
    assert caught.value.code == "CNV-9015"
    assert not (tmp_path / "evil").exists()


def test_a_graph_that_another_version_describes_differently_is_told(
    shelf: Shelf, work: SharedWork, tmp_path: Path
) -> None:
    forged(shelf, work, "graph-" + "0" * 32)
    with pytest.raises(RegistryError, match="made by another version of model-convert"):
        fetch_graph(shelf, "graph-" + "0" * 32, tmp_path / "there")


@pytest.mark.parametrize("tag", ["graph-" + "1" * 32, "1.0.0", "../graph", "sha256-x"])
def test_a_graph_that_is_not_there_is_told(shelf: Shelf, work: SharedWork, tmp_path: Path, tag: str) -> None:
    store_graph(shelf, work)
    with pytest.raises(RegistryError) as caught:
        fetch_graph(shelf, tag, tmp_path / "there")
    assert caught.value.code == "CNV-9002"


def test_graphs_that_no_version_was_made_of_are_dropped(shelf: Shelf, work: SharedWork) -> None:
    tag = store_graph(shelf, work)
    assert drop_stale_graphs(shelf.root, "net", apply=False) == (tag,)
    assert shelf.layout.find(tag) is not None
    assert drop_stale_graphs(shelf.root, "net", apply=True) == (tag,)
    assert shelf.layout.find(tag) is None
