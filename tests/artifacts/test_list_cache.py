"""The list of a large model is remembered, and nothing that happens to the file that holds it is an error."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from store_kit import make_request

from artifacts import listing
from artifacts.fsck import fsck
from artifacts.listing import list_models
from artifacts.publish import publish
from artifacts.registry import Registry


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(listing, "MANY_REFS", 1)
    publish(tmp_path / "reg", make_request(tmp_path / "a"))
    return tmp_path / "reg"


@pytest.fixture
def reads(monkeypatch) -> list[str]:
    seen: list[str] = []
    real = listing.list_model
    monkeypatch.setattr(listing, "list_model", lambda name, layout: seen.append(name) or real(name, layout))
    return seen


def listed(root: Path):
    return list_models(Registry(root))


def test_a_second_list_reads_no_version(root, reads) -> None:
    first = listed(root)
    assert (listed(root), reads) == (first, ["net"])
    assert (root / "cache.db").is_file()
    assert fsck(root).clean


def test_a_new_version_is_seen_at_once(root, reads, tmp_path) -> None:
    listed(root)
    publish(root, make_request(tmp_path / "b", content=b"b"))
    assert [version.version for version in listed(root)[0].versions] == ["1.0.1", "1.0.0"]
    assert reads == ["net", "net"]


def test_a_small_model_is_not_remembered(root, monkeypatch) -> None:
    monkeypatch.setattr(listing, "MANY_REFS", 200)
    listed(root)
    assert not (root / "cache.db").exists()


@pytest.mark.parametrize("damage", [b"", b"garbage" * 1000, None, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_cache_is_dropped_and_made_anew(root, reads, damage) -> None:
    first = listed(root)
    path = root / "cache.db"
    path.write_bytes(path.read_bytes()[:700] if damage is None else damage)
    assert listed(root) == first
    assert listed(root) == first
    assert listed(root) == first
    assert len(reads) <= 3


def test_a_cache_of_another_form_is_passed_over(root) -> None:
    first = listed(root)
    with sqlite3.connect(root / "cache.db") as connection:
        connection.execute("UPDATE listed_1 SET data = ?", (b'{"name": 3}',))
    connection.close()
    assert listed(root) == first


def test_a_locked_cache_is_passed_over(root, monkeypatch) -> None:
    monkeypatch.setattr("artifacts.list_cache.LOCK_SECONDS", 0.05)
    first = listed(root)
    connection = sqlite3.connect(root / "cache.db", isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        assert listed(root) == first
    finally:
        connection.close()


def test_a_folder_in_its_place_is_passed_over(root) -> None:
    (root / "cache.db").mkdir()
    assert listed(root)[0].versions[0].version == "1.0.0"
