"""Documents of the registry: manifests, OCI images and indexes, index.json, signature bundles and statements."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from fuzz_kit import Target, mutate_json

from artifacts.dsse import Statement, Subject, open_bundle, sign_statement
from artifacts.keys import PrivateKey, generate_key, load_private_key
from artifacts.layout import index_refs, parse_index_file
from artifacts.manifest import highest, lowest, manifest_bytes, parse_manifest, verdict
from artifacts.oci import parse_image, parse_index
from artifacts.statements import signed_files
from convert.errors import EXPECTED

Read = Callable[[bytes], Any]


def read(data: bytes) -> None:
    """Each reader gets the document: one refuses it, another may take it."""
    last: Exception | None = None
    taken = 0
    for reader in (_manifest, _image, _index, _index_file, _signature, _validation):
        try:
            reader(data)
            taken += 1
        except EXPECTED as error:
            last = error
    if not taken and last is not None:
        raise last


def _manifest(data: bytes) -> None:
    manifest = parse_manifest(data)
    again = manifest_bytes(manifest)
    assert parse_manifest(again) == manifest and manifest_bytes(parse_manifest(again)) == again
    lowest(manifest, "cosine"), highest(manifest, "rel_l2"), verdict(manifest), manifest.key, manifest.digest


def _image(data: bytes) -> None:
    parse_image(data, "the image")


def _index(data: bytes) -> None:
    parse_index(data, "the index")


def _index_file(data: bytes) -> None:
    index_refs(parse_index_file(data, "index.json"))


def _signature(data: bytes) -> None:
    signed_files(open_bundle(data, (_key().public,), "the bundle").statement)


def _validation(data: bytes) -> None:
    from convert.validation_file import read_validation

    path = _place() / "validation.json"
    path.write_bytes(data)
    read_validation(path)


@cache
def _place() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-manifests-"))


@cache
def _key() -> PrivateKey:
    generate_key(_place() / "k")
    return load_private_key(_place() / "k.key")


def seeds() -> dict[str, bytes]:
    """A published version's documents, and a signature of a key that is known."""
    from store_kit import make_release

    from artifacts.layout import Layout
    from artifacts.publish import PublishRequest, publish

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        publish(folder / "reg", PublishRequest(name="net", targets=(make_release(folder / "a"),)))
        layout = Layout(folder / "reg" / "net")
        found = {
            "manifest": manifest_bytes(make_release(folder / "a").manifest),
            "image": layout.read_blob(layout.find("1.0.0-ascend910b3").digest, "image"),
            "index": layout.read_blob(layout.find("1.0.0").digest, "index"),
            "index-file": layout.index_bytes(),
        }
    statement = Statement(
        subject=(Subject(digest={"sha256": "0" * 64}),),
        predicate_type="https://model_signing/signature/v1.0",
        predicate={"resources": [{"name": "a", "algorithm": "sha256", "digest": "0" * 64}]},
    )
    found["signature"] = sign_statement(statement, _key())
    outputs = [{"name": "y", "dtype": "float32", "shape": [1, 2], "state": "compared", "cosine": 0.999, "rel_l2": 0.01}]
    found["validation"] = json.dumps({"schema": 1, "ran_on": "device", "outputs": outputs}).encode()
    return found


TARGET = Target(
    name="manifests",
    read=read,
    seeds=seeds,
    mutate=mutate_json,
    words=(b'"schema"', b'"digest"', b'"sha256:', b'"annotations"', b'"subject"', b'"payload"', b'"signatures"'),
)
