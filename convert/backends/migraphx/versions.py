"""What each version of ``migraphx-driver`` knows. Pure data, and questions asked of it.

Sources: ROCm/AMDMIGraphX ``src/driver/main.cpp`` and ``CMakeLists.txt`` at the tags rocm-5.2 … rocm-7.2 and at develop
f729a52 (2.16, whose driver was also run); public tutorials of Hygon's DTK for the fork, which numbers itself 4.x and
takes the flags of an old driver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

Closing = Literal["none", "plain", "seconds", "unknown"]
Kind = Literal["switch", "word", "list"]
Number = tuple[int, int]

OLDEST: Number = (2, 2)
NEWEST: Number = (2, 16)
ASSUMED = "2.15"
"""The newest released version whose source was read."""
ASSUMED_FORK = "4.0"
ROCM: Mapping[str, str] = MappingProxyType(
    {
        "5.2": "2.2",
        "5.3": "2.3",
        "5.4": "2.4",
        "5.5": "2.5",
        "5.6": "2.6",
        "5.7": "2.7",
        "6.0": "2.8",
        "6.1": "2.9",
        "6.2": "2.10",
        "6.3": "2.11",
        "6.4": "2.12",
        "7.0": "2.13",
        "7.1": "2.14",
        "7.2": "2.15",
        "7.14": "2.16",
    }
)
"""Which MIGraphX a ROCm release ships (project version in CMakeLists.txt at the tag; 7.14: AMD's component page)."""


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """A flag of ``migraphx-driver compile``. ``switch``: no word, ``word``: one, ``list``: all up to the next flag."""

    kind: Kind = "switch"
    since: Number = OLDEST


FLAGS: Mapping[str, Flag] = MappingProxyType(
    {
        "--onnx": Flag(),
        "--tf": Flag(),
        "--migraphx": Flag(),
        "--migraphx-json": Flag(),
        "--batch": Flag(kind="word"),
        "--nhwc": Flag(),
        "--nchw": Flag(),
        "--skip-unknown-operators": Flag(),
        "--trim": Flag(kind="word"),
        "--input-dim": Flag(kind="list"),
        "--dyn-input-dim": Flag(kind="list", since=(2, 6)),
        "--default-dyn-dim": Flag(kind="word", since=(2, 6)),
        "--dim-param": Flag(kind="list", since=(2, 10)),
        "--output-names": Flag(kind="list"),
        "--optimize": Flag(),
        "--apply-pass": Flag(kind="list", since=(2, 9)),
        "--graphviz": Flag(),
        "--brief": Flag(),
        "--cpp": Flag(),
        "--python": Flag(since=(2, 5)),
        "--json": Flag(),
        "--text": Flag(),
        "--binary": Flag(),
        "--netron": Flag(since=(2, 12)),
        "--output": Flag(kind="word"),
        "-o": Flag(kind="word"),
        "--fill0": Flag(kind="list"),
        "--fill1": Flag(kind="list"),
        "--load-arg": Flag(kind="list", since=(2, 13)),
        "--gpu": Flag(),
        "--cpu": Flag(),
        "--ref": Flag(),
        "--enable-offload-copy": Flag(),
        "--disable-fast-math": Flag(),
        "--exhaustive-tune": Flag(since=(2, 6)),
        "--fp16": Flag(),
        "--int8": Flag(),
        "--fp8": Flag(since=(2, 9)),
        "--int4-weights": Flag(since=(2, 11)),
        "--bf16": Flag(since=(2, 12)),
        "--mlir": Flag(since=(2, 11)),
        "--test": Flag(since=(2, 10)),
        "--trim-size": Flag(kind="word", since=(2, 13)),
        "--debug-symbols": Flag(since=(2, 16)),
        "--strip-context": Flag(since=(2, 16)),
        "--replace-literals": Flag(since=(2, 16)),
        "--log-level": Flag(kind="word", since=(2, 16)),
        "--log-file": Flag(kind="list", since=(2, 16)),
    }
)
SEVERAL_PRECISIONS: Number = (2, 6)
"""From here on ``--fp16 --int8`` and the like add up; before, one of them won (one ``quantize`` variable)."""
FILE_VERSIONS: tuple[tuple[Number, int], ...] = (((2, 16), 8), ((2, 8), 7), ((2, 7), 6), ((2, 2), 5))
"""Version of the .mxr format, by the first MIGraphX that writes it. A reader takes its own only."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How one version is spoken to. ``fork``: Hygon's, whose number says nothing of AMD's."""

    version: Number
    fork: bool = False

    @property
    def flags(self) -> frozenset[str]:
        """The flags of its ``compile``; of the fork those that the oldest AMD driver has."""
        return frozenset(name for name, flag in FLAGS.items() if flag.since <= self.level)

    @property
    def level(self) -> Number:
        """The AMD version whose table holds: of what is not known, the nearest one."""
        return OLDEST if self.fork else min(max(self.version, OLDEST), NEWEST)

    @property
    def closing(self) -> Closing:
        """The form of its last line: with seconds, without, or none at all."""
        if self.fork:
            return "unknown"
        if self.version >= (2, 13):
            return "seconds"
        return "plain" if self.version >= (2, 9) else "none"

    @property
    def file_version(self) -> int:
        """The version of the .mxr format; 0: not known."""
        if self.fork or self.version > NEWEST:
            return 0
        return next((number for since, number in FILE_VERSIONS if self.version >= since), 0)

    @property
    def ranges(self) -> bool:
        """Whether a dimension can be a range."""
        return "--dyn-input-dim" in self.flags

    @property
    def text(self) -> str:
        """The version as it is written: ``2.15``."""
        return f"{self.version[0]}.{self.version[1]}"


def dialect_of(version: str, *, fork: bool = False) -> Dialect:
    """The dialect of a version text: ``2.15.0``, ``rocm-7.2``, ``4.0``. Anything without a number is taken as assumed.

    A driver newer than 2.16 gets the flags of 2.16, which hold for as long as none is taken away; the version of its
    files is not known (0). One older than 2.2 is refused before it is asked for anything.
    """
    text = version.strip().lower()
    if text.startswith("rocm"):
        text = ROCM.get(".".join(re.findall(r"\d+", text)[:2]), ASSUMED)
    numbers = [int(number) for number in re.findall(r"\d+", text)[:2]] or [0]
    number: Number = (numbers[0], numbers[1] if len(numbers) > 1 else 0)
    if fork or number[0] >= 4:
        return Dialect(version=number if number[0] else (4, 0), fork=True)
    return Dialect(version=number if number[0] else (2, 15))
