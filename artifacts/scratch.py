"""Temporary folders that nobody has to clean up after: what a killed process left is removed by the next one.

All lie in one folder of the user's own, ``$TMPDIR/model-convert-UID/``. Whoever has one holds a lock on it, which the
kernel frees however its holder ends; a folder without a holder is swept when another is made.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".lock"
MACHINE_TMP = "MODEL_CONVERT_TMP"
"""The environment variable that tells a worker where the machine's own temporary folder is: it has one to itself."""


class TemporaryFolder:
    """A folder with a holder; ``path`` is where it lies. Ended by :meth:`remove`, or by the end of the process."""

    def __init__(self, prefix: str) -> None:
        root = temporary_root()
        with _locked(root):
            _sweep(root)
            self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=root))
            self._holder = _try_lock(self.path)

    def remove(self) -> None:
        """Remove the folder with all in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._holder is not None:
            os.close(self._holder)
            self._holder = None


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder, removed at the end of the block, or by the next process if this one is killed in it."""
    folder = TemporaryFolder(prefix)
    try:
        yield folder.path
    finally:
        folder.remove()


def machine_tmp() -> Path:
    """The temporary folder that all processes of the machine share, for what must be found by all of them."""
    return Path(os.environ.get(MACHINE_TMP) or tempfile.gettempdir())


def temporary_root() -> Path:
    """The user's own folder of temporary folders, made where it isn't there.

    A folder of that name that is another's, or a link, is not used: others could change what lies in it. Then each
    process gets a root of its own.
    """
    root = Path(tempfile.gettempdir()) / f"model-convert-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        root.mkdir(mode=0o700)
    told = root.lstat()
    if stat.S_ISDIR(told.st_mode) and told.st_uid == os.getuid() and not told.st_mode & 0o022:
        return root
    return Path(tempfile.mkdtemp(prefix="model-convert-"))


def _sweep(root: Path) -> None:
    """Remove folders whose holder is gone."""
    for folder in list(root.iterdir()):
        if folder.name != LOCK and (free := _try_lock(folder)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(free)


def _try_lock(folder: Path) -> int | None:
    """A descriptor that holds the lock of a folder; None where another has it, or it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Between making a folder and holding it nobody sweeps."""
    descriptor = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
