"""trtexec's options by release, from ``flags.toml``, and the check of what ``--option`` passes through."""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import PurePosixPath

import msgspec

from convert.errors import UsageError

Release = tuple[int, int]
OURS = {
    "workspace": "MIB (memory that a kernel may use while it runs)",
    "tf32": "on|off (fp32 only: TF32 is off unless this is on)",
    "opt": "NAME:SIZE,NAME:SIZE (the sizes to optimize for; else the highest)",
}
"""Options that are no flag of trtexec, or become another one."""
NUMBER = re.compile(r"\d{1,9}")
TEXT = re.compile(r"[^\x00-\x1f\x7f]{1,4000}")


class Flag(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One option of trtexec, as ``flags.toml`` describes it."""

    since: str = "8.4"
    until: str = ""
    takes: str
    own: bool = False
    instead: str = ""
    excludes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def there(self, release: Release) -> bool:
        """Whether a release has it."""
        return release_of(self.since) <= release and not (self.until and release >= release_of(self.until))

    def when(self) -> str:
        """Which releases have it, in words."""
        until = f"up to the one before {self.until}" if self.until else ""
        return " ".join(part for part in (f"from {self.since} on" if self.since != "8.4" else "", until) if part)


def release_of(version: str) -> Release:
    """Major and minor of a version; (0, 0) where it can't be read."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@functools.cache
def flags() -> Mapping[str, Flag]:
    """Every option by name."""
    text = resources.files("convert.backends.tensorrt").joinpath("flags.toml").read_text(encoding="utf-8")
    return {name: msgspec.convert(row, Flag) for name, row in tomllib.loads(text)["flags"].items()}


def has(name: str, release: Release) -> bool:
    """Whether a release has an option."""
    return name in flags() and flags()[name].there(release)


def passed_through(options: Mapping[str, str], release: Release) -> tuple[str, ...]:
    """The words of the options that are trtexec's own, in order of their names; those of :data:`OURS` are left out.

    Raises :class:`UsageError`: CNV-2071 for an unknown name, CNV-2265 for one that this release lacks or that the plan
    sets itself, CNV-2075 for a bad value, CNV-2266 for two that exclude each other.
    """
    given = {name: text for name, text in options.items() if name not in OURS}
    _known(given)
    table = flags()
    words = []
    for name, text in sorted(given.items()):
        flag = table[name]
        if flag.own or not flag.there(release):
            raise _not_here(name, flag, release)
        if (word := _word(name, flag, text)) is not None:
            words.append(word)
    return tuple(words)


def _known(given: Mapping[str, str]) -> None:
    table = flags()
    unknown = sorted(name for name in given if name not in table)
    if unknown:
        offered = sorted([*OURS, *(name for name, flag in table.items() if not flag.own)])
        near = [match for name in unknown for match in difflib.get_close_matches(name, offered, n=1)]
        guess = f"did you mean {' or '.join(near)}? " if near else ""
        raise UsageError(
            "CNV-2071",
            f"the backend tensorrt has no option {', '.join(map(repr, unknown))}",
            hint=f"{guess}options: {', '.join(offered)}",
        )


def _not_here(name: str, flag: Flag, release: Release) -> UsageError:
    shown = ".".join(map(str, release))
    if flag.own:
        return UsageError("CNV-2265", f"--option {name}: the plan decides that itself", hint=f"use {flag.instead}")
    typed = (
        "; types are those of the ONNX model from 11.0 on, so --precision casts the model"
        if flag.until == "11.0"
        else ""
    )
    return UsageError(
        "CNV-2265",
        f"--option {name}: trtexec of TensorRT {shown} does not have it",
        hint=f"it is there {flag.when()}{typed}",
    )


def _word(name: str, flag: Flag, text: str) -> str | None:
    """The word on the command line; None for a switch that is off."""
    if flag.takes == "switch":
        if text in ("true", "1", "on", ""):
            return f"--{name}"
        if text in ("false", "0", "off"):
            return None
        raise _bad(name, text, "true or false")
    if flag.takes == "number" and not NUMBER.fullmatch(text):
        raise _bad(name, text, "a number")
    if flag.takes == "file" and not (TEXT.fullmatch(text) and PurePosixPath(text).is_absolute()):
        raise _bad(name, text, "an absolute path, since the compiler runs in a folder of its own")
    if flag.takes == "text" and not TEXT.fullmatch(text):
        raise _bad(name, text, "one line of text")
    if "|" in flag.takes and text not in flag.takes.split("|"):
        raise _bad(name, text, flag.takes.replace("|", ", "))
    return f"--{name}={text}"


def _bad(name: str, text: str, takes: str) -> UsageError:
    return UsageError("CNV-2075", f"--option {name}={text}: not what it takes", hint=f"it takes {takes}")


def check_together(words: tuple[str, ...]) -> None:
    """Refuse options of one command line that exclude each other, or lack one that they need. UsageError CNV-2266."""
    names = [word.removeprefix("--").partition("=")[0] for word in words if word.startswith("--")]
    table = flags()
    for name in names:
        if clash := [other for other in table[name].excludes if other in names]:
            raise UsageError(
                "CNV-2266",
                f"{name} and {' and '.join(clash)} exclude each other",
                hint=f"leave --option {name} out"
                + (", or the precision to fp32" if set(clash) & {"fp16", "int8"} else ""),
            )
        if lacking := [other for other in table[name].needs if other not in names]:
            raise UsageError(
                "CNV-2266",
                f"--option {name} needs {' and '.join(lacking)}",
                hint="add " + " ".join(f"--option {other}=true" for other in lacking),
            )
