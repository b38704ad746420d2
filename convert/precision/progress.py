"""The checks of a plan's search, kept while it runs: a search that was interrupted goes on where it stood."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from convert.precision.plan import Check

KEPT = 64
"""Searches whose checks are kept, newest last."""
LIMIT = 16 << 20


class Progress:
    """The checks of one search, in one small file of a folder. Where it can't be written, nothing is kept."""

    def __init__(self, folder: Path | None, key: str) -> None:
        self._path = folder / f"{key}.json" if folder is not None else None
        self.checks: list[Check] = []
        try:
            if self._path is not None and self._path.stat().st_size <= LIMIT:
                self.checks = msgspec.json.decode(self._path.read_bytes(), type=list[Check])
        except (OSError, msgspec.DecodeError):
            self.checks = []

    def add(self, check: Check) -> None:
        """Keep one more check."""
        self.checks.append(check)
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial = self._path.with_suffix(".partial")
            partial.write_bytes(msgspec.json.encode(self.checks))
            partial.replace(self._path)
            for old in _by_age(self._path.parent)[:-KEPT]:
                old.unlink(missing_ok=True)
        except OSError:
            self._path = None

    def done(self) -> None:
        """The search has ended: its checks are of no more use."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _by_age(folder: Path) -> Sequence[Path]:
    return sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
