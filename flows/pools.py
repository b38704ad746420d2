"""Which toolchains the work pools have, as their workers last saw them: one Prefect variable for each backend."""

from __future__ import annotations

import contextlib
import os

from prefect.variables import Variable

from convert.backends import load_backend
from convert.backends.base import Missing
from flows.watch import CLIENT_ERRORS
from op_registry.targets import all_targets

PREFIX = "toolchain_"


def tell_toolchain(backend: str, toolchain: str) -> None:
    """Write down which toolchain a pool has, so that a catalogue's plan notices an upgrade."""
    with contextlib.suppress(*CLIENT_ERRORS):
        if Variable.get(PREFIX + backend, default="") != toolchain:
            Variable.set(PREFIX + backend, toolchain, overwrite=True)


def known_toolchains(backends: set[str]) -> dict[str, str]:
    """The toolchains of pools by backend, for those that have ever told."""
    found = {}
    with contextlib.suppress(*CLIENT_ERRORS):
        for backend in sorted(backends):
            told = Variable.get(PREFIX + backend, default="")
            if told:
                found[backend] = str(told)
    return found


def toolchain_here(backend: str) -> str:
    """Name and version of the toolchain of a backend on this machine; empty where it is not here."""
    target = next((target for target in all_targets() if target.backend == backend), None)
    if target is None:
        return ""
    found = load_backend(backend).probe(target, os.environ)
    return "" if isinstance(found, Missing) else f"{found.name} {found.version}"
