"""Where a CANN is on this machine, which version, and what its programs need in their environment.

Places and version files: hicann/ge api/atc/atc (the wrapper script); the installed tree of CANN 8.1.RC1
(leideng/CANN-8.1.RC1); up to 8.3 ``ascend-toolkit``, from 8.5 on ``cann``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from op_registry.versions import is_version

NAMED = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
ROOTS = ("/usr/local/Ascend", "~/Ascend")
HOMES = ("cann", "ascend-toolkit/latest", "latest", "nnae/latest")
RUNTIMES = (*HOMES, "nnrt/latest", "nnrt")
"""Where something that runs an artifact may be: the toolkit, or the runtime alone (CANN NNRT), which has no atc."""
RUNTIME_MARKS = ("python/site-packages/acl*", "lib64/libascendcl.so", "*-linux/lib64/libascendcl.so")
PROGRAMS = ("bin/atc", "compiler/bin/atc", "atc/bin/atc")
SET_ENV = ("set_env.sh", "../set_env.sh")
VERSION_DIR = re.compile(r"^version_dir\s*=\s*(\S+)", re.MULTILINE)
VERSION_KEYS = re.compile(r"^version\s*=\s*(\S+)", re.MULTILINE)
RUNNING = re.compile(r"^(?:compiler|toolkit)_running_version\s*=\s*\[[^:\]]*:([^\]]+)\]", re.MULTILINE)
MOST = 64 * 1024


class Cann(msgspec.Struct, frozen=True, kw_only=True):
    """An installed toolkit. ``sourced``: its set_env.sh has run in this environment. ``program`` empty: no atc."""

    program: str
    home: str
    version: str = ""
    told_by: str = ""
    """The file that told the version."""
    set_env: str = ""
    sourced: bool = False


def find_cann(environment: Mapping[str, str]) -> Cann | None:
    """The toolkit that this environment names, else the one on PATH, else one at the usual places."""
    found = next(_candidates(environment), None)
    return _installed(found[0], str(found[1]), environment) if found else None


def find_runtime(environment: Mapping[str, str]) -> Cann | None:
    """What runs an artifact: the toolkit, else a place with pyACL or its library, which may have no atc at all."""
    if (toolkit := find_cann(environment)) is not None:
        return toolkit
    named = [Path(environment[name]) for name in NAMED if environment.get(name)]
    for home in (*named, *_usual(environment, RUNTIMES)):
        if any(next(home.glob(mark), None) for mark in RUNTIME_MARKS):
            return _installed(home, "", environment)
    return None


def _installed(home: Path, program: str, environment: Mapping[str, str]) -> Cann:
    version, told_by = version_of(home)
    scripts = [home / name for name in SET_ENV]
    return Cann(
        program=program,
        home=str(home),
        version=version,
        told_by=told_by,
        set_env=next((os.path.normpath(script) for script in scripts if script.is_file()), ""),
        sourced=bool(environment.get("ASCEND_OPP_PATH")),
    )


def _usual(environment: Mapping[str, str], homes: Sequence[str]) -> list[Path]:
    user = environment.get("HOME", "")
    roots = [Path(root.replace("~", user)) for root in ROOTS if user or not root.startswith("~")]
    return [root / home for root in roots for home in homes]


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Path, Path]]:
    named = [environment[name] for name in NAMED if environment.get(name)]
    yield from _programs(Path(home) for home in named)
    found = shutil.which("atc", path=environment.get("PATH", ""))
    if found:
        program = Path(os.path.abspath(found))  # noqa: PTH100 -- links stay: `latest` is the place that is meant
        folder = program.parent.parent
        yield (folder.parent if folder.name in ("compiler", "atc") else folder), program
    yield from _programs(_usual(environment, HOMES))


def _programs(homes: Iterator[Path] | list[Path]) -> Iterator[tuple[Path, Path]]:
    for home in homes:
        for name in PROGRAMS:
            if os.access(home / name, os.X_OK) and (home / name).is_file():
                yield home, home / name


def version_of(home: Path) -> tuple[str, str]:
    """The version of an installed tree, and the file that tells it; empty where none does."""
    files = [
        *sorted(home.glob("*-linux/ascend_toolkit_install.info")),
        home / "ascend_toolkit_install.info",
        home / "compiler" / "version.info",
        home / "version.cfg",
        home / "version.info",
        home / "atc" / "version.info",
        home / "runtime" / "version.info",
        *sorted(home.glob("*-linux/ascend_nnrt_install.info")),
        home / "ascend_nnae_install.info",
    ]
    for path in files:
        if found := version_in(_head(path)):
            return found, str(path)
    name = home.resolve().name.removeprefix("cann-")
    return (name, str(home.resolve())) if is_version(name) and "." in name else ("", "")


def version_in(text: str) -> str:
    """The first release that a version file's text names; empty where there is none."""
    found = (*VERSION_DIR.findall(text), *VERSION_KEYS.findall(text), *RUNNING.findall(text))
    return next((version for version in found if is_version(version)), "")


def _head(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(MOST).decode("utf-8", "replace")
    except OSError:
        return ""


def environment_of(cann: Cann, environment: Mapping[str, str]) -> dict[str, str]:
    """What to add to the environment so that the toolkit's programs work without its set_env.sh having run.

    Empty where it has run. ``devlib`` holds stand-ins of the driver's libraries for hosts without a card; it comes
    last, so a driver that is here wins (ATC manual, environment).
    """
    if cann.sourced:
        return {}
    home = Path(cann.home)
    libraries = [home / "lib64", home / "compiler" / "lib64", *sorted(home.glob("*-linux/devlib")), home / "devlib"]
    modules = [home / "python" / "site-packages", home / "opp" / "built-in" / "op_impl" / "ai_core" / "tbe"]
    return {
        "ASCEND_HOME_PATH": environment.get("ASCEND_HOME_PATH") or cann.home,
        "ASCEND_TOOLKIT_HOME": environment.get("ASCEND_TOOLKIT_HOME") or cann.home,
        "ASCEND_OPP_PATH": str(home / "opp"),
        "ASCEND_AICPU_PATH": environment.get("ASCEND_AICPU_PATH") or cann.home,
        "PATH": _joined([Path(cann.program).parent] if cann.program else [], environment.get("PATH", "")),
        "LD_LIBRARY_PATH": _joined(
            [path for path in libraries if path.is_dir()], environment.get("LD_LIBRARY_PATH", "")
        ),
        "PYTHONPATH": _joined([path for path in modules if path.is_dir()], environment.get("PYTHONPATH", "")),
    }


def _joined(paths: list[Path], rest: str) -> str:
    return os.pathsep.join([*map(str, paths), *([rest] if rest else [])])


def interpreter(environment: Mapping[str, str]) -> str:
    """The Python that serves the toolkit: the first ``python3`` on PATH; empty where there is none."""
    return shutil.which("python3", path=environment.get("PATH", "")) or ""
