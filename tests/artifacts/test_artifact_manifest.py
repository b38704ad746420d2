"""The laws of manifest.json, and what untrusted ones meet."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_kit import SOURCE, make_release

from artifacts.digest import FileEntry, sha256_bytes
from artifacts.errors import RegistryError
from artifacts.manifest import (
    ChainLink,
    Manifest,
    check_manifest,
    highest,
    lowest,
    manifest_bytes,
    parse_manifest,
    verdict,
)
from artifacts.strictjson import parse_json


@pytest.fixture
def manifest(tmp_path) -> Manifest:
    return make_release(tmp_path).manifest


def changed(manifest: Manifest, **fields: object) -> bytes:
    return json.dumps({**json.loads(manifest_bytes(manifest)), **fields}).encode()


def test_reading_what_was_written_gives_the_same_manifest(manifest):
    assert parse_manifest(manifest_bytes(manifest)) == manifest


def test_equal_manifests_have_equal_bytes(manifest):
    other = msgspec.structs.replace(manifest, libraries=dict(reversed({"onnx": "1.20.0"}.items())))
    assert manifest_bytes(other) == manifest_bytes(manifest)
    assert other.digest == manifest.digest


def test_a_manifest_of_schema_1_still_loads():
    first = b'{"schema":1,"model":{"format":"onnx","sha256":"%s"},"chain":[],"target":"cpu","backend":"onnxruntime",'
    first += b'"precision":"fp32","files":[{"name":"a.onnx","sha256":"%s","bytes":3}]}'
    loaded = parse_manifest(first % (SOURCE.encode(), SOURCE.encode()))
    assert (loaded.target, loaded.files[0].name, loaded.ran_on) == ("cpu", "a.onnx", "none")


def test_a_newer_schema_is_named(manifest):
    with pytest.raises(RegistryError) as refusal:
        parse_manifest(changed(manifest, schema=2))
    assert refusal.value.code == "CNV-9017"


def test_a_chain_with_a_gap_is_refused(manifest):
    loose = ChainLink(stage="compile", digest=sha256_bytes(b"a"), parent=sha256_bytes(b"nowhere"))
    with pytest.raises(RegistryError, match="parent of stage 'compile'"):
        check_manifest(msgspec.structs.replace(manifest, chain=(loose,)))


@pytest.mark.parametrize("name", ["../net.om", "/net.om", "manifest.json", "run.json", "support.json"])
def test_file_names_that_escape_or_are_taken_are_refused(manifest, name):
    entry = FileEntry(name=name, sha256=SOURCE, bytes=1)
    with pytest.raises(RegistryError) as refusal:
        check_manifest(msgspec.structs.replace(manifest, files=(entry,)))
    assert refusal.value.code in {"CNV-9008", "CNV-9015"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Expecting value"),
        (b"[]", "Expected `object`"),
        (b'{"schema":1,"schema":1}', "appears twice"),
        (b'{"schema":NaN}', "NaN"),
        (b'{"schema":1}', "missing required field"),
        (b'{"schema":1,"x":' + b"[" * 70 + b"]" * 70 + b"}", "deeper than 64"),
        (b'{"x":' + b"[" * 100_000, "deeper than 64"),
        (b'{"schema":1,"x":' + b"1" * 5000 + b"}", "digits"),
        (b'{"schema":1,"x":"\xff"}', "decode"),
    ],
)
def test_untrusted_documents_are_refused_with_the_reason(data, why):
    with pytest.raises(RegistryError, match=why) as refusal:
        parse_manifest(data)
    assert refusal.value.code == "CNV-9008"


def test_a_document_over_the_limit_is_not_parsed():
    with pytest.raises(RegistryError, match="more than 10"):
        parse_json(b'"' + b"x" * 20 + b'"', "a document", limit=10)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_manifest_or_a_clear_error(data):
    with pytest.raises(RegistryError):
        parse_manifest(data)


@pytest.mark.parametrize("field", ["model", "files", "target", "chain", "ran_on", "soc"])
@pytest.mark.parametrize("value", [None, 3, "", [], {}, "x" * 100, [{}], [[[]]]])
def test_wrong_values_are_clear_errors(manifest, field, value):
    data = changed(manifest, **{field: value})
    try:
        assert parse_manifest(data).files
    except RegistryError as error:
        assert error.code in {"CNV-9008", "CNV-9015"}


@pytest.mark.parametrize(
    ("validation", "said"),
    [({"passed": True}, "passed"), ({"passed": False}, "failed"), ({}, "ungated"), ({"passed": 1}, "ungated")],
)
def test_the_verdict_is_read_from_the_validation(manifest, validation, said):
    assert verdict(msgspec.structs.replace(manifest, validation=validation)) == said


def test_the_worst_metric_over_all_outputs_is_read(manifest):
    outputs = [{"cosine": 0.9, "rel_l2": 0.2}, {"cosine": 0.8, "rel_l2": None}, {"cosine": True}, "noise"]
    found = msgspec.structs.replace(manifest, validation={"outputs": outputs})
    assert (lowest(found, "cosine"), highest(found, "rel_l2"), lowest(found, "x")) == (0.8, 0.2, None)
