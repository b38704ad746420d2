"""Hard links instead of copies, from stage to stage."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from artifacts.errors import disk_full


def link_or_copy(source: Path, destination: Path) -> None:
    """Hard-link a file, or copy it where links can't be made (another file system, no permission).

    An existing ``destination`` is replaced. A symbolic link as ``source`` gives the file that it points at.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    source = source.resolve(strict=True)
    destination.unlink(missing_ok=True)
    try:
        os.link(source, destination)
    except OSError:
        copy_file(source, destination)


def copy_file(source: Path, destination: Path) -> None:
    """Copy a file's content. Raises ResourceLimit CNV-1003 where the disk is full."""
    try:
        shutil.copyfile(source, destination)
    except OSError as error:
        raise disk_full(error, "copying a file") or error from error
