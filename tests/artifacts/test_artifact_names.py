"""Names, versions, tags and references."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.errors import ModelConvertError, RegistryError, UsageError
from artifacts.names import (
    NAME_PATTERN,
    TAG_PATTERN,
    base_version,
    check_file_name,
    check_name,
    check_version,
    default_name,
    is_version_tag,
    next_patch,
    next_revision,
    parse_ref,
    target_tag,
    version_key,
    version_of_tag,
    version_tag,
)

versions = st.from_regex(r"\A[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}(-[0-9A-Za-z.-]{1,8})?(\+[0-9A-Za-z.-]{1,8})?\Z")


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("ResNet18", "resnet18"),
        ("yolo v8 (final)", "yolo-v8-final"),
        ("a__b..c", "a__b-c"),
        ("Éclair_Net", "eclair_net"),
        ("-._x_.-", "x"),
    ],
)
def test_default_name_follows_the_stem(stem, name):
    assert default_name(stem) == name


def test_a_stem_that_the_store_uses_itself_gets_another_name():
    assert default_name("blobs").startswith("model-")


def test_a_stem_without_latin_letters_gets_a_stable_name():
    assert default_name("模型") == default_name("模型")
    assert default_name("模型") != default_name("模型二")


@given(st.text())
def test_every_default_name_is_a_valid_name(stem):
    assert NAME_PATTERN.fullmatch(check_name(default_name(stem)))


@pytest.mark.parametrize(
    "name", ["", "Net", "a//b", "../x", "/a", "a/", "a..b", "net/blobs", "a b", "ä", "x" * 181, "a\n"]
)
def test_bad_model_names_are_refused_with_a_suggestion(name):
    with pytest.raises(UsageError) as refusal:
        check_name(name)
    assert refusal.value.code == "CNV-2402"
    assert "--name" in refusal.value.hint


@pytest.mark.parametrize("version", ["1", "1.2", "1.2.3", "1.0.0-rc.1", "2026.11.30+b7", "1.0.0-r2"])
def test_good_versions_survive_the_way_to_a_tag_and_back(version):
    assert version_of_tag(version_tag(check_version(version))) == version
    assert is_version_tag(version_tag(version))


@pytest.mark.parametrize(
    "version", ["", "v1", "latest", "1.2.3.4", "1_0", "1.0.0-", "1.0.0+", "../1", "1.0.0 ", "1" * 61]
)
def test_bad_versions_are_refused(version):
    with pytest.raises(UsageError) as refusal:
        check_version(version)
    assert refusal.value.code == "CNV-2403"


@given(versions)
def test_tags_of_versions_are_oci_tags(version):
    assert TAG_PATTERN.fullmatch(version_tag(version))
    assert TAG_PATTERN.fullmatch(target_tag(version_tag(version), "Ascend910B", "Ascend910B4-1"))


def test_versions_sort_as_people_expect():
    order = ["0.9.0", "1.0.0-rc.2", "1.0.0-rc.10", "1.0.0", "1.0.0-r2", "1.0.0-r10", "1.0.1", "1.10.0", "2"]
    assert sorted(set(order), key=version_key) == order


@given(st.lists(versions, min_size=1))
def test_the_next_patch_is_newer_than_all(existing):
    assert all(version_key(next_patch(existing)) > version_key(version) for version in existing)


def test_the_first_version_is_one():
    assert next_patch([]) == "1.0.0"


@pytest.mark.parametrize(
    ("version", "taken", "revision"),
    [
        ("1.0.0", set(), "1.0.0-r2"),
        ("1.0.0", {"1.0.0-r2"}, "1.0.0-r3"),
        ("1.0.0-r2", {"1.0.0-r2"}, "1.0.0-r3"),
        ("1.0.0-rc1", set(), "1.0.0-rc1.r2"),
        ("1.0.0+b7", set(), "1.0.0-r2+b7"),
    ],
)
def test_next_revision_is_the_first_free_one(version, taken, revision):
    assert next_revision(version, taken) == revision


@given(versions)
def test_a_revision_sorts_after_its_version_and_names_it(version):
    revision = next_revision(version, {version})
    assert base_version(revision) == base_version(version)
    assert version_key(revision) > version_key(base_version(version))


@pytest.mark.parametrize(
    "text", ["net", "team/net:1.0.0", "net:prod", "net@sha256:" + "0" * 64, "net:1@sha256:" + "a" * 64]
)
def test_references_print_as_they_were_read(text):
    assert str(parse_ref(text)) == text


def test_a_build_version_can_be_asked_for_as_it_is_written():
    assert parse_ref("net:1.0.0+b7").tag == "1.0.0_b7"


@pytest.mark.parametrize(
    "text", ["", ":1", "net:", "net:-x", "net@", "net@sha512:00", "net@sha256:AB", "net:a b", "n:a/b"]
)
def test_broken_references_are_usage_errors(text):
    with pytest.raises(UsageError) as refusal:
        parse_ref(text)
    assert refusal.value.code in {"CNV-2402", "CNV-2404"}


@given(st.text(max_size=40))
def test_any_text_is_a_reference_or_an_expected_error(text):
    try:
        assert parse_ref(text).name
    except ModelConvertError as error:
        assert error.exit_code == 2


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/etc/passwd",
        "a\\b",
        "a\x00",
        "a\nb",
        "-rf",
        ".hidden",
        " x",
        "C:x",
        "x" * 256,
        "\ud800",
    ],
)
def test_file_names_that_could_escape_are_refused(name):
    with pytest.raises(RegistryError) as refusal:
        check_file_name(name)
    assert refusal.value.code == "CNV-9015"


@pytest.mark.parametrize("name", ["net.om", "模型.onnx", "model.onnx.data", "a b.plan"])
def test_plain_file_names_are_taken(name):
    assert check_file_name(name) == name
