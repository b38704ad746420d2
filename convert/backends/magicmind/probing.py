"""The SDK's Python, MagicMind's version, and the card.

MagicMind is a package of one Python, mostly of 3.7. It is looked for in the Python that ``CONVERT_MAGICMIND_PYTHON``
names, else in those on ``PATH``; it counts only where it can be imported there, since its libraries (Neuware's) may be
missing. A card isn't needed to compile, only to calibrate and to run.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from convert.backends.asking import LAUNCHER, answer, card_for, cards_of, find_program, hidden_by, last_words
from convert.backends.base import Missing, Toolchain
from convert.backends.children import script_text
from convert.backends.magicmind.child_job import NEUWARE, PYTHON
from convert.backends.magicmind.versions import ASSUMED
from op_registry.values import Target

PACKAGE = "convert.backends.magicmind"
FOLDERS = ("/usr/local/bin", "/usr/bin")
PYTHONS = ("python3", "python3.7", "python3.10")
"""The wheels are of Python 3.7 (docker images of 1.6); Cambricon's images of later years have 3.10."""
FACT = re.compile(r"^magicmind_job: (magicmind|python|cntoolkit|cnnl) ([\w.+-]{1,40})$", re.MULTILINE)
SAYS = "magicmind_job: "
NAME = "MagicMind"


def probe(target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
    """The toolchain on this machine or behind the launcher, or what is missing."""
    behind = bool(environment.get(LAUNCHER))
    heard = []
    for python in pythons(environment, behind=behind):
        said = answer((python, "-c", script_text(PACKAGE, "child_job"), "ask"), with_libraries(environment))
        facts = {name: text for name, text in FACT.findall(said) if text != "unknown"}
        if "python" not in facts:
            heard.append(said)
            continue
        own = {name: text for name, text in facts.items() if name != "magicmind"}
        details = {"program": python, **own, **_card(target, environment, behind=behind)}
        if "magicmind" not in facts:
            details["version_told_by"] = "nothing: neither the package nor Neuware's libraries say it"
        return Toolchain(name=NAME, version=facts.get("magicmind", ASSUMED), details=details)
    # A Python that ran the script says more than a wrapper that found none.
    return _missing(environment, max(heard, key=lambda said: SAYS in said, default=""), behind=behind)


def pythons(environment: Mapping[str, str], *, behind: bool) -> Iterator[str]:
    """The Pythons to ask: the one that is named, else python3, and where Neuware is, the others that wheels are for."""
    if named := environment.get(PYTHON, ""):
        yield named
        return
    if behind:
        yield PYTHONS[0]
        return
    for name in PYTHONS if home_of(environment) else PYTHONS[:1]:
        # A name that PATH resolves stays a name: the plan is the same on every machine.
        if shutil.which(name, path=environment.get("PATH", "")):
            yield name
        elif found := find_program(name, environment, FOLDERS):
            yield found


def home_of(environment: Mapping[str, str]) -> str:
    """Where Neuware is; empty where it isn't."""
    home = environment.get("NEUWARE_HOME") or NEUWARE
    return home if Path(home).is_dir() else ""


def with_libraries(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with Neuware's libraries on the loader's path."""
    home = home_of(environment)
    if not home:
        return dict(environment)
    places = (f"{home}/lib64", f"{home}/lib/llvm-mm-cxx11-old-abi/lib", environment.get("LD_LIBRARY_PATH", ""))
    return {**environment, "NEUWARE_HOME": home, "LD_LIBRARY_PATH": ":".join(filter(None, places))}


def _card(target: Target, environment: Mapping[str, str], *, behind: bool) -> dict[str, str]:
    """The card that a target's artifacts can be calibrated and run on; behind a launcher it is taken on trust."""
    if behind:
        return {"launcher": environment[LAUNCHER]}
    hidden = hidden_by("cambricon", environment)
    found = None if hidden else card_for(target, cards_of(("cambricon",), environment))
    if found is None:
        return {}
    return {"card": found.soc or found.name, **({"driver": found.driver} if found.driver else {})}


def _missing(environment: Mapping[str, str], said: str, *, behind: bool) -> Missing:
    named = environment.get(PYTHON, "")
    home = home_of(environment)
    why = f": {last_words(said).removeprefix(SAYS)}" if said.strip() else ""
    if named:
        reason = f"{named}, which {PYTHON} names, can't import magicmind{why}"
    elif behind:
        reason = f"python3 on the launcher's other side can't import magicmind{why}"
    elif home:
        reason = f"Neuware is in {home}, and no Python on PATH can import magicmind{why}"
    else:
        reason = f"there is no {NEUWARE}, NEUWARE_HOME is not set, and python3 can't import magicmind"
    return Missing(
        name=NAME,
        reason=reason,
        hint=f"install the SDK's wheel magicmind-*.whl for its Python (3.7), and name that Python in {PYTHON}",
        asked=behind,
    )
