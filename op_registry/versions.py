"""Toolchain versions: how they are ordered, and ranges of them.

Numbers are compared part by part (8.10 after 8.9). A pre-release comes before its base: ``8.0.RC3`` before ``8.0.0``,
``9.2.0-beta.1`` before ``9.2.0``, ``8.1.RC1.alpha002`` before ``8.1.RC1``. Missing parts count as zero, so ``8.5`` is
``8.5.0``. A range is ``|`` of ``,`` of ``==``, ``>=``, ``<=``, ``>`` and ``<``; an empty range holds every version.
A bound without a pre-release mark speaks of whole releases: ``8.5.RC1`` lies in ``>=8.5`` and not in ``<8.5``.
"""

from __future__ import annotations

import re
from functools import lru_cache

PRE = {"alpha": -3, "beta": -2, "b": -2, "rc": -1}
TOKEN = re.compile(r"\d+|[a-z]+")
CLAUSE = re.compile(r"^(==|>=|<=|<|>)\s*([0-9][0-9A-Za-z.\-_+]*)$")
WHOLE = re.compile(r"^v?\d+(?:[.\-_]?(?:\d+|rc|alpha|beta|b))*$", re.IGNORECASE)

Key = tuple[int, ...]


def is_version(text: str) -> bool:
    """Whether a text reads as a version number."""
    return len(text) <= 40 and WHOLE.match(text) is not None


@lru_cache(maxsize=4096)
def version_key(text: str) -> Key:
    """The sort key of a version: five release parts, then the pre-release marks (0: none).

    Raises:
        ValueError: the text isn't a version.
    """
    if not is_version(text):
        raise ValueError(text)
    tokens = TOKEN.findall(text.lower().lstrip("v"))
    release: list[int] = []
    while tokens and tokens[0].isdigit() and len(release) < 5:
        release.append(int(tokens.pop(0)))
    marks = [PRE[token] if token in PRE else int(token) for token in tokens if token in PRE or token.isdigit()]
    return (*release, *[0] * (5 - len(release)), *marks, *[0] * (4 - len(marks)))


@lru_cache(maxsize=4096)
def in_range(version: str, wanted: str) -> bool:
    """Whether a version lies in a range. A range that can't be read raises ValueError."""
    if not wanted:
        return True
    return any(all(_holds(version, clause) for clause in part.split(",")) for part in wanted.split("|"))


def _holds(version: str, clause: str) -> bool:
    match = CLAUSE.match(clause.strip())
    if match is None:
        raise ValueError(clause)
    have, want = version_key(version), version_key(match[2])
    if not any(want[5:]):
        have, want = have[:5], want[:5]
    return {"==": have == want, ">=": have >= want, "<=": have <= want, "<": have < want, ">": have > want}[match[1]]


@lru_cache(maxsize=1024)
def range_fault(wanted: str) -> str:
    """What is wrong with a range, or nothing."""
    try:
        in_range("1", wanted)
    except ValueError as fault:
        return f"{str(fault)!r} is no version range"
    return ""
