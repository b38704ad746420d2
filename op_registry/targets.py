"""Targets: the cards and SoCs that a user types, families of them, and finding one by name.

Facts lie in ``data/<vendor>/targets.csv``; backend, opset range and versions come from the vendor's ``vendor.toml``.
"""

from __future__ import annotations

import difflib
import re
import shlex
from functools import lru_cache

from op_registry.errors import UnknownTarget
from op_registry.tables import DATA, Line, read_csv
from op_registry.values import PRECISION_STATES, Target
from op_registry.vendors import Vendor, all_vendors, known_versions, resolve_version
from op_registry.versions import in_range

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "int8", "fp8", "int4")
COLUMNS = ("name", "kind", "arch", "members", "aliases", *PRECISIONS, "default_precision", "memory", "toolchains")
LITERAL_FIRST_GENERATION = "Ascend910B"
"""As a target this is the Atlas A2 family; as a SoC it is the compiler's name of a first-generation part."""


@lru_cache(maxsize=1)
def all_socs() -> tuple[Target, ...]:
    """Every single part that a compiler knows by name, in the order of the data."""
    return tuple(target for target in _read_targets() if target.kind == "soc")


@lru_cache(maxsize=1)
def all_targets() -> tuple[Target, ...]:
    """Every target: families first within a vendor, and every part but the literal ``Ascend910B``."""
    return tuple(
        target for target in _read_targets() if target.kind == "family" or target.name != LITERAL_FIRST_GENERATION
    )


def find_target(text: str) -> Target:
    """A target by name or alias. Case, spaces, ``-`` and ``_`` don't matter.

    Raises:
        UnknownTarget: CNV-2501, with the nearest names.
    """
    found = _index().get(_plain(text))
    if found is not None:
        return found
    near = nearest_targets(text)
    hint = f"did you mean {' or '.join(near)}?" if near else "convert targets lists all of them"
    raise UnknownTarget("CNV-2501", f"no target is called {text!r}", hint=hint)


def find_soc(target: Target, text: str) -> Target:
    """The exact part that ``--soc`` names for a target.

    Raises:
        UnknownTarget: CNV-2501, no part of that vendor has the name.
    """
    wanted = _plain(text)
    for soc in all_socs():
        if soc.vendor == target.vendor and wanted in {_plain(name) for name in (soc.name, *soc.aliases)}:
            return soc
    names = [soc.name for soc in all_socs() if soc.vendor == target.vendor]
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.6) or list(target.members[:8])
    raise UnknownTarget(
        "CNV-2501", f"no part of {target.vendor} is called {text!r}", hint=f"parts: {', '.join(near) or target.name}"
    )


def members_of(target: Target) -> tuple[Target, ...]:
    """The parts of a family; a single part is its own only member."""
    if target.kind == "soc":
        return (target,)
    by_name = {soc.name: soc for soc in all_socs() if soc.vendor == target.vendor}
    return tuple(by_name[name] for name in target.members)


def is_rare(target: Target) -> bool:
    """A part that a compiler knows but of which nothing else is public: development entries, phone and car chips."""
    return bool(target.backend) and set(target.precisions.values()) == {"unknown"}


def toolchain_version(target: Target, text: str = "") -> str:
    """The toolchain version that a target is judged for: the one asked for, or else the vendor's usual one.

    A part that the usual version doesn't know is judged for the newest table of a version that does.
    Raises UnknownVersion (CNV-2502).
    """
    vendor = all_vendors()[target.vendor]
    usual = resolve_version(vendor, text)
    if text or not usual or in_range(usual, target.toolchains):
        return usual
    return next((known for known in reversed(known_versions(vendor)) if in_range(known, target.toolchains)), usual)


def nearest_targets(text: str) -> list[str]:
    """Up to three names of targets that a typo may have meant."""
    near = difflib.get_close_matches(_plain(text), list(_index()), n=6, cutoff=0.6)
    return list(dict.fromkeys(_index()[name].name for name in near))[:3]


def _plain(text: str) -> str:
    return re.sub(r"[\s_\-]+", "", text.strip()[:80].casefold())


@lru_cache(maxsize=1)
def _index() -> dict[str, Target]:
    """Targets by every spelling; names win over aliases, and a family over a part of the same name."""
    index: dict[str, Target] = {}
    for target in all_targets():
        index.setdefault(_plain(target.name), target)
    for target in all_targets():
        for alias in target.aliases:
            index.setdefault(_plain(alias), target)
    return index


@lru_cache(maxsize=1)
def _read_targets() -> tuple[Target, ...]:
    return tuple(target for vendor in all_vendors().values() for target in _vendor_targets(vendor))


def _vendor_targets(vendor: Vendor) -> list[Target]:
    lines = list(read_csv(DATA / vendor.name / "targets.csv", COLUMNS))
    targets = [_target(line, vendor) for line in lines]
    parts = {target.name for target in targets if target.kind == "soc"}
    for line, target in zip(lines, targets, strict=True):
        if target.kind == "family" and not target.members:
            raise line.fault("a family needs members")
        for member in target.members:
            if member not in parts:
                raise line.fault(f"member {member!r} is no part of this file")
    return targets


def _target(line: Line, vendor: Vendor) -> Target:
    precisions = {name: line.one_of(name, PRECISION_STATES) for name in PRECISIONS}
    default = line.text("default_precision")
    if default not in precisions:
        raise line.fault(f"{default!r} is no precision")
    return Target(
        name=line.text("name"),
        vendor=vendor.name,
        backend=vendor.backend,
        kind="family" if line.one_of("kind", ("family", "soc")) == "family" else "soc",
        members=tuple(line.get("members").split()),
        aliases=tuple(line.parsed("aliases", shlex.split)),
        arch=line.get("arch"),
        precisions=precisions,
        default_precision=default,
        opset_min=vendor.opset_min,
        opset_max=vendor.opset_max,
        opset_default=vendor.opset_default,
        memory=line.get("memory"),
        toolchains=line.versions("toolchains"),
        notes=tuple(part.strip() for part in line.get("notes").split(";") if part.strip()),
        sources=tuple(part.strip() for part in line.get("source").split(";") if part.strip()),
    )
