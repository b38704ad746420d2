"""The error base that every command-line boundary understands.

    ModelConvertError            any expected failure: a code, one line, a hint and an exit code
    ├── RegistryError            exit 9   the registry can't be read or written
    ├── UsageError               exit 2   the request or a setting is wrong
    └── ResourceLimit            exit 10  time, memory or disk ran out

The first digit of a code is its exit code, with 1 for exit 10 (resource limits).
Every code has a page, shown by ``convert explain CODE``.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable

UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line breaks, what turns the direction of a text, and halves of surrogate pairs."""


def one_line(text: str) -> str:
    """A text for a message: names in it come from strangers' files, and a terminal acts on what some of them hold."""
    return UNSEEN.sub(lambda found: " " if found[0] in "\n\r\t" else "?", text) if UNSEEN.search(text) else text


def first_line(error: BaseException, limit: int = 200) -> str:
    """The first line of what an exception says; the name of its class where it says nothing, as MemoryError does."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:limit]


class ModelConvertError(Exception):
    """An expected failure. ``str()`` is one line that says what is wrong; ``hint`` says what to do next."""

    exit_code = 1

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        self.code = code
        self.message = one_line(message)
        self.hint = one_line(hint)
        super().__init__(self.message)

    def as_json(self) -> dict[str, object]:
        """The error as commands print it under ``--json``."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "exit_code": self.exit_code}


class UsageError(ModelConvertError):
    """The request or a setting is wrong (exit 2)."""

    exit_code = 2


class RegistryError(ModelConvertError):
    """The registry can't be read or written, or holds something that must not be trusted (exit 9)."""

    exit_code = 9


class ResourceLimit(ModelConvertError):
    """Time, memory or disk ran out (exit 10)."""

    exit_code = 10


def disk_full(error: OSError, doing: str) -> ResourceLimit | None:
    """The error for a full disk, an exhausted quota or a limit; None where ``error`` is something else."""
    if error.errno == errno.EFBIG:
        return ResourceLimit(
            "CNV-1201",
            f"a file grew beyond the limit while {doing}{f': {error.filename}' if error.filename else ''}",
            hint="raise the setting `disk` (CONVERT_DISK), or the limit of your shell (ulimit -f)",
        )
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    place = f": {error.filename}" if error.filename else ""
    return ResourceLimit(
        "CNV-1003",
        f"no space left on the disk while {doing}{place}",
        hint="free some space, or use a larger disk (--out, --registry, CONVERT_CACHE_DIR); what was finished is kept",
    )


UNUSABLE = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EROFS)


def not_utf8(texts: Iterable[str]) -> UsageError | None:
    """The error for the first text whose bytes were no UTF-8, as a path may be; None where all are."""
    for text in texts:
        if not text.isprintable() and any(0xDC80 <= ord(char) <= 0xDCFF for char in text):
            return UsageError(
                "CNV-2063",
                f"the path {text.encode(errors='surrogateescape')!r} is not UTF-8",
                hint="rename the file, or run with a UTF-8 locale (LC_ALL=C.UTF-8)",
            )
    return None


def path_unusable(error: OSError) -> UsageError | None:
    """The error for a path that the system does not let this user use, or None where ``error`` is something else.

    Only what no program can mend counts: names that are too long, links in a circle, missing rights.
    """
    if error.errno not in UNUSABLE or not error.filename:
        return None
    name = str(error.filename)
    shown = name if len(name) <= 200 else f"{name[:80]}…{name[-40:]}"
    return UsageError(
        "CNV-2023",
        f"{shown} can't be used: {error.strerror}",
        hint="give a shorter name or another path, or get the right to read and write there",
    )
