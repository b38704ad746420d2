"""What is known of MagicMind by release: which there were, which archs, which keys of the builder's configuration.

No release notes or API reference of MagicMind are public. The releases are those that Cambricon's model zoo names
(Cambricon/magicmind_cloud README); what each knows was read in public code that uses it, named at each key.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

import msgspec

RELEASES = ("0.13.0", "0.14.0", "1.0.1", "1.3.0", "1.5.0", "1.6.0", "1.7.0")
ASSUMED = RELEASES[-1]
OLDEST = (0, 13)
"""The first release for the MLU300 family (magicmind_cloud README)."""
NEWEST = (1, 7)
CLUSTERS_SINCE = (1, 0)
"""Counts of clusters in ``archs``, ``{"mtp_372": [6, 8]}``: shown by public code of 1.x only."""
ARCHS: Mapping[str, tuple[int, int]] = MappingProxyType({"mtp_372": OLDEST, "mtp_592": (1, 0)})
"""Archs of the targets, and the first release whose code knows them (the SDK's mm_build, magicmind_cloud)."""


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One key of the builder's configuration; the fields are told in ``keys.toml``."""

    takes: str = ""
    since: str = ""
    until: str = ""
    quantized: bool = False
    instead: str = ""
    source: str


@functools.cache
def keys() -> Mapping[str, Key]:
    """Every key, by its path in the JSON."""
    text = resources.files("convert.backends.magicmind").joinpath("keys.toml").read_text(encoding="utf-8")
    return {path: msgspec.convert(row, Key) for path, row in tomllib.loads(text)["keys"].items()}


def level_of(version: str) -> tuple[int, int]:
    """A release as two numbers; one that can't be read counts as the newest known."""
    first, _, rest = version.partition(".")
    second = rest.partition(".")[0]
    if not (first.isdigit() and second.isdigit()) or not version.isascii():
        return NEWEST
    return int(first), int(second)


def lacks(key: Key, level: tuple[int, int]) -> bool:
    """Whether nothing shows that a release has this key."""
    return bool((key.since and level < level_of(key.since)) or (key.until and level > level_of(key.until)))


def seen_with(key: Key) -> str:
    """The releases that a key was seen with, in words."""
    return f"seen with {key.since or '0.13'} to {key.until or '1.7'}"
