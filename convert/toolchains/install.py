"""Installing a toolchain: environment, packages, mends, trial. A step that is done is not done again.

A stopped installation leaves its folder without ``toolchain.json``; the next one goes on after the last finished step.
Two at once wait for each other, by a lock on the folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from artifacts.errors import disk_full
from artifacts.runner import run_process
from convert.backends.children import FOREIGN
from convert.errors import ToolchainMissing, UsageError
from convert.toolchains.known import Edit, Known, Remove
from convert.toolchains.place import RECORD, VENV, Installed, Record, installed_toolchain, toolchains_root
from convert.toolchains.pythons import check_python, find_python

STEPS = "steps.json"
SITE = "lib/python*/site-packages"
TIMEOUT = 3600.0
"""Seconds for one step; downloads of two gigabytes over a slow line take long."""
Tell = Callable[[str], None]


def install_toolchain(known: Known, python: Path | None = None, tell: Tell = lambda text: None) -> Installed:
    """Install a toolchain, or go on with an installation that was stopped. Gives what is there already as it is.

    Raises :class:`ToolchainMissing` CNV-6051 (no interpreter), CNV-6052 (packages can't be installed), CNV-6053 (the
    mends don't fit, or it doesn't import), :class:`UsageError` CNV-2383 where the folder can't be written, and
    :class:`ResourceLimit` CNV-1003 on a full disk.
    """
    folder = toolchains_root() / known.name
    with _held(folder):
        there = installed_toolchain(known.name)
        if there is not None and there.record.version == known.version:
            return there
        if there is not None:
            # Another version: its environment goes, or two of them would mix.
            _empty(folder)
        _steps(known, folder, python, tell)
        record = Record(
            name=known.name,
            version=known.version,
            python=known.python,
            licence=known.licence,
            mended=(*(one.reason for one in known.remove), *(one.reason for one in known.edit)),
            packages=_packages(folder),
        )
        _write(folder / RECORD, msgspec.json.format(msgspec.json.encode(record)))
    return Installed(record=record, folder=folder)


def remove_toolchain(known: Known) -> bool:
    """Remove a toolchain, finished or not; false where there is none."""
    folder = toolchains_root() / known.name
    if not folder.is_dir():
        return False
    with _held(folder):
        # The record goes first: what is half removed must not look installed.
        (folder / RECORD).unlink(missing_ok=True)
        shutil.rmtree(folder)
    return True


def _steps(known: Known, folder: Path, python: Path | None, tell: Tell) -> None:
    done = _done(folder)
    steps: dict[str, Callable[[], None]] = {
        "environment": lambda: _make_environment(known, folder, python),
        "packages": lambda: _install_packages(known, folder),
        "mends": lambda: _mend(known, folder),
        "trial": lambda: _try(known, folder),
    }
    key = msgspec.json.encode([known.version, known.packages, known.bare_packages]).decode()
    if done.get("key") not in (None, key):
        _empty(folder)
        done = {}
    for name, step in steps.items():
        if done.get(name) == "done":
            continue
        tell(f"{known.name} {known.version}: {name}")
        step()
        done |= {"key": key, name: "done"}
        _write(folder / STEPS, json.dumps(done).encode())


def _make_environment(known: Known, folder: Path, python: Path | None) -> None:
    shutil.rmtree(folder / VENV, ignore_errors=True)
    chosen = check_python(python, known.python, folder) if python else find_python(known.python, folder)
    _run("environment", [str(chosen), "-m", "venv", VENV], folder, f"{chosen} made no virtual environment")


def _install_packages(known: Known, folder: Path) -> None:
    pip = [str(folder / VENV / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    for packages, more in ((known.bare_packages, ["--no-deps"]), (known.packages, [])):
        if packages:
            _run("packages", [*pip, *more, *packages], folder, f"pip could not install {', '.join(packages)}")


def _mend(known: Known, folder: Path) -> None:
    (site,) = (folder / VENV).glob(SITE)
    for remove in known.remove:
        _remove(remove, site)
    for edit in known.edit:
        _edit(edit, site)


def _remove(remove: Remove, site: Path) -> None:
    for pattern in remove.files:
        for path in site.glob(pattern):
            path.unlink()


def _edit(edit: Edit, site: Path) -> None:
    for name in edit.files:
        path = site / name
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
        found = [number for number, line in enumerate(lines) if line.rstrip("\n") == edit.line]
        if not found and edit.text in "".join(lines):
            continue
        if len(found) != 1:
            raise ToolchainMissing(
                "CNV-6053",
                f"{name} has the line {edit.line!r} {len(found)} times, not once: another build of this version?",
                hint="remove it (convert toolchain remove) and install again; report it if it stays so",
            )
        lines[found[0]] = edit.text + "\n"
        _write(path, "".join(lines).encode())
        # Compiled files are believed by the second and the size of their source, and both may be the same.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


def _try(known: Known, folder: Path) -> None:
    """Import what it needs; without this machine's own paths, as the compiler will run."""
    code = "; ".join(f"import {name}" for name in known.imports)
    argv = [str(folder / VENV / "bin" / "python"), "-c", code]
    _run("trial", argv, folder, f"{known.name} is installed and does not import", code="CNV-6053")


def _packages(folder: Path) -> dict[str, str]:
    """Every distribution of the environment with its version, from the names of its metadata folders."""
    (site,) = (folder / VENV).glob(SITE)
    pairs = (path.name.removesuffix(".dist-info").rpartition("-") for path in site.glob("*.dist-info"))
    return {name.lower().replace("_", "-"): version for name, _, version in sorted(pairs)}


def _run(step: str, argv: list[str], folder: Path, failed: str, *, code: str = "CNV-6052") -> None:
    """A step's program; variables that would lead it to this program's own packages are taken away."""
    log = folder / f"{step}.log"
    log.unlink(missing_ok=True)
    foreign = [f"--unset={name}" for name in (*FOREIGN, "PIP_CONSTRAINT")]
    ended = run_process(["env", *foreign, *argv], folder=folder, log=log, timeout=TIMEOUT)
    if ended.returncode == 0 and not ended.timed_out:
        return
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["no message"]
    told = f"it took longer than {TIMEOUT:.0f} s" if ended.timed_out else errors[0][:300]
    raise ToolchainMissing(
        code,
        f"{failed}: {told}",
        hint=f"read {log}; mend it and run the same command again, it goes on where it stopped",
    )


def _done(folder: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode((folder / STEPS).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def _empty(folder: Path) -> None:
    for name in (RECORD, STEPS):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / VENV, ignore_errors=True)


def _write(path: Path, data: bytes) -> None:
    """Write beside, then rename: a kill leaves the old file or the new one."""
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(data)
    beside.replace(path)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """The folder's lock, beside it; the kernel frees it however its holder dies."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder.with_name(f".{folder.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        if full := disk_full(error, "installing a toolchain"):
            raise full from error
        raise UsageError(
            "CNV-2383",
            f"toolchains can't be put into {folder.parent}: {error.strerror}",
            hint="point the setting `toolchains` (CONVERT_TOOLCHAINS) at a folder that can be written",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    except OSError as error:
        if full := disk_full(error, "installing a toolchain"):
            raise full from error
        raise
    finally:
        os.close(descriptor)
