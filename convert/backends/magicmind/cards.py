"""Archs and clusters: what an artifact is built for, and which cards can run it.

An arch may name counts of clusters, ``{"mtp_372": [6, 8]}``. The artifact is optimized for those, and a card takes the
largest count that it has; where it has fewer than all of them, the run fails (magicmind_cloud README).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from convert.errors import UsageError
from convert.values import CompileOptions
from op_registry.values import Target

CLUSTERS: Mapping[str, int] = MappingProxyType({"MLU370-S4": 6, "MLU370-X4": 8, "MLU370-X8": 8})
"""Clusters of a card (mm_run's device print for the X4; mm_convert's advice: 6 for the S4, 8 for the others). The two
chips of an X8 are two cards. How many an MLU590 has is not public, so it is built without a count."""
MOST = 64


def clusters_for(target: Target, options: CompileOptions) -> tuple[int, ...]:
    """The counts of clusters to build for: as asked for, else those of the card, of a family all of its cards'.

    Empty: no count is named. Raises :class:`UsageError` CNV-2075.
    """
    if text := options.options.get("clusters", ""):
        return () if text == "any" else _asked(text)
    if options.soc in CLUSTERS or target.name in CLUSTERS:
        return (CLUSTERS.get(options.soc) or CLUSTERS[target.name],)
    return tuple(sorted({CLUSTERS[name] for name in target.members if name in CLUSTERS}))


def _asked(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and 0 < int(part[:4]) <= MOST for part in parts):
        raise UsageError(
            "CNV-2075",
            f"--option clusters={text}: not counts of clusters",
            hint="write clusters=8, clusters=2,6,8, or clusters=any to build without a count",
        )
    return tuple(sorted({int(part) for part in parts}))


def too_few(built_for: Sequence[int], card: str) -> bool:
    """Whether a card has fewer clusters than every count that an artifact was built for."""
    return bool(built_for) and CLUSTERS.get(card, MOST) < min(built_for)
