"""What an installed CANN says of itself: its flags, its version, the card, the Python packages that compiling needs."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from artifacts.cards import Card, find_cards
from artifacts.errors import ModelConvertError
from artifacts.runner import run_process
from artifacts.scratch import temporary_folder
from convert.backends.atc.find import Cann, environment_of, find_cann, find_runtime, interpreter, version_in
from convert.backends.atc.flags import flags_of
from convert.backends.base import Missing, Toolchain
from convert.launcher import launched, parse_launcher
from op_registry.values import Target
from op_registry.versions import in_range, is_version

NAME = "CANN"
ASSUMED = "8.5.0"
"""The version that plans are made for where none is here: the operator registry's own."""
EDITIONS = ("5.1", "6.0", "6.2", "6.3", "8.0", "8.5", "9.0", "9.1", "9.2")
"""Versions whose flags differ, oldest first."""
SECONDS = 30.0
SEEN = ("PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "TOOLCHAIN_HOME")
"""With everything called ASCEND_…, what a toolkit's programs look at."""
MOST = 1 << 20
VERSION_FILES = (
    'cd "${ASCEND_HOME_PATH:-$ASCEND_TOOLKIT_HOME}" && cat *-linux/ascend_toolkit_install.info compiler/version.info '
    "version.cfg 2>/dev/null"
)
LISTED = re.compile(r"^\s*--?([a-z][a-z0-9_]+)", re.MULTILINE)
QUESTION = """
import importlib.util, json, sys
names = {"attr": "attrs", "decorator": "decorator", "sympy": "sympy", "cffi": "cffi", "yaml": "pyyaml",
         "psutil": "psutil", "google.protobuf": "protobuf", "scipy": "scipy", "requests": "requests",
         "absl": "absl-py", "cloudpickle": "cloudpickle", "numpy": "numpy"}
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
said = {"python": "%d.%d.%d" % sys.version_info[:3], "missing": [pip for name, pip in names.items() if not there(name)]}
if there("numpy"):
    import numpy
    said["numpy"] = numpy.__version__
said["acl"] = there("acl")
said["ais_bench"] = there("ais_bench")
if said["acl"]:
    try:
        import acl
        said["soc"] = acl.get_soc_name() or ""
    except Exception as error:
        said["acl_error"] = "%s: %s" % (type(error).__name__, error)
print("\\n@@" + json.dumps(said))
"""
"""Asked of the interpreter that the toolkit uses. Packages: the CANN installation guide's list for ATC."""


def probe_cann(target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
    """The toolkit on this machine with everything that it tells, or what to do to have one."""
    if launcher := environment.get("CONVERT_LAUNCHER"):
        return _behind(launcher, environment)
    cann = find_cann(environment)
    if cann is None:
        return Missing(
            name=NAME,
            reason="no atc on PATH, in ASCEND_HOME_PATH or below /usr/local/Ascend",
            hint="install the CANN toolkit and the chip's kernels package, then source its set_env.sh "
            "(/usr/local/Ascend/cann/set_env.sh, up to 8.3 /usr/local/Ascend/ascend-toolkit/set_env.sh)",
        )
    added = environment_of(cann, environment)
    seen = {**environment, **added}
    text, status = _said([cann.program, "--help"], seen)
    listed = frozenset(LISTED.findall(text)) - {"h", "help"}
    if "soc_version" not in listed:
        lines = [line for line in text.splitlines() if line.strip()] or [f"exit code {status}"]
        return Missing(
            name=NAME,
            reason=f"{cann.program} does not start: {lines[-1].strip()[:200]}",
            hint=f"source {cann.set_env}" if cann.set_env else "source the set_env.sh of this CANN",
        )
    version = cann.version or edition_of(listed)
    return Toolchain(name=NAME, version=version, details=_details(cann, version, listed, seen))


def _behind(launcher: str, environment: Mapping[str, str]) -> Toolchain | Missing:
    """The toolkit on the other side of a launcher: what its atc lists, and its version files."""
    words = parse_launcher(launcher)
    text, status = _said(launched(words, ["atc", "--help"], {}, Path(tempfile.gettempdir())), environment)
    listed = frozenset(LISTED.findall(text)) - {"h", "help"}
    if "soc_version" not in listed:
        lines = [line for line in text.splitlines() if line.strip()] or [f"exit code {status}"]
        return Missing(
            name=NAME,
            reason=f"`{launcher} atc --help` does not answer: {lines[-1].strip()[:200]}",
            hint="the launcher must lead to a place where the toolkit's set_env.sh has run",
            asked=True,
        )
    files, _ = _said(launched(words, ["sh", "-c", VERSION_FILES], {}, Path(tempfile.gettempdir())), environment)
    version = version_in(files)
    told_by = "its version files" if version else "the flags that atc --help lists"
    _, lacking = _said(
        launched(words, ["sh", "-c", "command -v amct_onnx"], {}, Path(tempfile.gettempdir())), environment
    )
    amct = "no" if lacking else "yes"
    details = {"launcher": launcher, "flags": " ".join(sorted(listed)), "version_told_by": told_by, "amct": amct}
    return Toolchain(name=NAME, version=version or edition_of(listed), details=details)


def probe_runtime(environment: Mapping[str, str]) -> dict[str, str]:
    """What this machine has to run an artifact with; atc is not needed for that, and not asked.

    ``acl`` and ``ais_bench`` (yes or no), ``acl_error`` where pyACL is there and does not load, ``soc`` and ``cards``.
    """
    found = find_runtime(environment)
    seen = {**environment, **(environment_of(found, environment) if found else {})}
    return {**_runtime(seen)[0], "home": found.home if found else "", "set_env": found.set_env if found else ""}


def _runtime(environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """What runs artifacts in an environment, and all that its interpreter told."""
    told = _interpreter_says(environment)
    cards = find_cards(environment, ("ascend",))
    socs = sorted({card.soc for card in cards if card.soc})
    soc = told.get("soc", "") or (socs[0] if len(socs) == 1 else "")
    facts = {
        "soc": soc,
        "soc_told_by": "acl.get_soc_name" if told.get("soc") else "npu-smi" if soc else "",
        "cards": ", ".join(_card(card) for card in cards),
        "acl": told.get("acl", "no"),
        "ais_bench": told.get("ais_bench", "no"),
    }
    return {**facts, **({"acl_error": told["acl_error"]} if told.get("acl_error") else {})}, told


def _details(cann: Cann, version: str, listed: frozenset[str], environment: Mapping[str, str]) -> dict[str, str]:
    runtime, told = _runtime(environment)
    return {
        **runtime,
        "program": cann.program,
        "home": cann.home,
        "version_told_by": cann.told_by or "the flags that atc --help lists",
        "sourced": "yes" if cann.sourced else f"no{f': source {cann.set_env}' if cann.set_env else ''}",
        "flags": " ".join(sorted(listed)),
        "python": told.get("python", ""),
        "python_missing": told.get("missing", ""),
        "python_wrong": _wrong_python(version, told),
        "amct": "yes" if shutil.which("amct_onnx", path=environment.get("PATH", "")) else "no",
    }


def _card(card: Card) -> str:
    return f"{card.soc or card.name} ({card.health})"


def _wrong_python(version: str, told: Mapping[str, str]) -> str:
    """What of the interpreter is known not to work with a version (threads and FAQ; release notes say more)."""
    wrong = []
    if told.get("numpy", "").startswith("2.") and in_range(version, "<=8.1"):
        wrong.append(f"numpy {told['numpy']}: this CANN needs numpy below 2")
    python = told.get("python", "")
    if is_version(python) and in_range(python, ">=3.13") and in_range(version, "<=8.1"):
        wrong.append(f"Python {python}: this CANN takes 3.8 to 3.11")
    return "; ".join(wrong)


def edition_of(listed: frozenset[str]) -> str:
    """The oldest edition whose flags fit best what ``atc --help`` lists, for trees that tell no version."""

    def distance(version: str) -> int:
        return len({name for name, flag in flags_of(version).items() if flag.source} ^ set(listed))

    return min(EDITIONS, key=distance)


def _interpreter_says(environment: Mapping[str, str]) -> dict[str, str]:
    """Answers of the toolkit's interpreter as text; empty where it says nothing."""
    python = interpreter(environment)
    text, _ = _said([python, "-c", QUESTION], environment) if python else ("", 0)
    line = next((line[2:] for line in reversed(text.splitlines()) if line.startswith("@@")), "{}")
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(said, dict):
        return {}
    kept = {key: str(said[key])[:200] for key in ("python", "numpy", "soc", "acl_error") if said.get(key)}
    missing = said.get("missing", [])
    listed = " ".join(str(name) for name in missing) if isinstance(missing, list) else ""
    return {**kept, "missing": listed, **{key: "yes" if said.get(key) else "no" for key in ("acl", "ais_bench")}}


def _said(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[str, int]:
    """What a program prints, and its exit code. Remembered for a minute: one conversion asks several times."""
    wanted = {key: value for key, value in environment.items() if key in SEEN or key.startswith("ASCEND_")}
    program = Path(argv[0])
    changed = program.stat().st_mtime_ns if program.is_file() else 0
    return _said_once(tuple(argv), tuple(sorted(wanted.items())), (changed, int(time.monotonic() // 60)))


@lru_cache(maxsize=16)
def _said_once(
    argv: tuple[str, ...], environment: tuple[tuple[str, str], ...], when: tuple[int, int]
) -> tuple[str, int]:
    with temporary_folder("cann") as folder:
        log = Path(folder) / "said.log"
        try:
            finished = run_process(
                argv, folder=Path(folder), log=log, timeout=SECONDS, environment={**dict(environment), "LC_ALL": "C"}
            )
        except ModelConvertError as error:
            return str(error), 127
        if finished.timed_out:
            return f"no answer within {SECONDS:.0f} s", 124
        return log.read_bytes()[:MOST].decode("utf-8", "replace"), finished.returncode
