"""What the fuzz targets share: their contract, the mutations, and the corpus.

A target reads bytes as the program reads a stranger's file. Whatever the bytes, it answers or raises an expected
failure (``convert.errors.EXPECTED``); anything else is a finding, and so is a run past the limits of time and memory.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).parent
REGRESSIONS = HERE / "regressions"
TARGETS = ("loading", "graphs", "registry", "manifests", "logs", "settings", "bundles")
"""Each is the file ``fuzz_NAME.py`` with a ``TARGET``."""
SECONDS = 20.0
"""CPU seconds that one input may take."""
GROWTH = 1 << 30
"""Bytes by which one input may raise the memory that the process ever had."""

for _kit in ("loading", "artifacts", "lowering", "rewrites"):
    sys.path.append(str(HERE.parent / _kit))

Mutate = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Target:
    """One thing to fuzz. ``read`` gets bytes; ``mutate`` changes a seed so that much of it stays well-formed."""

    name: str
    read: Callable[[bytes], None]
    seeds: Callable[[], dict[str, bytes]]
    mutate: Mutate
    words: tuple[bytes, ...] = ()
    """Texts that the format knows, for the fuzzer's dictionary."""
    limit: int = 1 << 14
    """Bytes of an input at most."""
    more_seeds: Callable[[], dict[str, bytes]] = dict
    """Seeds that are too dear for the suite."""


class TooSlow(BaseException):
    """An input took more CPU than it may; no handler of the program catches it."""


class TooMuchMemory(BaseException):
    """An input took more memory than it may."""


def load_target(name: str) -> Target:
    """A target by name."""
    target: Target = importlib.import_module(f"fuzz_{name}").TARGET
    return target


def regressions(name: str) -> dict[str, bytes]:
    """Inputs that once were findings, by what was wrong."""
    return {path.name: path.read_bytes() for path in sorted((REGRESSIONS / name).glob("*"))}


def hold(target: Target, data: bytes) -> bool:
    """Run one input under the contract; true where it was taken, false where it was refused.

    Raises whatever the target raised that is no expected failure, :class:`TooSlow` and :class:`TooMuchMemory`.
    """
    from convert.errors import EXPECTED

    before = _peak()
    with _cpu_limit(SECONDS):
        try:
            target.read(data)
        except EXPECTED as error:
            _well_formed(error)
            return False
    if (grown := _peak() - before) > GROWTH:
        raise TooMuchMemory(f"{grown >> 20} MiB")
    return True


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _well_formed(error: Any) -> None:
    """An expected failure has a code with a page, and one line."""
    page = HERE.parents[1] / "convert" / "explain" / f"{error.code}.md"
    assert page.is_file(), f"{error.code} has no page"
    assert error.message and "\n" not in error.message, f"{error.code} is no line: {error.message!r}"
    assert "\x1b" not in error.message, f"{error.code} passes on what a terminal acts on"


@contextmanager
def _cpu_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`TooSlow` after so many CPU seconds: what the machine does beside it does not count."""

    def late(_: int, __: FrameType | None) -> None:
        raise TooSlow(f"more than {seconds:g} CPU seconds")

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# ------------------------------------------------------------------------------------------------------------- places


def scratch() -> Path:
    """A folder of this process for the file that is read, in memory where the machine has such a place."""
    global _SCRATCH
    if _SCRATCH is None or not _SCRATCH.is_dir():
        shared = Path("/dev/shm")
        _SCRATCH = Path(tempfile.mkdtemp(prefix="fuzz-", dir=shared if os.access(shared, os.W_OK) else None))
    return _SCRATCH


_SCRATCH: Path | None = None


def written(data: bytes, name: str) -> Path:
    """The bytes as a file, each time the only one of its folder."""
    folder = scratch() / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = folder / name
    path.write_bytes(data)
    return path


# ---------------------------------------------------------------------------------------------------------- mutations

ODD_NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    63,
    64,
    127,
    255,
    256,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    (1 << 63) - 1,
    -(1 << 63),
)
ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        2,
        1 << 62,
        1 << 70,
        1.5,
        1e308,
        "",
        "x",
        "../../etc/passwd",
        "\x00",
        "\x1b[31m",
        "\ud800",
    ),
    *("sha256:" + "0" * 64, "A" * 3000, "%s", "{}", "\u0661", "\u00b2", [], {}, [[]], {"a": {}}, [None] * 20),
)


PIECES = ("", "/", "..", "\x00", "\x1b", "\n", " ", ":", "-", "0", "\u0663", "é", "\ud800", "'", "*")


def chance_of(data: bytes) -> random.Random:
    """Random choices that follow from the input alone, so that it does the same each time."""
    return random.Random(hashlib.sha256(data).digest())


def mutate_bytes(data: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, removed, repeated or put in."""
    value = bytearray(data or b"\x00")
    for _ in range(1 << chance.randrange(5)):
        at = chance.randrange(len(value) + 1)
        action = chance.randrange(5)
        if action == 0:
            value[at : at + 1] = bytes([chance.randrange(256)])
        elif action == 1:
            value[at : at + chance.randint(1, 16)] = b""
        elif action == 2:
            value[at:at] = value[at : at + chance.randint(1, 32)] * chance.choice((1, 1, 2, 50))
        elif action == 3:
            value[at : at + 8] = chance.choice(ODD_NUMBERS).to_bytes(9, "little", signed=True)[
                : chance.choice((1, 2, 4, 8))
            ]
        else:
            value[at : at + 1] = bytes([(value[at] if at < len(value) else 0) ^ (1 << chance.randrange(8))])
    return bytes(value)


def mutate_words(words: tuple[bytes, ...]) -> Mutate:
    """Bytes changed, and words of the format put in or lines moved."""

    def mutate(data: bytes, chance: random.Random) -> bytes:
        for _ in range(chance.randint(1, 4)):
            lines = data.split(b"\n")
            at = chance.randrange(len(lines))
            action = chance.randrange(5)
            if action == 0 and words:
                place = chance.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:place] + chance.choice(words) + lines[at][place:]
            elif action == 1:
                lines.insert(chance.randrange(len(lines) + 1), lines[at])
            elif action == 2:
                del lines[at]
            elif action == 3:
                lines[at] = mutate_bytes(lines[at], chance)
            else:
                other = chance.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            data = b"\n".join(lines)
        return data

    return mutate


def mutate_value(document: Any, chance: random.Random) -> Any:
    """A JSON value with some of its parts replaced, removed, doubled or moved."""
    value = copy.deepcopy(document)
    for _ in range(chance.randint(1, 3)):
        holders = [item for item in walk(value) if isinstance(item, dict | list) and item]
        if not holders:
            return chance.choice(ODD)
        holder = chance.choice(holders)
        key = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        action = chance.randrange(6)
        if action == 0:
            del holder[key]
        elif action == 1 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        elif action == 2 and isinstance(holder, dict):
            holder[chance.choice([word for word in ODD if isinstance(word, str)])] = holder[key]
        elif action == 3 and isinstance(holder[key], str):
            holder[key] = mutate_text(holder[key], chance)
        elif action == 4:
            holder[key] = copy.deepcopy(chance.choice(list(walk(document))))
        else:
            holder[key] = copy.deepcopy(chance.choice(ODD))
    return value


def mutate_text(text: str, chance: random.Random) -> str:
    """A text with one piece changed."""
    at = chance.randrange(len(text) + 1)
    piece = chance.choice(
        ["", "/", "..", "\x00", "\x1b", "\n", " ", ":", "-", "0", "\u0663", "é", "\ud800", "'", "*", text]
    )
    return text[:at] + piece + text[at + chance.randrange(3) :]


def walk(value: Any) -> Iterator[Any]:
    """A JSON value and all in it."""
    pending = [value]
    while pending:
        item = pending.pop()
        yield item
        if isinstance(item, dict | list):
            pending += item.values() if isinstance(item, dict) else item


def mutate_json(data: bytes, chance: random.Random) -> bytes:
    """A JSON document with parts changed, or its bytes."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_bytes(data, chance)
    if chance.random() < 0.15:
        return mutate_bytes(data, chance)
    return json.dumps(mutate_value(value, chance)).encode("utf-8", "surrogatepass")


def mutate_zip(inner: Mutate) -> Mutate:
    """The members of a zip changed, removed, doubled or renamed; the archive stays sound around them, mostly."""

    def mutate(data: bytes, chance: random.Random) -> bytes:
        members = _zip_members(data)
        if not members or chance.random() < 0.2:
            return mutate_bytes(data, chance)
        at = chance.randrange(len(members))
        name, content = members[at]
        action = chance.randrange(6)
        if action == 0:
            del members[at]
        elif action == 1:
            members[at] = (mutate_text(name, chance).replace("\ud800", "?").replace("\x00", "?")[:200], content)
        elif action == 2:
            members.append((name, inner(content, chance)))
        else:
            members[at] = (name, inner(content, chance))
        packed = io.BytesIO()
        kind = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        with zipfile.ZipFile(packed, "w", kind) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for member, text in members:
                archive.writestr(zipfile.ZipInfo(member or "x"), text)
        return packed.getvalue()

    return mutate


def _zip_members(data: bytes) -> list[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return [(item.filename, archive.read(item)) for item in archive.infolist()[:64] if item.file_size < 1 << 16]
    except Exception:
        return []


def tar_members(data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
    """The members of a tar with their contents; none where it can't be read."""
    found: list[tuple[tarfile.TarInfo, bytes]] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isreg() and member.size < 1 << 20 else None
                found.append((member, stream.read() if stream else b""))
    except Exception:
        return []
    return found


def packed_tar(members: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """Members as a tar."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member, content in members:
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return stream.getvalue()


def mutate_tar(inner: Mutate) -> Mutate:
    """The members of a tar changed, renamed, doubled, or turned into something else than files."""

    def mutate(data: bytes, chance: random.Random) -> bytes:
        members = tar_members(data)
        if not members or chance.random() < 0.15:
            return mutate_bytes(data, chance)
        at = chance.randrange(len(members))
        member, content = members[at]
        action = chance.randrange(6)
        if action == 0:
            del members[at]
        elif action == 1:
            member.name = mutate_text(member.name, chance).replace("\ud800", "?").replace("\x00", "?")[:200]
        elif action == 2:
            members.append((member, content))
        elif action == 3 and chance.random() < 0.3:
            member.type = chance.choice((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE))
            member.linkname = chance.choice(("/etc/passwd", "../x", member.name))
        else:
            members[at] = (member, inner(content, chance))
        return packed_tar(members)

    return mutate
