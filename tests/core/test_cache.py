"""The stage cache: keys, hits that are verified, entries that are whole or absent."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from artifacts.digest import FileEntry, file_entry
from convert.cache import Cache, Record, key_of
from convert.commands.cache import chosen
from convert.values import OnnxGraph

NOTHING = msgspec.Raw(b"null")


def commit(cache: Cache, key: str, content: bytes, *, record: Record | None = None) -> OnnxGraph:
    folder = cache.scratch("export")
    (folder / "model.onnx").write_bytes(content)
    graph = OnnxGraph(
        parent="sha256:0",
        stage="export",
        opset=17,
        inputs=(),
        outputs=(),
        files=(file_entry(folder, "model.onnx"),),
        folder=str(folder),
    )
    return cache.commit(key, folder, graph, record or Record(stage="export", value=NOTHING))


def test_what_was_committed_is_found_with_its_files(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    made = commit(cache, "a" * 64, b"weights")
    found = cache.find("a" * 64, OnnxGraph)
    assert found is not None
    assert found[0] == made
    assert found[0].model_path.read_bytes() == b"weights"
    assert not list(tmp_path.glob("tmp/*"))


@pytest.mark.parametrize("damage", [b"weightz", b"weigh", b""])
def test_a_damaged_entry_is_not_sound(tmp_path: Path, damage: bytes) -> None:
    cache = Cache(tmp_path)
    made = commit(cache, "a" * 64, b"weights")
    made.model_path.write_bytes(damage)
    found = cache.find("a" * 64, OnnxGraph)
    assert found is None or not cache.sound(found[0])


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"schema": 99}', b"\xff"])
def test_an_unreadable_entry_is_a_miss(tmp_path: Path, text: bytes) -> None:
    cache = Cache(tmp_path)
    commit(cache, "a" * 64, b"weights")
    (cache.folder("a" * 64) / "value.json").write_bytes(text)
    assert cache.find("a" * 64, OnnxGraph) is None


def test_a_changed_source_of_the_user_is_a_miss(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    source = tmp_path / "zoo.py"
    source.write_text("a = 1\n")
    entry = file_entry(tmp_path, "zoo.py")
    sources = (FileEntry(name=str(source), sha256=entry.sha256, bytes=entry.bytes),)
    commit(cache, "a" * 64, b"weights", record=Record(stage="load", value=NOTHING, sources=sources))
    assert cache.find("a" * 64, OnnxGraph) is not None
    source.write_text("a = 2\n")
    assert cache.find("a" * 64, OnnxGraph) is None


def test_the_second_of_two_equal_commits_keeps_the_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    first, second = commit(cache, "a" * 64, b"weights"), commit(cache, "a" * 64, b"weights")
    assert first == second
    assert not list(tmp_path.glob("tmp/*"))


def test_scratch_of_the_living_stays_and_of_the_dead_goes(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    mine = cache.scratch("export")
    dead = tmp_path / "tmp" / "export-999999999-abc"
    dead.mkdir()
    assert cache.sweep() == 1
    assert mine.exists()
    assert not dead.exists()


def test_keys_differ_in_everything_that_counts() -> None:
    base = ("export", 1, ("sha256:1",), {"opset": 17}, {"torch": "2.13.0"})
    others = [
        ("simplify", *base[1:]),
        ("export", 2, *base[2:]),
        (*base[:2], ("sha256:2",), *base[3:]),
        (*base[:3], {"opset": 18}, base[4]),
        (*base[:4], {"torch": "2.14.0"}),
    ]
    assert len({key_of(*args) for args in [base, *others]}) == 6


def test_pruning_takes_the_longest_unused_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for number, letter in enumerate("abc"):
        commit(cache, letter * 64, os.urandom(50_000))
        os.utime(cache.folder(letter * 64) / "value.json", (number, number))
    entries = list(cache.entries())
    assert [entry.key[0] for entry in entries] == ["a", "b", "c"]
    assert [entry.key[0] for entry in chosen(entries, None, entries[0].bytes * 2, now=10)] == ["a"]
    assert [entry.key[0] for entry in chosen(entries, 1.5 / 86400, None, now=3)] == ["a", "b"]
    assert chosen(entries, None, None, now=10) == entries
