"""What goes wrong around a stage as an expected failure: a crashed worker, a full disk, a folder that is read-only."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from artifacts.errors import disk_full, path_unusable
from convert.errors import UsageError
from convert.host import WorkerDied
from convert.stage import died

UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENOENT)


@contextmanager
def guarded(stage: str, option: str = "--out") -> Iterator[None]:
    """A crash of the worker, a full disk or a folder that can't be written becomes an expected failure.

    ``option`` is what said where to write.
    """
    try:
        yield
    except WorkerDied as death:
        raise died(stage, death) from death
    except OSError as error:
        if full := disk_full(error, f"{stage} was writing"):
            raise full from error
        if error.errno in UNWRITABLE:
            raise UsageError(
                "CNV-2061",
                f"{error.filename or 'a file'} can't be written: {error.strerror}",
                hint=f"point {option} at a place that can be made and written",
            ) from error
        if unusable := path_unusable(error):
            raise unusable from error
        raise
