"""``cache.db``: what large models list, remembered until their ``index.json`` changes. It can be deleted at any time.

Nothing relies on it. It is never an error: where it is damaged it is dropped, where it can't be read, written or locked
the models are read themselves. Only models with many refs are kept in it, so a small registry has none.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from artifacts.durable import reading
from artifacts.layout import INDEX_FILE, Layout

FILE = "cache.db"
MANY_REFS = 200
"""From which number of refs on remembering a model costs less than reading it."""
LOCK_SECONDS = 0.5
Stamp = tuple[int, int, int]

_MAKE = "CREATE TABLE IF NOT EXISTS listed_1 (name TEXT PRIMARY KEY, mtime INT, size INT, inode INT, data BLOB)"
_READ = "SELECT data FROM listed_1 WHERE name = ? AND mtime = ? AND size = ? AND inode = ?"
_WRITE = "INSERT OR REPLACE INTO listed_1 VALUES (?, ?, ?, ?, ?)"


def index_stamp(layout: Layout) -> Stamp:
    """The state of a model's ``index.json``: every change of it is a rename, and so gives another stamp.

    Raises:
        RegistryError: CNV-9004.
    """
    with reading(f"reading the refs of {layout.root}"):
        status = (layout.root / INDEX_FILE).stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


class ListCache:
    """The cache of the registry at ``root``."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE

    def read(self, name: str, stamp: Stamp) -> bytes | None:
        """What was remembered of a model in exactly that state."""
        if not self.path.is_file():
            return None
        try:
            with contextlib.closing(self._open("ro")) as connection:
                row = connection.execute(_READ, (name, *stamp)).fetchone()
        except sqlite3.OperationalError:
            return None
        except sqlite3.DatabaseError:
            self._drop()
            return None
        return row[0] if row and isinstance(row[0], bytes) else None

    def write(self, name: str, stamp: Stamp, data: bytes) -> None:
        """Remember a model, if that can be done."""
        try:
            with contextlib.closing(self._open("rwc")) as connection, connection:
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute(_MAKE)
                connection.execute(_WRITE, (name, *stamp, data))
        except sqlite3.OperationalError:
            return
        except sqlite3.DatabaseError:
            self._drop()

    def _open(self, mode: str) -> sqlite3.Connection:
        return sqlite3.connect(f"{self.path.absolute().as_uri()}?mode={mode}", uri=True, timeout=LOCK_SECONDS)

    def _drop(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()
