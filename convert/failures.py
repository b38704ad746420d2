"""What a failed compilation leaves: its log, ``rerun.sh``, the small model cut out, kept beside the target's output.

Of an artifact that fails while it runs, the log alone is kept.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from convert.errors import ConvertError, ToolchainMissing
from convert.links import link_or_copy

LOG = "compile.log"
FAILED = "failed"
"""The folder in ``OUT/NAME/TARGET/``."""


def keep_failed(folder: Path, kept: Path, error: ConvertError) -> None:
    """Put a failed compilation's working folder, or the log of a failed run, where the user finds it.

    The error's hint says so. Files are linked where that works. ``rerun.sh`` runs the same command in the new place.
    """
    logs = _logs(folder)
    if not logs or isinstance(error, ToolchainMissing):
        return
    compiled = (folder / LOG).is_file()
    shutil.rmtree(kept, ignore_errors=True)
    for path in sorted(folder.rglob("*")) if compiled else logs:
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
    log = kept / (LOG if compiled else logs[-1].name)
    error.hint = f"{error.hint.replace(str(folder), str(kept))}; the log is {log}{moved}".removeprefix("; ")


def drop_failed(kept: Path) -> None:
    """Remove what an earlier failure left, once a compilation or a run has succeeded."""
    if _logs(kept):
        shutil.rmtree(kept, ignore_errors=True)


def _logs(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.log") if path.is_file() and not path.is_symlink())
