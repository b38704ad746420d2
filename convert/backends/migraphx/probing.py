"""The driver, its version, the card, DTK's version, and the Python that has the module.

The driver is looked for on ``PATH``, then in ``$ROCM_PATH``, ``/opt/dtk`` and ``/opt/rocm``. Up to 2.16, and in DTK,
MIGraphX asks the card while it compiles, so that a target is only here where its card is.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from convert.backends.asking import LAUNCHER, answer, card_for, cards_of, find_program, hidden_by, last_words
from convert.backends.base import Missing, Toolchain
from convert.backends.migraphx.planning import DRIVER, REFERENCE_ARCH
from op_registry.values import Target

ROOTS = ("/opt/dtk", "/opt/rocm")
VERSION = re.compile(r"MIGraphX Version: (\d+(?:\.\d+)*)(\S*)")
VENDORS = ("hygon", "amd")
DTK_FILES = ("rocm_version", "version", "version-dev")
"""Where DTK says its version, below ``.info`` (public scripts that ask it)."""
PYTHON = "CONVERT_MIGRAPHX_PYTHON"
"""The Python that has the module migraphx, where it is not the one that its file's name tells."""
TAGGED = re.compile(r"migraphx\.cpython-(\d)(\d+)")


def probe(target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
    """The toolchain for a target on this machine or behind the launcher, or what is missing."""
    behind = bool(environment.get(LAUNCHER))
    program = DRIVER if behind else find_program(DRIVER, environment, _folders(environment))
    if not program:
        return Missing(
            name="MIGraphX",
            reason=f"{DRIVER} is neither on PATH nor in {' or '.join(ROOTS)}",
            hint="source /opt/dtk/env.sh, or install DTK's package migraphx" if target.vendor == "hygon"
            else "install ROCm's package migraphx (it holds migraphx-driver), or set ROCM_PATH",
        )  # fmt: skip
    text = answer([program, "--version"], environment)
    told = VERSION.search(text)
    if told is None:
        return Missing(
            name="MIGraphX",
            reason=f"{program} --version does not tell a version: {last_words(text)}",
            hint="source the environment of ROCm or DTK, and check that migraphx-driver --version works",
            asked=behind,
        )
    fork = int(told[1].partition(".")[0]) >= 4
    if target.vendor == "hygon" and not fork:
        return Missing(
            name="DTK",
            reason=f"MIGraphX {told[1]} is AMD's, and {target.name} needs the one of Hygon's DTK",
            hint="source /opt/dtk/env.sh, so that DTK's migraphx-driver comes first",
            asked=behind,
        )
    details = {"build": told[1] + told[2], "flavour": "dtk" if fork else "rocm"}
    toolchain = Toolchain(name="MIGraphX", version=_short(told[1]), details=details)
    if behind:
        return _behind(toolchain, target, environment)
    more = {**_place(program, environment), **_module(program, environment), **(_dtk_version(program) if fork else {})}
    toolchain = Toolchain(name=toolchain.name, version=toolchain.version, details={**details, **more})
    return toolchain if target.arch == REFERENCE_ARCH else _with_card(toolchain, target, environment)


def _behind(toolchain: Toolchain, target: Target, environment: Mapping[str, str]) -> Toolchain:
    """A toolchain on the launcher's other side, whose card is taken on trust."""
    python = {"python": environment[PYTHON]} if environment.get(PYTHON) else {}
    arch = {} if target.arch == REFERENCE_ARCH else {"arch": target.arch}
    details = {**toolchain.details, **python, **arch, "launcher": environment[LAUNCHER]}
    return Toolchain(name=toolchain.name, version=toolchain.version, details=details)


def _short(version: str) -> str:
    return ".".join(version.split(".")[:3])


def _with_card(toolchain: Toolchain, target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
    """The toolchain with the card of a target, or what is missing of it."""
    here = f"MIGraphX {toolchain.version} is here"
    why = "it asks the card while it compiles"
    hint = "compile on a machine with the card; --target migraphx-ref checks the graph without one"
    if hidden := hidden_by(target.vendor, environment):
        told = f"{here}, and {hidden}={environment[hidden]!r} hides every card"
        return Missing(name=target.name, reason=told, hint=f"unset {hidden}")
    cards = cards_of(VENDORS, environment)
    if not cards:
        return Missing(name=target.name, reason=f"{here}, but no card ({why})", hint=hint)
    card = card_for(target, cards)
    if card is None:
        seen = ", ".join(sorted({f"{one.arch} ({one.name})" if one.name != one.arch else one.arch for one in cards}))
        return Missing(
            name=target.name, reason=f"{here}, but the card here is {seen}, not {target.arch} ({why})", hint=hint
        )
    details = {**toolchain.details, "arch": target.arch}
    if card.name != card.arch:
        details["card"] = card.name
    return Toolchain(name=toolchain.name, version=toolchain.version, details=details)


# ------------------------------------------------------------------------------------------------------------ programs


def _roots(environment: Mapping[str, str]) -> list[str]:
    return [place for place in (environment.get("ROCM_PATH", ""), *ROOTS) if place]


def _folders(environment: Mapping[str, str]) -> list[str]:
    return [f"{root}/bin" for root in _roots(environment)]


def _place(program: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The driver's path, where its name alone would not find it."""
    return {} if shutil.which(DRIVER, path=environment.get("PATH", "")) else {"program": program}


def _module(program: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The folder of the module and the Python that it was built for, where they can be seen."""
    if environment.get(PYTHON):
        return {"python": environment[PYTHON]}
    root = Path(program).resolve().parent.parent
    for folder in (root / "lib", *(Path(place) / "lib" for place in _roots(environment)), Path("/usr/local/lib")):
        files = sorted(folder.glob("migraphx*.so"))
        tagged = [found for file in files if (found := TAGGED.match(file.name))]
        for found in tagged:
            if python := shutil.which(f"python{found[1]}.{found[2]}", path=environment.get("PATH")):
                return {"python": python, "pythonpath": str(folder)}
        if len(files) > len(tagged) or (folder / "migraphx").is_dir() or (folder / "migraphx.py").is_file():
            return {"pythonpath": str(folder)}
    return {}


def _dtk_version(program: str) -> dict[str, str]:
    root = Path(program).resolve().parent.parent
    for file in (root / ".info" / name for name in DTK_FILES):
        if file.is_file() and (found := re.search(r"\d+\.\d+(?:\.\d+)?", file.read_text(errors="replace")[:200])):
            return {"dtk": found[0]}
    found = re.search(r"dtk-(\d+\.\d+(?:\.\d+)?)", str(root))
    return {"dtk": found[1]} if found else {}
