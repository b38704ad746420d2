"""The vendors: one folder of ``data/`` each, described by its ``vendor.toml``."""

from __future__ import annotations

import difflib
import re
from functools import lru_cache

import msgspec

from op_registry.errors import UnknownVendor, UnknownVersion
from op_registry.tables import DATA, malformed, read_toml
from op_registry.values import Grade, State
from op_registry.versions import in_range, is_version, range_fault, version_key


class Era(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A span of toolchain versions that one table answers for, and where that table comes from."""

    id: str
    versions: str
    source: str
    checked: str


class Ceiling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From which opset on (the one after ``opset``) every node of a graph gets this state."""

    opset: int
    state: State
    grade: Grade
    reason: str
    source: str


class Vendor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What holds for a vendor's toolchain as a whole. ``name`` is its folder in ``data/``."""

    name: str = ""
    order: int
    """Where the vendor stands in lists."""
    title: str
    aliases: tuple[str, ...] = ()
    toolchain: str
    backend: str
    opset_min: int
    opset_max: int
    opset_default: int
    default_version: str
    known: tuple[str, str] | None = None
    """The oldest and the newest version that anything here was read of or tried with."""
    functions: str
    """``inline``: model-local functions are expanded; ``refused``: they stop the toolchain; ``unknown``."""
    domains: str = "read"
    """``ignored``: the toolchain looks at an operator's name only, whatever its domain."""
    unlisted: State
    """The state of an operator that no row names."""
    unlisted_grade: Grade
    unlisted_reason: str
    unlisted_hint: str = ""
    lacking: State = "unknown"
    """The state of a node whose element type isn't among those that its row names."""
    version_alias: dict[str, str] = {}
    """Other names of versions: ``rocm-7.2`` → ``2.15``."""
    ceiling: Ceiling | None = None
    era: tuple[Era, ...] = ()


@lru_cache(maxsize=1)
def all_vendors() -> dict[str, Vendor]:
    """Every vendor by name, in the order of lists."""
    names = sorted(path.parent.name for path in DATA.glob("*/vendor.toml"))
    vendors = sorted((_read_vendor(name) for name in names), key=lambda vendor: vendor.order)
    return {vendor.name: vendor for vendor in vendors}


def _read_vendor(name: str) -> Vendor:
    path = DATA / name / "vendor.toml"
    vendor = msgspec.structs.replace(read_toml(path, Vendor), name=name)
    for era in vendor.era:
        if fault := range_fault(era.versions):
            raise malformed(path, 0, f"era {era.id!r}: {fault}")
    return vendor


def find_vendor(text: str) -> Vendor:
    """A vendor by name or alias, whatever the case. Raises UnknownVendor (CNV-2503) with the nearest names."""
    wanted = text.strip().casefold()
    for vendor in all_vendors().values():
        if wanted in (vendor.name, *vendor.aliases):
            return vendor
    names = sorted(all_vendors())
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5) or names
    raise UnknownVendor("CNV-2503", f"no vendor is called {text!r}", hint=f"one of: {', '.join(near)}")


def resolve_version(vendor: Vendor, text: str) -> str:
    """The toolchain version that a text means; empty: the vendor's default.

    Raises:
        UnknownVersion: CNV-2502, the text is no version of this toolchain.
    """
    if not text:
        return vendor.default_version
    wanted = text.strip().casefold().removeprefix(vendor.toolchain.casefold()).lstrip("-_ ")
    wanted = _aliased(vendor, wanted)
    if not is_version(wanted) or (vendor.era and era_of(vendor, wanted) is None):
        known = ", ".join([*(era.versions or "any" for era in vendor.era), *vendor.version_alias]) or "any number"
        raise UnknownVersion("CNV-2502", f"{text!r} is no version of {vendor.toolchain}", hint=f"known: {known}")
    return wanted


def known_version(vendor: Vendor, text: str) -> str:
    """The version that a text means, where plans can be made for it.

    Those from the oldest known one on are, and newer ones as long as their first number is known: between first
    numbers toolchains change and drop flags (TensorRT 11 dropped those of precision), within one they add some.

    Raises:
        UnknownVersion: CNV-2502, the text is no version of this toolchain, or one that is out of that range.
    """
    version = resolve_version(vendor, text)
    if vendor.known is None:
        return version
    oldest, newest = vendor.known
    last = str(version_key(newest)[0])
    if version_key(oldest)[:2] <= version_key(version)[:2] and version_key(version)[0] <= int(last):
        return version
    span = f"{oldest} to {newest}" if oldest != newest else newest
    raise UnknownVersion(
        "CNV-2502",
        f"{vendor.toolchain} {text} is not known here",
        hint=f"known: {span}, and newer ones that begin with {last}.",
    )


def _aliased(vendor: Vendor, wanted: str) -> str:
    """A version by its alias. ``rocm7.2``, ``rocm-7.2.1`` and ``7.2`` all find ``rocm-7.2``."""
    name = re.sub(r"^([a-z]+)[\s_\-]*(?=\d)", r"\1-", wanted)
    while name:
        for alias, version in vendor.version_alias.items():
            if name in (alias, alias.rpartition("-")[2]):
                return version
        name = name.rpartition(".")[0]
    return wanted


def era_of(vendor: Vendor, version: str) -> Era | None:
    """The era whose table answers for a version."""
    return next((era for era in vendor.era if in_range(version, era.versions)), None)


def known_versions(vendor: Vendor) -> list[str]:
    """One version for each table of a vendor, oldest first: the one that ends the table's name."""
    named = [era.id.rpartition("-")[2] for era in vendor.era]
    return [version if is_version(version) else vendor.default_version for version in named] or [vendor.default_version]
