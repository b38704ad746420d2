"""What a failed compilation leaves: its log, ``rerun.sh``, the small model cut out, kept beside the target's output."""

from __future__ import annotations

import shutil
from pathlib import Path

from convert.errors import ConvertError
from convert.links import link_or_copy

LOG = "compile.log"
FAILED = "failed"
"""The folder in ``OUT/NAME/TARGET/``."""


def keep_failed(folder: Path, kept: Path, error: ConvertError) -> None:
    """Put a failed compilation's working folder where the user finds it, and say so in the error's hint.

    Files are linked where that works. ``rerun.sh`` then runs the same command in the new place.
    """
    if not (folder / LOG).is_file():
        return
    shutil.rmtree(kept, ignore_errors=True)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            link_or_copy(path, kept / path.relative_to(folder))
    moved = ""
    rerun = kept / "rerun.sh"
    if rerun.is_file():
        text = rerun.read_text(encoding="utf-8").replace(str(folder), str(kept))
        rerun.unlink()
        rerun.write_text(text, encoding="utf-8")
        rerun.chmod(0o755)
        moved = ", and rerun.sh beside it runs the compiler again"
    error.hint = f"{error.hint.replace(str(folder), str(kept))}; the log is {kept / LOG}{moved}".removeprefix("; ")


def drop_failed(kept: Path) -> None:
    """Remove what an earlier failure left, once a compilation has succeeded."""
    if (kept / LOG).is_file():
        shutil.rmtree(kept, ignore_errors=True)
