"""Where installed toolchains lie: ``TOOLCHAINS/NAME/`` with ``venv/`` and, once all is done, ``toolchain.json``."""

from __future__ import annotations

from pathlib import Path

import msgspec

from convert.settings import load_settings
from convert.toolchains.known import all_toolchains

RECORD = "toolchain.json"
VENV = "venv"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An installed toolchain as ``toolchain.json`` holds it: what was asked for, and every package with its version."""

    name: str
    version: str
    python: str
    licence: str
    mended: tuple[str, ...] = ()
    packages: dict[str, str] = {}


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """A toolchain on this machine, and its interpreter."""

    record: Record
    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return self.folder / VENV / "bin" / "python"


def toolchains_root() -> Path:
    """The folder of all toolchains (the setting ``toolchains``)."""
    return Path(load_settings({}).toolchains)


def installed_toolchain(name: str) -> Installed | None:
    """A toolchain that is wholly installed, or None."""
    folder = toolchains_root() / name
    try:
        record = msgspec.json.decode((folder / RECORD).read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None
    found = Installed(record=record, folder=folder)
    return found if found.python.exists() else None


def installed_toolchains() -> list[Installed]:
    """Every installed toolchain, in the order of ``known.toml``."""
    found = (installed_toolchain(name) for name in all_toolchains())
    return [one for one in found if one is not None]


def unfinished_toolchains() -> list[str]:
    """Names of toolchains whose installation was stopped half-way."""
    root = toolchains_root()
    return [name for name in all_toolchains() if (root / name / VENV).is_dir() and installed_toolchain(name) is None]
