"""Documents and answers that somebody made up: clear errors only, whatever they hold."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_registry import Handler, Server
from store_kit import make_release

from artifacts.dsse import Statement, Subject, open_bundle, sign_statement
from artifacts.errors import ModelConvertError
from artifacts.events import Event, read_event, store_event
from artifacts.fsck import fsck
from artifacts.keys import generate_key, load_private_key
from artifacts.layout import Layout, index_refs, parse_index_file
from artifacts.manifest import manifest_bytes, parse_manifest
from artifacts.oci import parse_image, parse_index
from artifacts.place import pull_remote
from artifacts.publish import PublishRequest, publish
from artifacts.statements import signed_files

ODD: list[Any] = [
    *(None, True, False, 0, -1, 2, 1 << 70, 1.5, 1e308),
    *("", "x", "../../etc/passwd", "\x00", "\ud800", "sha256:" + "0" * 64, "sha256:../../x", "A" * 5000),
    *([], {}, [[]], {"a": {}}, [None] * 50, {"sha256": "zz"}, "application/vnd.oci.image.index.v1+json"),
]
SMALL, LONG = 300, 10_000


def mutated(document: Any, chance: random.Random) -> Any:
    """The document with some of its parts replaced, removed, doubled or moved."""
    value = json.loads(json.dumps(document))
    for _ in range(chance.randint(1, 4)):
        holder = chance.choice(_holders(value) or [[]])
        if not holder:
            return chance.choice(ODD)
        key = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        action = chance.randrange(4)
        if action == 0:
            del holder[key]
        elif action == 1 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        else:
            holder[key] = copy.deepcopy(chance.choice(ODD))
    return value


def _holders(value: Any) -> list[Any]:
    found, pending = [], [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict | list) and item:
            found.append(item)
            pending += item.values() if isinstance(item, dict) else item
    return found


def mangled(data: bytes, chance: random.Random) -> bytes:
    """The document's text with some bytes changed, or the document with some parts changed."""
    if chance.random() < 0.7:
        return json.dumps(mutated(json.loads(data), chance)).encode("utf-8", "surrogatepass")
    text = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        text[chance.randrange(len(text))] = chance.randrange(256)
    return bytes(text[: chance.randint(0, len(text))]) if chance.random() < 0.3 else bytes(text)


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    publish(folder / "reg", PublishRequest(name="net", targets=(make_release(folder / "a"),)))
    return folder / "reg"


@pytest.fixture(scope="module")
def documents(root, tmp_path_factory) -> dict[str, tuple[bytes, Callable[[bytes], object]]]:
    """Valid documents with what reads them."""
    layout, folder = Layout(root / "net"), tmp_path_factory.mktemp("keys")
    generate_key(folder / "k")
    key = load_private_key(folder / "k.key")
    image = layout.read_blob(layout.find("1.0.0-ascend910b3").digest, "image")
    index = layout.read_blob(layout.find("1.0.0").digest, "index")
    resources = [{"name": "a", "algorithm": "sha256", "digest": "0" * 64}]
    statement = Statement(
        subject=(Subject(digest={"sha256": "0" * 64}),),
        predicate_type="https://model_signing/signature/v1.0",
        predicate={"resources": resources},
    )

    def bundle(data: bytes) -> None:
        signed_files(open_bundle(data, (key.public,), "bundle").statement)

    def refs(data: bytes) -> None:
        index_refs(parse_index_file(data, "index.json"))

    return {
        "manifest.json": (manifest_bytes(make_release(folder / "a").manifest), parse_manifest),
        "image": (image, lambda data: parse_image(data, "image")),
        "index": (index, lambda data: parse_index(data, "index")),
        "index.json": (layout.index_bytes(), refs),
        "bundle": (sign_statement(statement, key), bundle),
    }


def fuzz(documents: dict[str, Any], kind: str, count: int) -> None:
    data, read = documents[kind]
    read(data)
    chance = random.Random(kind)
    refused = 0
    for _ in range(count):
        try:
            read(mangled(data, chance))
        except ModelConvertError as error:
            refused += 1
            assert error.code.startswith("CNV-9")
    assert refused > count // 4


KINDS = ["manifest.json", "image", "index", "index.json", "bundle"]


@pytest.mark.parametrize("kind", KINDS)
def test_made_up_documents_are_clear_errors(documents, kind):
    fuzz(documents, kind, SMALL)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_made_up_documents_are_clear_errors(documents, kind):
    fuzz(documents, kind, LONG)


def fuzz_statements(root: Path, count: int) -> None:
    """Statements that are signed well and say odd things."""
    layout, chance = Layout(root / "net"), random.Random("event")
    subject = layout.find("1.0.0")
    event = Event(seq=1, model="net", channel="prod", after=subject.digest, version="1.0.0", actor="wei", time="now")
    image = json.loads(layout.read_blob(store_event(layout, event, subject, None).digest, "event"))
    statement = layout.read_blob(image["layers"][0]["digest"], "statement")
    for _ in range(count):
        data = mangled(statement, chance)
        image["layers"][0] |= {"digest": layout.put_bytes(data), "size": len(data)}
        digest = layout.put_bytes(json.dumps(image).encode())
        try:
            assert read_event(layout, digest).event.after == subject.digest
        except ModelConvertError as error:
            assert error.code.startswith("CNV-9")


def test_made_up_events_are_clear_errors(root):
    fuzz_statements(root, 100)


def fuzz_index_file(root: Path, count: int) -> None:
    """A registry whose index.json says odd things: fsck tells, and never fails."""
    path, chance = root / "net/index.json", random.Random("fsck")
    data = path.read_bytes()
    try:
        for _ in range(count):
            path.write_bytes(mangled(data, chance))
            assert fsck(root).models[0].name == "net"
    finally:
        path.write_bytes(data)


def test_fsck_survives_any_index_json(root):
    fuzz_index_file(root, 100)


BODIES = [b"", b"{}", b"[]", b'{"tags":3}', b'{"tags":["../x", null]}', b'{"token":3}', b"\xff" * 9, b'{"errors":7}']
HEADERS: list[dict[str, str]] = [
    {},
    *({"Location": place} for place in ("", "//evil.invalid/x", "file:///etc/passwd", "/v2/")),
    *({"WWW_Authenticate": text} for text in ("Bearer", 'Bearer realm="/token"', "Basic", 'Bearer realm="http://x/"')),
    {"Retry_After": "x" * 50},
    {"Link": '<http://evil.invalid/>; rel="next"'},
    {"Content_Type": "text/html"},
]


def answer_oddly(chance: random.Random) -> Callable[[Handler], bool]:
    """Now and then another status, another header, another body, or none at all."""

    def fault(handler: Handler) -> bool:
        draw = chance.random()
        if draw < 0.8:
            return False
        if draw < 0.83:
            return handler.drop()
        status = chance.choice([200, 201, 204, 206, 302, 307, 401, 403, 404, 416, 429, 500, 503])
        body, headers = chance.choice(BODIES), chance.choice(HEADERS)
        handler.answer(204 if status == 204 else status, b"" if status == 204 else body, **headers)
        return True

    return fault


def fuzz_answers(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr("artifacts.remote_http.time.sleep", lambda _: None)
    monkeypatch.setenv("CONVERT_REGISTRY_USER", "wei")
    server, chance = Server(), random.Random("http")
    layout = Layout(root / "net")
    for ref in layout.refs():
        data = layout.read_blob(ref.descriptor.digest, "manifest")
        server.manifests[ref.tag] = server.manifests[ref.descriptor.digest] = (data, ref.descriptor.media_type)
    server.blobs = {f"sha256:{entry.name}": Path(entry.path).read_bytes() for entry in layout.stored()}
    server.faults = [answer_oddly(chance)]
    try:
        for number in range(count):
            try:
                pulled = pull_remote(f"oci://{server.host}/zoo", "net", tmp_path / f"out{number}")
                assert (tmp_path / f"out{number}/net.om").read_bytes() == b"weights", pulled
            except ModelConvertError as error:
                assert error.exit_code == 9
                assert not (tmp_path / f"out{number}").exists()
    finally:
        server.shutdown()
        server.server_close()


def test_made_up_answers_of_a_registry_are_clear_errors(root, tmp_path, monkeypatch):
    fuzz_answers(root, tmp_path, monkeypatch, 40)


@pytest.mark.long
def test_ten_thousand_made_up_answers_of_a_registry_are_clear_errors(root, tmp_path, monkeypatch):
    fuzz_answers(root, tmp_path, monkeypatch, 2_000)
