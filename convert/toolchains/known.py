"""The toolchains that can be installed: ``known.toml``, read and checked."""

from __future__ import annotations

import difflib
import functools
import tomllib
from importlib import resources

import msgspec

from convert.errors import UsageError


class Remove(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files to delete from the environment: patterns relative to its ``site-packages``, and why."""

    files: tuple[str, ...]
    reason: str


class Edit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line to replace by ``text``, once in each of ``files`` (relative to ``site-packages``), and why."""

    files: tuple[str, ...]
    line: str
    text: str
    reason: str


class Known(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One toolchain. ``bare_packages`` are installed without what they depend on, ``imports`` must then load.

    ``python`` is a minor version (``3.10``) that it needs exactly; empty: the one that runs this program.
    """

    name: str
    title: str
    version: str
    python: str = ""
    packages: tuple[str, ...]
    bare_packages: tuple[str, ...] = ()
    imports: tuple[str, ...]
    licence: str
    disk: str
    targets: tuple[str, ...]
    source: str
    remove: tuple[Remove, ...] = ()
    edit: tuple[Edit, ...] = ()


@functools.cache
def all_toolchains() -> dict[str, Known]:
    """Every toolchain by name."""
    text = resources.files(__package__).joinpath("known.toml").read_text(encoding="utf-8")
    listed = msgspec.convert(tomllib.loads(text)["toolchain"], tuple[Known, ...])
    return {one.name: one for one in listed}


def find_toolchain(name: str) -> Known:
    """A toolchain by name. Raises :class:`UsageError` CNV-2381 where there is none."""
    found = all_toolchains().get(name.lower())
    if found is None:
        near = difflib.get_close_matches(name.lower(), all_toolchains(), n=1)
        raise UsageError(
            "CNV-2381",
            f"there is no toolchain called {name!r} that could be installed",
            hint=f"did you mean {near[0]}?" if near else f"there are: {', '.join(all_toolchains())}",
        )
    return found
