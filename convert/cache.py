"""The stage cache: what a stage made of exactly these inputs, options and tools.

A key is the full digest of the stage and its code version, the parents' digests, the options that it reads, and the
versions of every tool that it runs. An entry is a folder, complete from the moment it is there (written beside, then
renamed), never changed after. Its files are hashed again before a stage reads them.

    <root>/entries/<k>/<key>/value.json    the value, its type, what it cost
    <root>/entries/<k>/<key>/…             the value's files
    <root>/tmp/                            entries being written; stale ones are swept
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from artifacts.digest import Digest, FileEntry, canonical_json, sha256_bytes, sha256_file
from artifacts.runner import scratch_folder
from convert.values import Value, moved

V = TypeVar("V", bound=Value)
SCHEMA = 1
STALE_SECONDS = 24 * 3600


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What ``value.json`` holds. ``sources`` are the user's own source files that the stage imported."""

    schema: int = SCHEMA
    stage: str
    value: msgspec.Raw
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_rss: int = 0
    sources: tuple[FileEntry, ...] = ()


class EntryInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One entry as ``convert cache`` lists it. ``used`` is seconds since the epoch."""

    key: str
    stage: str
    bytes: int
    used: float


def key_of(stage: str, version: int, parents: tuple[Digest, ...], options: Any, tools: Mapping[str, str]) -> str:
    """The key of a stage's result: 64 hexadecimal digits."""
    content = {"stage": stage, "version": version, "parents": parents, "options": options, "tools": dict(tools)}
    return sha256_bytes(canonical_json(content)).removeprefix("sha256:")


class Cache:
    """The entries under one root; safe for any number of processes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, key: str) -> Path:
        """Where an entry lies."""
        return self.root / "entries" / key[:2] / key

    def find(self, key: str, kind: type[V]) -> tuple[V, Record] | None:
        """The value under a key, its files present in the right sizes, or None. Sources must be as they were."""
        folder = self.folder(key)
        try:
            record = msgspec.json.decode((folder / "value.json").read_bytes(), type=Record)
            value = moved(msgspec.json.decode(record.value, type=kind), folder)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None
        if record.schema != SCHEMA or not _present(folder, getattr(value, "files", ())):
            return None
        if any(not _same(Path(source.name), source) for source in record.sources):
            return None
        with contextlib.suppress(OSError):
            os.utime(folder / "value.json")
        return value, record

    def commit(self, key: str, written: Path, value: V, record: Record) -> V:
        """Make a finished folder the entry of a key; where another process was faster, theirs stays."""
        bare = msgspec.structs.replace(value, folder="")
        content = msgspec.structs.replace(record, value=msgspec.Raw(msgspec.json.encode(bare)))
        (written / "value.json").write_bytes(canonical_json(content))
        final = self.folder(key)
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            written.rename(final)
        except OSError:
            if not (final / "value.json").exists():
                raise
            if self.find(key, type(value)) is None:
                self.drop(key)
                written.rename(final)
            else:
                shutil.rmtree(written, ignore_errors=True)
        return moved(value, final)

    def sound(self, value: Value) -> bool:
        """Whether every file of a value still has its digest."""
        return all(_same(value.path(entry.name), entry) for entry in getattr(value, "files", ()))

    def drop(self, key: str) -> None:
        """Remove an entry; it disappears at once, whoever reads it."""
        gone = scratch_folder(self.root / "tmp", "gone-")
        with contextlib.suppress(OSError):
            self.folder(key).rename(gone / "entry")
        shutil.rmtree(gone, ignore_errors=True)

    def drop_value(self, value: Value) -> None:
        """Remove the entry that a value came from."""
        self.drop(Path(value.folder).name)

    def scratch(self, stage: str) -> Path:
        """A folder for a stage to write in."""
        return scratch_folder(self.root / "tmp", f"{stage}-{os.getpid()}-")

    def entries(self) -> Iterator[EntryInfo]:
        """Every entry, the longest unused first."""
        found = []
        for path in sorted(self.root.glob("entries/??/*/value.json")):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                record = msgspec.json.decode(path.read_bytes(), type=Record)
                size = sum(
                    file.stat().st_blocks * 512 // file.stat().st_nlink
                    for file in path.parent.rglob("*")
                    if file.is_file()
                )
                found.append(EntryInfo(key=path.parent.name, stage=record.stage, bytes=size, used=path.stat().st_mtime))
        yield from sorted(found, key=lambda entry: (entry.used, entry.key))

    def sweep(self) -> int:
        """Remove scratch folders whose process is gone; gives how many."""
        count = 0
        for folder in self.root.glob("tmp/*"):
            if not _in_use(folder):
                shutil.rmtree(folder, ignore_errors=True)
                count += 1
        return count


def _present(folder: Path, files: tuple[FileEntry, ...]) -> bool:
    for entry in files:
        try:
            if (folder / entry.name).stat().st_size != entry.bytes:
                return False
        except OSError:
            return False
    return True


def _same(path: Path, entry: FileEntry) -> bool:
    try:
        return path.stat().st_size == entry.bytes and sha256_file(path) == entry.sha256
    except OSError:
        return False


def _in_use(folder: Path) -> bool:
    """A scratch folder is in use while the process in its name lives, and for a day where that can't be told."""
    words = folder.name.split("-")
    if len(words) >= 3 and words[1].isdigit():
        return Path(f"/proc/{words[1]}").exists()
    with contextlib.suppress(OSError):
        return time.time() - folder.stat().st_mtime < STALE_SECONDS
    return False
