"""Writing that survives a crash: temporary file, fsync, rename, fsync of the folder; and the lock around it.

Everything here raises RegistryError or ResourceLimit, never a bare OSError, and goes through ``os`` in the end, so that
each step is a point where a test can stop the process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from artifacts.digest import CHUNK
from artifacts.errors import RegistryError, disk_full

LOCK_SECONDS = 60.0
_LINK_REFUSED = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def writing(doing: str) -> Iterator[None]:
    """Turn an OSError of a write into CNV-1003 (disk full) or CNV-9003."""
    try:
        yield
    except OSError as error:
        raise disk_full(error, doing) or RegistryError(
            "CNV-9003",
            f"can't write while {doing}: {_reason(error)}",
            hint="check owner and mode of the registry folder, and that its file system is writable; see --registry",
        ) from error


@contextlib.contextmanager
def reading(doing: str) -> Iterator[None]:
    """Turn an OSError of a read into CNV-9004."""
    try:
        yield
    except OSError as error:
        raise RegistryError(
            "CNV-9004",
            f"can't read while {doing}: {_reason(error)}",
            hint="check that the file is there, its mode, and the disk (`dmesg` tells of failing disks)",
        ) from error


def _reason(error: OSError) -> str:
    return f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")


def fsync_folder(folder: Path) -> None:
    """Make renames and new names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: Path) -> None:
    """Create a folder and its parents, each durable in its own parent."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            path.mkdir()
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        fsync_folder(path.parent)


def temporary_path(folder: Path, kind: str) -> Path:
    """A fresh name in a folder, from a source that a forked process doesn't share."""
    return folder / f"{kind}-{os.getpid()}-{secrets.token_hex(6)}"


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all bytes, however few the kernel takes at once."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_durable(path: Path, data: bytes, *, temporary: Path, mode: int = 0o644) -> None:
    """Replace a file as a whole: after a crash it has its old content or the new one. Folder not yet synced."""
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with discarding(temporary):
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(path)


def copy_hashed(source: Path, target: Path, *, mode: int = 0o444) -> tuple[str, int]:
    """Copy a file into a new file, synced; returns the digest and size of what was copied. One read."""
    state, size = hashlib.sha256(), 0
    with source.open("rb", buffering=0) as stream:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            buffer = memoryview(bytearray(CHUNK))
            while count := stream.readinto(buffer):
                state.update(buffer[:count])
                write_all(descriptor, buffer[:count])
                size += count
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return f"sha256:{state.hexdigest()}", size


def write_hashed(chunks: Iterable[bytes], target: Path, *, mode: int = 0o444) -> str:
    """Write chunks into a new file, synced; returns the digest of what was written."""
    state = hashlib.sha256()
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        for chunk in chunks:
            state.update(chunk)
            write_all(descriptor, chunk)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return f"sha256:{state.hexdigest()}"


def link_durable(source: Path, target: Path) -> bool:
    """Hard-link a file under a new name, its content synced and its age new; False where the file system can't."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in _LINK_REFUSED:
            return False
        raise
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    with contextlib.suppress(PermissionError):
        target.chmod(0o444)
    touch(target)
    return True


@contextlib.contextmanager
def discarding(temporary: Path) -> Iterator[None]:
    """Remove a temporary file where the block ends with an error, whichever; else it has its real name already."""
    with contextlib.ExitStack() as undo:
        undo.callback(discard, temporary)
        yield
        undo.pop_all()


def discard(path: Path) -> None:
    """Remove a temporary file, if it is still there."""
    with contextlib.suppress(OSError):
        path.unlink()


def touch(path: Path) -> bool:
    """Set a file's times to now, where its owner allows; False where it is gone."""
    try:
        os.utime(path)
    except PermissionError:
        return True
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def locked(path: Path, *, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the exclusive lock of a file, freed by the kernel on any death of this process.

    Raises:
        RegistryError: CNV-9012, when somebody holds it longer than ``seconds`` or the file system can't lock.
    """
    with writing(f"opening the lock {path}"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _acquire(descriptor, path, time.monotonic() + seconds)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, deadline: float) -> None:
    pause = 0.001
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                raise _lock_failed(path, f"its file system can't lock ({error.strerror})") from error
        if time.monotonic() > deadline:
            raise _lock_failed(path, "another process holds it")
        time.sleep(pause)
        pause = min(pause * 2, 0.05)


def _lock_failed(path: Path, why: str) -> RegistryError:
    return RegistryError(
        "CNV-9012",
        f"can't take the registry's lock {path}: {why}",
        hint="`fuser` on that file shows who holds it; where the file system can't lock, use a local disk",
    )
