"""The flags of atc by version, read from ``flags.toml``, and what is wrong with a set of them. Pure."""

from __future__ import annotations

import difflib
import itertools
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from op_registry.versions import in_range

TABLE = Path(__file__).with_name("flags.toml")
LONGEST = 64 * 1024
"""Characters that the content of a configuration file may have."""

PATH_LIKE = re.compile(r"[\w.-]+\.(?:ini|cfg|conf|config|json|txt|prototxt)")
"""A word that is the name of a file rather than what one holds."""

Kind = Literal["text", "file", "one_of", "own", "refused"]


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """A flag of one version. ``why``: what to use instead, for flags that a user may not set."""

    name: str
    kind: Kind
    values: tuple[str, ...] = ()
    why: str = ""
    grade: str = "read"
    source: str = ""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Flags that came with the same versions."""

    source: str
    grade: str
    versions: str
    flags: dict[str, str]


class Exclusion(msgspec.Struct, frozen=True, kw_only=True):
    """Flags of which atc takes one at most."""

    flags: tuple[str, ...]
    source: str


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """A flag that works only beside another one with one of some values (none listed: whatever the value)."""

    flag: str
    one_of: dict[str, tuple[str, ...]]
    source: str


class ChipLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A flag (or some of its values) that only some chips take, by the short name of the SoC."""

    flag: str
    arches: tuple[str, ...]
    values: tuple[str, ...] = ()
    source: str


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """``flags.toml``."""

    group: tuple[Group, ...]
    exclude: tuple[Exclusion, ...]
    need: tuple[Need, ...]
    chip: tuple[ChipLimit, ...]


@lru_cache(maxsize=1)
def table() -> Table:
    """The whole table."""
    return msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), Table)


def flags_of(version: str, listed: Iterable[str] = ()) -> dict[str, Flag]:
    """The flags of a CANN version by name, and those that its ``atc --help`` listed beyond them."""
    known = dict(_flags_of(version))
    for name in sorted(set(listed) - set(known) - {"help", "h"}):
        later = next((flag for flag in _all_flags() if flag.name == name), None)
        known[name] = later or Flag(name=name, kind="text", grade="measured", source="atc --help")
    return known


@lru_cache(maxsize=32)
def _flags_of(version: str) -> dict[str, Flag]:
    return {
        name: _flag(name, spec, group, version)
        for group in table().group
        if in_range(version, group.versions)
        for name, spec in group.flags.items()
    }


def _all_flags() -> Iterable[Flag]:
    return (_flag(name, spec, group, "") for group in table().group for name, spec in group.flags.items())


def _flag(name: str, spec: str, group: Group, version: str) -> Flag:
    """``version`` empty: with every value that any version takes."""
    kind, _, why = spec.partition(": ")
    if kind in ("own", "refused") and why:
        return Flag(name=name, kind="own" if kind == "own" else "refused", why=why, source=group.source)
    if spec in ("text", "file"):
        return Flag(name=name, kind="file" if spec == "file" else "text", grade=group.grade, source=group.source)
    values = []
    for part in spec.split("|"):
        value, _, versions = part.partition("@")
        if not version or in_range(version, versions):
            values.append(value)
    return Flag(name=name, kind="one_of", values=tuple(values), grade=group.grade, source=group.source)


def option_faults(options: Mapping[str, str], flags: Mapping[str, Flag], version: str) -> list[str]:
    """What is wrong with the flags that a user asks for, each by itself: one sentence per fault."""
    faults = []
    for name, value in sorted(options.items()):
        flag = flags.get(name)
        if flag is None:
            faults.append(_unknown(name, flags, version))
        elif flag.kind in ("own", "refused"):
            faults.append(f"{name} is not yours to set: {flag.why}" if flag.kind == "own" else f"{name}: {flag.why}")
        elif not value.strip():
            faults.append(f"{name} is empty")
        elif flag.kind == "one_of" and value not in flag.values:
            faults.append(f"{name}={value}: CANN {version} takes {', '.join(flag.values)}")
        elif flag.kind == "file":
            faults += _content_faults(name, value)
        elif not value.isprintable():
            faults.append(f"{name} holds characters that can't be printed")
    return faults


def _unknown(name: str, flags: Mapping[str, Flag], version: str) -> str:
    later = next((group for group in table().group if name in group.flags), None)
    if later is not None:
        return f"CANN {version} has no flag {name} (known in {later.versions})"
    near = difflib.get_close_matches(name, [flag.name for flag in flags.values() if flag.kind != "own"], n=1)
    return f"atc has no flag {name}" + (f" (did you mean {near[0]}?)" if near else "")


def _content_faults(name: str, value: str) -> list[str]:
    if len(value) > LONGEST:
        return [f"{name} is longer than {LONGEST} characters"]
    if "\n" not in value and not set(value) & set("={}:") and ("/" in value or PATH_LIKE.fullmatch(value)):
        return [f'{name} wants the content of the file, not its path: --option {name}="$(cat {value})"']
    return []


def set_faults(chosen: Mapping[str, str], version: str, arch: str) -> list[str]:
    """What is wrong with a whole set of flags: exclusions, what goes only together, and what the chip refuses."""
    faults = []
    for exclusion in table().exclude:
        clashing = [name for name in exclusion.flags if name in chosen]
        faults += [f"{one} and {other} exclude each other" for one, other in itertools.combinations(clashing, 2)]
    for need in table().need:
        if need.flag in chosen and not any(
            name in chosen and (not values or chosen[name] in values) for name, values in need.one_of.items()
        ):
            wanted = " or ".join(f"{name}={'|'.join(values) or '…'}" for name, values in need.one_of.items())
            faults.append(f"{need.flag} works only beside {wanted}")
    for limit in table().chip:
        value = chosen.get(limit.flag)
        if value is not None and (not limit.values or value in limit.values) and arch and arch not in limit.arches:
            faults.append(f"{limit.flag}={value} is not for {arch}, only for {', '.join(limit.arches)}")
    return [*faults, *_level_faults(chosen, version)]


def _level_faults(chosen: Mapping[str, str], version: str) -> list[str]:
    """From 9.2, a given deterministic_level and deterministic must be on or off together (main_impl.cc)."""
    level = chosen.get("deterministic_level")
    if level is None or not in_range(version, ">=9.2"):
        return []
    if (level != "0") == (chosen.get("deterministic", "0") != "0"):
        return []
    return [f"deterministic_level={level} needs deterministic={'1' if level != '0' else '0'}"]


def flags_in(argv: Iterable[str]) -> dict[str, str]:
    """The flags of an argument list ``--name=value …`` by name."""
    parts = (text[2:].partition("=") for text in argv if text.startswith("--"))
    return {name: value for name, _, value in parts}
