"""Handoff bundles that come back, and archives of a registry: tars from anywhere, taken apart in a folder of ours."""

from __future__ import annotations

import io
import json
import random
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from fuzz_kit import Target, mutate_bytes, mutate_json, mutate_tar, packed_tar, scratch, tar_members, walk, written

from artifacts.archive import export_archive, import_archive
from artifacts.digest import FileEntry, canonical_json, file_entry, sha256_bytes
from artifacts.layout import Layout
from artifacts.manifest import ChainLink
from convert.errors import EXPECTED
from convert.evidence import MeasuredOutputs
from convert.handoff.archive import open_bundle
from convert.handoff.bundle import Bundle, SourceModel, place_of, sealed
from convert.handoff.measured import read_measured
from convert.values import CheckedGraph, CompileOptions, OnnxGraph, Plan, Support, TensorSpec

TOP = "mlp-Ascend910B.handoff"


def read(data: bytes) -> None:
    """The tar as a bundle, then as an archive of a registry; nothing may be written outside of the given folders."""
    path = written(data, "x.tar")
    refusals = [_refusal(lambda: _bundle(path)), _refusal(lambda: _archive(path))]
    beside = {item.name for item in path.parent.iterdir()} - {"x.tar", "ours", "registry"}
    assert not beside, f"written outside: {beside}"
    for place in (path.parent / "ours", path.parent / "registry"):
        assert not any(item.is_symlink() for item in place.rglob("*"))
    if all(refusals):
        raise refusals[0] or AssertionError


def _refusal(use: Any) -> Exception | None:
    try:
        use()
    except EXPECTED as error:
        return error
    return None


def _bundle(path: Path) -> None:
    opened = open_bundle(path, path.parent / "ours")
    graph = opened.bundle.graph
    files = [file_entry(Path(opened.folder), name) for name in opened.brought if name.startswith("measured/")]
    measured = MeasuredOutputs(parent=graph.digest, files=tuple(files), folder=opened.folder)
    if files:
        list(read_measured(graph, measured).outputs)


def _archive(path: Path) -> None:
    layout = Layout(path.parent / "registry")
    layout.create()
    import_archive(path, layout)


# ---------------------------------------------------------------------------------------------------------- mutations


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Members changed; of a bundle also its document, sealed again so that what lies behind the digest is reached."""
    if chance.random() < 0.5 and data[:200].find(b"bundle.json") >= 0:
        members = tar_members(data)
        for at, (member, content) in enumerate(members):
            if member.name.endswith("/bundle.json"):
                members[at] = (member, _resealed(mutate_json(content, chance)))
                return packed_tar(members)
    return _in_tar(data, chance)


_in_tar = mutate_tar(lambda data, chance: (mutate_json if data[:1] == b"{" else mutate_bytes)(data, chance))


def _resealed(data: bytes) -> bytes:
    try:
        document = json.loads(data)
        assert all(not isinstance(item, str) or item.isprintable() for item in walk(document))
        bundle = sealed(msgspec.convert(document, Bundle))
    except (ValueError, AssertionError, RecursionError, OverflowError):
        return data
    return canonical_json(bundle)


# -------------------------------------------------------------------------------------------------------------- seeds


def seeds() -> dict[str, bytes]:
    """A bundle, the same with what a card measured, and an archive of one version."""
    return {"bundle": _made_bundle(), "measured": _made_bundle(measured=True), "archive": _made_archive()}


@cache
def _contents() -> dict[str, bytes]:
    import numpy as np
    import onnx.parser

    text = '<ir_version: 8, opset_import: ["": 17]> g (float[1,2] x) => (float[1,2] y) { y = Relu(x) }'
    arrays = {}
    for name, key in (("samples", "x"), ("reference", "0")):
        stream = io.BytesIO()
        np.savez(stream, **{key: np.ones((1, 2), np.float32)})
        arrays[f"{name}/000.npz"] = stream.getvalue()
    return {"model.onnx": onnx.parser.parse_model(text).SerializeToString(), **arrays}


def _made_bundle(*, measured: bool = False) -> bytes:
    contents, source = _contents(), sha256_bytes(b"the user's model file")
    entries = tuple(
        FileEntry(name=name, sha256=sha256_bytes(data), bytes=len(data)) for name, data in sorted(contents.items())
    )
    loaded = sha256_bytes(b"loaded")
    spec = {"dtype": "float32", "shape": (1, 2)}
    graph = OnnxGraph(
        parent=loaded,
        stage="simplify",
        opset=17,
        inputs=(TensorSpec(name="x", **spec),),  # type: ignore[arg-type]
        outputs=(TensorSpec(name="y", **spec),),  # type: ignore[arg-type]
        nodes=1,
        ops={"Relu": 1},
        sample_count=1,
        files=entries,
    )
    support = Support(supported=True, nodes=1, opset=17)
    checked = CheckedGraph(parent=graph.digest, target="Ascend910B", support=support)
    script = b"#!/bin/bash\natc --model=model/model.onnx\n"
    files = [msgspec.structs.replace(entry, name=place_of(entry.name)) for entry in entries]
    files.append(FileEntry(name="compile.sh", sha256=sha256_bytes(script), bytes=len(script)))
    bundle = Bundle(
        name="mlp",
        version="1.0.0",
        model=SourceModel(name="mlp.onnx", format="onnx", sha256=source),
        target="Ascend910B",
        precision="fp16",
        judged_as="fp16",
        needs={"toolchain": "CANN", "version": "8.0.RC3"},
        members=("Ascend910B1", "Ascend910B3"),
        plan=Plan(backend="atc", argv=("atc", "--model=model.onnx"), output="model.om"),
        options=CompileOptions(target="Ascend910B", backend="atc", precision="fp16"),
        graph=graph,
        checked=checked,
        chain=(
            ChainLink(stage="load", digest=loaded, parent=source),
            ChainLink(stage="simplify", digest=graph.digest, parent=loaded),
            ChainLink(stage="check", digest=checked.digest, parent=graph.digest),
        ),
        files=tuple(sorted(files)),
    )
    texts = {"bundle.json": canonical_json(sealed(bundle)), "compile.sh": script}
    texts |= {place_of(name): data for name, data in contents.items()}
    if measured:
        texts |= {"out/model.om": b"IMOD", "compiled.json": b'{"soc": "Ascend910B3", "version": "8.0.RC3"}'}
        texts["measured/000.npz"] = contents["reference/000.npz"]
    members = [(tarfile.TarInfo(f"{TOP}/{name}"), data) for name, data in texts.items()]
    return packed_tar(members)


@cache
def _made_archive() -> bytes:
    from store_kit import make_release

    from artifacts.publish import PublishRequest, publish

    with tempfile.TemporaryDirectory(dir=scratch()) as place:
        folder = Path(place)
        publish(folder / "reg", PublishRequest(name="net", targets=(make_release(folder / "a"),)))
        export_archive(Layout(folder / "reg" / "net"), "net", ("1.0.0",), folder / "net.tar")
        data = (folder / "net.tar").read_bytes()
        shutil.rmtree(folder / "reg")
    return data


TARGET = Target(
    name="bundles",
    read=read,
    seeds=seeds,
    mutate=mutate,
    words=(b"ustar", b"bundle.json", b"../", b"blobs/sha256/", b"index.json", b"GNU.sparse", b"path=", b"size="),
    limit=1 << 16,
)
