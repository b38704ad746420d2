"""Finding a target by whatever a user types."""

from __future__ import annotations

import pytest

from op_registry.errors import MalformedData, UnknownTarget, UnknownVendor, UnknownVersion
from op_registry.targets import all_socs, all_targets, find_soc, find_target, members_of, toolchain_version
from op_registry.vendors import all_vendors, find_vendor, known_versions, resolve_version
from op_registry.versions import in_range, version_key


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("Ascend910B", "Ascend910B"), ("ascend910b3", "Ascend910B3"), ("910B3", "Ascend910B3"),
        ("310p3", "Ascend310P3"),
        ("mlu370-x4", "MLU370-X4"), ("MLU370X4", "MLU370-X4"), ("mlu590", "MLU590"), ("k100", "K100"),
        ("K100-AI", "K100_AI"),
        ("bw1000", "BW1000"), ("MI210", "MI210"), ("mi300x", "MI300X"), ("GFX942", "gfx942"), ("c500", "C500"),
        ("a100", "A100"), ("CPU", "cpu"), ("Ascend910_9392", "Ascend910_9392"), ("atlas 300I Duo", "Ascend310P"),
    ],
)  # fmt: skip
def test_a_target_is_found_whatever_its_case_and_dashes(typed: str, name: str) -> None:
    assert find_target(typed).name == name


def test_a_typo_gets_the_nearest_names() -> None:
    with pytest.raises(UnknownTarget) as caught:
        find_target("Ascend910B9")
    assert caught.value.code == "CNV-2501"
    assert "Ascend910B" in caught.value.hint
    assert caught.value.as_json()["exit_code"] == 2


def test_nonsense_gets_a_way_to_see_all_names() -> None:
    with pytest.raises(UnknownTarget, match="no target is called") as caught:
        find_target("§" * 10_000)
    assert caught.value.hint == "convert targets lists all of them"


def test_ascend910b_is_the_atlas_a2_family_and_only_as_a_soc_the_first_generation_part() -> None:
    family = find_target("Ascend910B")
    assert (family.kind, family.arch) == ("family", "Ascend910B")
    assert {part.name for part in members_of(family)} == {
        "Ascend910B1", "Ascend910B2", "Ascend910B2C", "Ascend910B3", "Ascend910B4", "Ascend910B4-1",
    }  # fmt: skip
    literal = find_soc(family, "Ascend910B")
    assert (literal.kind, literal.arch) == ("soc", "Ascend910")


def test_a_soc_of_another_vendor_is_refused() -> None:
    with pytest.raises(UnknownTarget, match="no part of ascend is called 'MLU590'"):
        find_soc(find_target("Ascend910B"), "MLU590")


def test_every_name_finds_its_own_target() -> None:
    for target in all_targets():
        assert find_target(target.name) == target


def test_every_target_has_a_default_precision_that_it_is_not_known_to_lack() -> None:
    for target in all_targets():
        assert target.precisions[target.default_precision] != "no", target.name


def test_members_are_parts_of_the_same_architecture() -> None:
    for target in all_targets():
        assert {part.arch for part in members_of(target)} == {target.arch}, target.name


def test_all_parts_but_the_literal_one_are_targets() -> None:
    targets = {(target.vendor, target.name, target.kind) for target in all_targets()}
    assert [s.name for s in all_socs() if (s.vendor, s.name, "soc") not in targets] == ["Ascend910B"]


@pytest.mark.parametrize(
    ("vendor", "text", "version"),
    [
        ("amd", "rocm-7.2", "2.15"), ("amd", "ROCm7.2.1", "2.15"), ("amd", "7.2", "2.15"), ("amd", "2.15", "2.15"),
        ("amd", "migraphx-2.12", "2.12"), ("ascend", "CANN 8.1.RC1", "8.1.rc1"), ("ascend", "", "8.5.0"),
        ("nvidia", "TensorRT-10.3", "10.3"),
    ],
)  # fmt: skip
def test_a_version_is_read_as_users_write_it(vendor: str, text: str, version: str) -> None:
    assert resolve_version(find_vendor(vendor), text) == version


@pytest.mark.parametrize("text", ["latest", "9.x", "8..5", "8.5; rm", "1" * 100])
def test_what_is_no_version_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(UnknownVersion) as caught:
        resolve_version(find_vendor("ascend"), text)
    assert caught.value.code == "CNV-2502"


def test_an_unknown_vendor_gets_the_names() -> None:
    with pytest.raises(UnknownVendor) as caught:
        find_vendor("ascent")
    assert caught.value.code == "CNV-2503"
    assert "ascend" in caught.value.hint


def test_pre_releases_come_before_their_base() -> None:
    ordered = [
        "8.0.RC1.alpha002",
        "8.0.RC1",
        "8.0.RC3",
        "8.0.0",
        "8.1.RC1",
        "9.2.0-beta.1",
        "9.2.0-beta.2",
        "9.2.0",
        "9.10",
    ]
    assert sorted(ordered, key=version_key) == ordered


@pytest.mark.parametrize(
    ("version", "wanted", "inside"),
    [
        ("8.5.RC1", ">=8.5", True), ("8.5.RC1", "<8.5", False), ("9.2.0-beta.1", "<=9.2.0-beta.1", True),
        ("9.2.0-beta.2", "<=9.2.0-beta.1", False), ("2.10", ">=2.9", True), ("8.1", "<=8.4|>=9.0", True),
        ("8.5", "<=8.4|>=9.0", False), ("1", "", True),
    ],
)  # fmt: skip
def test_ranges_hold_what_they_say(version: str, wanted: str, inside: bool) -> None:
    assert in_range(version, wanted) is inside


def test_the_eras_of_every_vendor_answer_for_their_own_versions() -> None:
    for vendor in all_vendors().values():
        for version in known_versions(vendor):
            assert resolve_version(vendor, version) == version


def test_a_part_that_the_usual_toolchain_dropped_is_judged_for_one_that_knows_it() -> None:
    assert toolchain_version(find_target("Ascend310")) == "8.1"
    assert toolchain_version(find_target("Ascend910B3")) == "8.5.0"


def test_a_family_without_members_is_malformed(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    from op_registry import targets, vendors

    folder = tmp_path / "acme"
    folder.mkdir()
    head = ",".join((*targets.COLUMNS, "notes", "source"))
    (folder / "targets.csv").write_text(f"{head}\nX,family,a,,,yes,yes,yes,yes,yes,yes,yes,fp16,,,,\n")
    monkeypatch.setattr("op_registry.targets.DATA", tmp_path)
    acme = vendors.find_vendor("amd")
    with pytest.raises(MalformedData, match=r"acme/targets.csv, line 2: a family needs members"):
        targets._vendor_targets(type(acme)(**{f: getattr(acme, f) for f in acme.__struct_fields__} | {"name": "acme"}))
