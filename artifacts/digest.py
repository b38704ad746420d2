"""Digests and file entries: how every file of a conversion is named and checked."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

Digest = str
"""``sha256:`` and 64 lower-case hexadecimal digits."""

CHUNK = 1 << 20


class FileEntry(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One file of a folder: POSIX path inside the folder, digest, size in bytes."""

    name: str
    sha256: Digest
    bytes: int


def sha256_file(path: Path) -> Digest:
    """The digest of a file's content, read in chunks of 1 MiB. Raises OSError for what is no regular file."""
    state = hashlib.sha256()
    with open_regular(path) as stream:
        buffer = bytearray(CHUNK)
        view = memoryview(buffer)
        while count := stream.readinto(buffer):
            state.update(view[:count])
    return f"sha256:{state.hexdigest()}"


def open_regular(path: Path) -> io.FileIO:
    """A file that a user named, opened without a buffer.

    Raises OSError for what is no regular file: opening a pipe would wait for a writer, and a device never ends.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return io.FileIO(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "is a pipe or a device, not a file", str(path))


def read_start(path: Path, size: int) -> bytes:
    """The first ``size`` bytes of a file that a user named. Raises OSError as :func:`open_regular` does."""
    with io.BufferedReader(open_regular(path)) as stream:
        return stream.read(size)


def sha256_bytes(data: bytes) -> Digest:
    """The digest of bytes in memory."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def canonical_json(value: Any) -> bytes:
    """JSON with sorted keys and no spaces, so that equal values have equal bytes."""
    return msgspec.json.encode(value, order="sorted")


def file_entry(folder: Path, name: str) -> FileEntry:
    """Hash one file of a folder."""
    path = folder / name
    return FileEntry(name=name, sha256=sha256_file(path), bytes=path.stat().st_size)


def file_entries(folder: Path, names: Iterable[str]) -> tuple[FileEntry, ...]:
    """Hash several files of a folder, sorted by name."""
    return tuple(file_entry(folder, name) for name in sorted(names))
