"""Settings: command line over environment (``CONVERT_…``) over ``convert.toml`` over defaults, in one definition."""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from artifacts.digest import read_start
from artifacts.errors import UsageError

PREFIX = "CONVERT_"
FILE = "convert.toml"
KEPT_FREE = 1 << 30
"""Disk that stages leave to others, unless told otherwise."""
MAX_BYTES = 4 << 20
"""A larger ``convert.toml`` isn't one."""
LONGEST = 1e9
"""Seconds that a limit may say at most: some thirty years, and no infinity."""


def _xdg(variable: str, fallback: str) -> str:
    return os.environ.get(variable) or str(Path.home() / fallback)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How this machine converts. Field names are the keys of ``[settings]`` and, upper-cased, of ``CONVERT_…``."""

    registry: str = ""
    """Root of the artifact registry."""
    cache_dir: str = ""
    """Root of the stage cache."""
    toolchains: str = ""
    """Where ``convert toolchain install`` puts vendor toolchains."""
    out: str = "convert-out"
    """Where artifacts, reports and logs are put: ``OUT/NAME/TARGET/``."""
    jobs: Annotated[int, msgspec.Meta(ge=1)] = 1
    """Targets converted side by side."""
    compilers: Annotated[int, msgspec.Meta(ge=1)] = 2
    """Vendor compilers that run at once on this machine."""
    timeout: Annotated[float, msgspec.Meta(ge=0, le=LONGEST)] = 3600.0
    """Seconds that one stage may take; 0 for no limit."""
    simplify_timeout: Annotated[float, msgspec.Meta(ge=0, le=LONGEST)] = 600.0
    """Seconds for the simplifier, after which the graph is kept as it is."""
    memory: str = ""
    """Resident memory that one stage may use, such as ``8GB``; empty: 90 % of this machine's."""
    disk: str = ""
    """Disk that one stage may fill, such as ``50GB``; empty: what is free where the cache lies, but for 1 GiB."""
    soc: str = ""
    """The exact SoC of the card, where the target is a family."""
    launcher: str = ""
    """What a vendor compiler is started with: a container, ssh, srun."""


UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_bytes(text: str) -> int:
    """``8GB``, ``512MiB`` or a plain number, in bytes. Raises :class:`UsageError` (CNV-2003)."""
    number = text.strip().upper().rstrip("KMGIB")
    unit = text.strip().upper()[len(number) :]
    try:
        size = int(float(number) * UNITS[unit.strip()])
    except (ValueError, KeyError, OverflowError):
        size = 0
    if size <= 0:
        raise UsageError("CNV-2003", f"{text!r} is no size", hint="write it like 8GB or 512MiB")
    return size


def load_settings(given: Mapping[str, Any], *, folder: Path | None = None) -> Settings:
    """Merge the layers. ``given`` holds what the command line set. Raises :class:`UsageError` (CNV-2002)."""
    layers: list[tuple[str, Mapping[str, Any]]] = [
        (FILE, _from_file((folder or Path.cwd()) / FILE)),
        ("environment", _from_environment(os.environ)),
        ("command line", {name: value for name, value in given.items() if value is not None}),
    ]
    places = {
        "registry": str(Path(_xdg("XDG_DATA_HOME", ".local/share")) / "model-convert" / "registry"),
        "cache_dir": str(Path(_xdg("XDG_CACHE_HOME", ".cache")) / "model-convert"),
        "toolchains": str(Path(_xdg("XDG_DATA_HOME", ".local/share")) / "model-convert" / "toolchains"),
    }
    merged: dict[str, Any] = {}
    for origin, layer in layers:
        try:
            msgspec.convert(dict(layer), Settings, strict=False)
        except msgspec.ValidationError as error:
            raise UsageError(
                "CNV-2002",
                f"a setting from the {origin} is wrong: {error}",
                hint=f"settings are: {', '.join(Settings.__struct_fields__)}",
            ) from error
        merged.update(layer)
    merged.update({name: place for name, place in places.items() if not merged.get(name)})
    settings = msgspec.convert(merged, Settings, strict=False)
    for text in filter(None, (settings.memory, settings.disk)):
        parse_bytes(text)
    return settings


def _from_file(path: Path) -> Mapping[str, Any]:
    try:
        data = read_start(path, MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
        table = tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        # ValueError: no UTF-8, no TOML, or a number of thousands of digits; RecursionError: nested without end.
        raise UsageError("CNV-2002", f"{path} can't be read: {error}", hint="mend the file; it is TOML") from error
    settings = table.get("settings", {})
    return settings if isinstance(settings, dict) else {"settings": settings}


def _from_environment(environment: Mapping[str, str]) -> Mapping[str, Any]:
    known = {f"{PREFIX}{name.upper()}": name for name in Settings.__struct_fields__}
    return {known[name]: value for name, value in environment.items() if name in known}


def memory_limit(settings: Settings) -> int:
    """The limit of one stage in bytes."""
    if settings.memory:
        return parse_bytes(settings.memory)
    return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 0.9)


def disk_limit(settings: Settings) -> int:
    """Bytes that one stage may write; 0 for no limit, where little is free anyway and the disk itself is the limit."""
    if settings.disk:
        return parse_bytes(settings.disk)
    folder = Path(settings.cache_dir).absolute()
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    return free - KEPT_FREE if free > 2 * KEPT_FREE else 0


def stage_limits(settings: Settings) -> dict[str, Any]:
    """The limits of one stage, as :class:`convert.host.Limits` takes them."""
    return {"seconds": settings.timeout, "memory": memory_limit(settings), "disk": disk_limit(settings)}
