"""What is installed on this machine, cheaply: versions of distributions, device files of cards."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from pathlib import Path

DEVICE_NODES = ("davinci", "cambricon_dev", "kfd", "mkfd", "nvidia", "iluvatar", "mxcd", "mtgpu")
"""What the kernel shows of cards: whether an artifact can be run may change with them."""


@functools.cache
def installed() -> dict[str, str]:
    """Versions by normalized name (``onnx_ir``), read off the names of the metadata folders.

    Reading the metadata themselves, as ``importlib.metadata`` does, costs a twentieth of a second of a run that has
    half a second in all.
    """
    found: dict[str, str] = {}
    for place in reversed(sys.path):
        with contextlib.suppress(OSError):
            for entry in os.scandir(place or "."):
                if entry.name.endswith(".dist-info"):
                    name, _, version = entry.name.removesuffix(".dist-info").rpartition("-")
                    found[normalized(name)] = version
    return found


def normalized(name: str) -> str:
    """A distribution's name as :func:`installed` spells it."""
    return name.replace("-", "_").replace(".", "_").lower()


def device_nodes() -> str:
    """The cards' device nodes of this machine, as one word; cheap, and starts no program."""
    try:
        names = [path.name for path in Path("/dev").iterdir()]
    except OSError:
        return ""
    return " ".join(sorted(name for name in names if name.startswith(DEVICE_NODES)))
