"""The driver, its version, the card, DTK's version, and the Python that has the module.

The driver is looked for on ``PATH``, then in ``$ROCM_PATH``, ``/opt/dtk`` and ``/opt/rocm``. Cards are told by
``rocminfo`` (agents whose device type is GPU), by ``rocm_agent_enumerator`` or by ``hy-smi``: up to 2.16, and in DTK,
MIGraphX asks the card while it compiles, so that a target is only here where its card is.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from artifacts.runner import run_process
from convert.backends.base import Missing, Toolchain
from convert.backends.migraphx.planning import DRIVER, REFERENCE_ARCH
from convert.errors import UsageError
from op_registry.values import Target

ROOTS = ("/opt/dtk", "/opt/rocm")
PATIENCE = 20.0
"""Seconds that a tool may take to answer: a card that hangs can block it."""
VERSION = re.compile(r"MIGraphX Version: (\d+(?:\.\d+)*)(\S*)")
HIDING = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "CUDA_VISIBLE_DEVICES")
"""Set to nothing or -1, each of them hides every card from HIP."""
ANSI = re.compile(r"\x1b\[[0-9;]*m")
SERIES = {
    "Z100": "gfx906",
    "Z100L": "gfx906",
    "K100": "gfx926",
    "K100_AI": "gfx928",
    **dict.fromkeys(("BW", "BW10", "BW100", "BW150", "BW1000"), "gfx936"),
    "BW1100": "gfx938",
}
"""Hygon's cards by the series that ``hy-smi`` tells (public user reports and DTK build files)."""
DTK_FILES = ("rocm_version", "version", "version-dev")
"""Where DTK says its version, below ``.info`` (public scripts that ask it)."""
PYTHON = "CONVERT_MIGRAPHX_PYTHON"
"""The Python that has the module migraphx, where it is not the one that its file's name tells."""
TAGGED = re.compile(r"migraphx\.cpython-(\d)(\d+)")


def probe(target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
    """The toolchain for a target on this machine, or what is missing."""
    program = find_program(DRIVER, environment)
    if program is None:
        return Missing(
            name="MIGraphX",
            reason=f"{DRIVER} is neither on PATH nor in {' or '.join(ROOTS)}",
            hint="source /opt/dtk/env.sh, or install DTK's package migraphx" if target.vendor == "hygon"
            else "install ROCm's package migraphx (it holds migraphx-driver), or set ROCM_PATH",
        )  # fmt: skip
    text = ask([program, "--version"], environment)
    told = VERSION.search(text)
    if told is None:
        said = text.strip().splitlines()
        return Missing(
            name="MIGraphX",
            reason=f"{program} --version does not tell a version" + (f": {said[-1][:200]}" if said else ""),
            hint="source the environment of ROCm or DTK, and check that migraphx-driver --version works",
        )
    fork = int(told[1].partition(".")[0]) >= 4
    if target.vendor == "hygon" and not fork:
        return Missing(
            name="DTK",
            reason=f"MIGraphX {told[1]} is AMD's, and {target.name} needs the one of Hygon's DTK",
            hint="source /opt/dtk/env.sh, so that DTK's migraphx-driver comes first",
        )
    details = {
        "build": told[1] + told[2],
        "flavour": "dtk" if fork else "rocm",
        **_place(program, environment),
        **_module(program, environment),
        **(_dtk_version(program) if fork else {}),
    }
    if target.arch == REFERENCE_ARCH:
        return Toolchain(name="MIGraphX", version=_short(told[1]), details=details)
    return _with_card(Toolchain(name="MIGraphX", version=_short(told[1]), details=details), target, environment)


def _short(version: str) -> str:
    return ".".join(version.split(".")[:3])


def _with_card(toolchain: Toolchain, target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
    """The toolchain with the card of a target, or what is missing of it."""
    here = f"MIGraphX {toolchain.version} is here"
    why = "it asks the card while it compiles"
    hidden = [name for name in HIDING if environment.get(name, "0").strip() in ("", "-1")]
    hint = "compile on a machine with the card; --target migraphx-ref checks the graph without one"
    if hidden:
        told = f"{here}, and {hidden[0]}={environment[hidden[0]]!r} hides every card"
        return Missing(name=target.name, reason=told, hint=f"unset {hidden[0]}")
    cards = find_cards(environment)
    if not cards:
        return Missing(name=target.name, reason=f"{here}, but no card ({why})", hint=hint)
    if target.arch not in cards:
        seen = ", ".join(f"{arch} ({card})" if card else arch for arch, card in cards.items())
        return Missing(
            name=target.name, reason=f"{here}, but the card here is {seen}, not {target.arch} ({why})", hint=hint
        )
    details = {**toolchain.details, "arch": target.arch}
    if cards[target.arch]:
        details["card"] = cards[target.arch]
    return Toolchain(name=toolchain.name, version=toolchain.version, details=details)


# ------------------------------------------------------------------------------------------------------------ programs


def find_program(name: str, environment: Mapping[str, str]) -> str | None:
    """A program on ``PATH`` or in the usual folders."""
    places = [environment.get("PATH", ""), *(f"{root}/bin" for root in _roots(environment)), "/opt/hyhal/bin"]
    return shutil.which(name, path=":".join(place for place in places if place))


def _roots(environment: Mapping[str, str]) -> list[str]:
    return [place for place in (environment.get("ROCM_PATH", ""), *ROOTS) if place]


def ask(argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """What a program says, both streams; empty where it can't be started. Colours are taken out."""
    with tempfile.TemporaryDirectory(prefix="migraphx-") as folder:
        log = Path(folder) / "answer.log"
        told = {**environment, "LC_ALL": "C"}
        try:
            run_process(argv, folder=Path(folder), log=log, timeout=PATIENCE, environment=told)
        except UsageError:
            return ""
        return ANSI.sub("", log.read_text(encoding="utf-8", errors="replace")) if log.is_file() else ""


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


# --------------------------------------------------------------------------------------------------------------- cards


def find_cards(environment: Mapping[str, str]) -> dict[str, str]:
    """The cards of this machine: arch → name (empty where it is not told)."""
    if program := find_program("rocminfo", environment):
        return cards_of_rocminfo(ask([program], environment))
    if program := find_program("rocm_agent_enumerator", environment):
        names = re.findall(r"^gfx\w+$", ask([program], environment), re.MULTILINE)
        return {name: "" for name in names if name != "gfx000"}
    if program := find_program("hy-smi", environment):
        return cards_of_hy_smi(ask([program, "--showproductname", "--json"], environment))
    return {}


def cards_of_rocminfo(text: str) -> dict[str, str]:
    """The agents of ``rocminfo`` whose device type is GPU: arch → marketing name."""
    found: dict[str, str] = {}
    for block in re.split(r"^\s*Agent \d+\s*$", text, flags=re.MULTILINE)[1:]:
        # A card without a marketing name has an empty line, which must not take the next one for its value.
        told = re.findall(r"^\s*(Name|Marketing Name|Device Type):[ \t]*(.*?)[ \t]*$", block, re.MULTILINE)
        keys = dict(reversed(told))
        if keys.get("Device Type") == "GPU" and keys.get("Name", "").startswith("gfx"):
            found[keys["Name"]] = keys.get("Marketing Name", "")
    return found


def cards_of_hy_smi(text: str) -> dict[str, str]:
    """The cards of ``hy-smi --showproductname --json``; warnings may stand before the JSON."""
    try:
        told = json.loads(text[max(0, text.find("{")) :] or "{}")
    except ValueError:
        return {}
    found: dict[str, str] = {}
    for card in told.values() if isinstance(told, dict) else ():
        if isinstance(card, dict):
            series = next((str(value) for key, value in card.items() if key.lower() == "card series"), "")
            if series in SERIES:
                found[SERIES[series]] = series
    return found
