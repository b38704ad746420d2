"""Scripts that run in a vendor toolchain's own interpreter: their text, their environment, and data in and out.

A script knows nothing of this program: it reads a JSON file beside it, and ``.npz`` files of samples by input name.
Outputs come back as ``outputs/NNN.npz``, arrays ``0``, ``1``, … in the artifact's own order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.runner import Finished
from convert.backends.base import LOG, Missing, Runner, Toolchain
from convert.links import link_or_copy
from convert.toolchains.place import installed_toolchain, unfinished_toolchains
from convert.values import OnnxGraph, Plan

if TYPE_CHECKING:
    from convert.backends.base import Array, Feeds

INPUTS = "in"
OUTPUTS = "outputs"
TIMES = "times.json"
"""Where a script may leave the seconds of each run as a list: of the runtime's call, with the copies it needs."""
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_PRELOAD")
"""Variables that would lead another interpreter to this program's own packages."""
LAST_LINES = 3


def script_text(package: str, name: str) -> str:
    """The text of a script that ships with a backend."""
    return resources.files(package).joinpath(f"{name}.py").read_text(encoding="utf-8")


def settings_text(settings: Mapping[str, Any]) -> str:
    """Settings of a script as JSON; the same settings give the same text."""
    return json.dumps(settings, indent=2, sort_keys=True) + "\n"


def calibration_names(graph: OnnxGraph) -> list[str]:
    """The graph's files to calibrate with: those given for it, else the samples."""
    for folder in ("calibration/", "samples/"):
        if found := [entry.name for entry in graph.files if entry.name.startswith(folder)]:
            return found
    return []


def calibration_places(graph: OnnxGraph) -> list[str]:
    """Where :func:`link_calibration` puts them, in order."""
    return [f"calibration/{number:03d}.npz" for number in range(len(calibration_names(graph)))]


def link_calibration(graph: OnnxGraph, folder: Path) -> None:
    """Put the inputs to calibrate with into ``calibration/`` of a working folder, wherever the graph has them from."""
    for name, place in zip(calibration_names(graph), calibration_places(graph), strict=True):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(graph.path(name), folder / place)


def link_files(graph: OnnxGraph, names: Sequence[str], folder: Path) -> None:
    """Put files of the graph into a working folder under their own names."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(graph.path(name), folder / name)


def in_environment(argv: Sequence[str], bin_folder: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """A command line and variables for a program of a virtual environment, without this program's own packages."""
    command = ("env", *(f"--unset={name}" for name in FOREIGN), *argv)
    return command, {"PATH": os.pathsep.join((str(bin_folder), os.environ.get("PATH", os.defpath)))}


def write_feeds(feeds: Feeds, folder: Path) -> int:
    """Write samples as ``in/NNN.npz``; gives how many there are."""
    from convert.arrays import save_npz

    count = 0
    for number, arrays in enumerate(feeds):
        save_npz(folder / INPUTS / f"{number:03d}.npz", arrays)
        count = number + 1
    (folder / OUTPUTS).mkdir(parents=True, exist_ok=True)
    return count


def sample_pairs(count: int) -> list[list[str]]:
    """Per sample the file to read and the file to write."""
    return [[f"{INPUTS}/{number:03d}.npz", f"{OUTPUTS}/{number:03d}.npz"] for number in range(count)]


def read_outputs(folder: Path, count: int) -> Iterator[list[Array]]:
    """The outputs of each sample, in order."""
    from convert.arrays import load_npz

    for number in range(count):
        arrays = load_npz(folder / OUTPUTS / f"{number:03d}.npz")
        yield [arrays[key] for key in sorted(arrays, key=int)]


def run_script(runner: Runner, argv: Sequence[str], bin_folder: Path, log: str) -> Finished:
    """Run a program of a virtual environment in the working folder."""
    command, variables = in_environment(argv, bin_folder)
    return runner(command, environment=variables, log=log)


def ended_badly(finished: Finished, log: Path) -> str:
    """How a program failed, in words; empty where it ended well."""
    if finished.returncode == 0 and not finished.timed_out:
        return ""
    ended = "took too long" if finished.timed_out else f"ended with exit code {finished.returncode}"
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    told = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{ended}: {' | '.join(told[-LAST_LINES:]) or 'no message'}"


def probe_installed(toolchain: str, *, name: str, distribution: str, note: str = "") -> Toolchain | Missing:
    """A toolchain that ``convert toolchain install`` puts here: its version is that of ``distribution``.

    ``note`` is what its user should know before installing it.
    """
    found = installed_toolchain(toolchain)
    if found is None:
        hint = f"convert toolchain install {toolchain} --accept-license" + (f" ({note})" if note else "")
        half = toolchain in unfinished_toolchains()
        reason = "the installation of its toolchain was stopped half-way" if half else "its toolchain is not installed"
        return Missing(name=name, reason=reason, hint=hint)
    packages = found.record.packages
    return Toolchain(
        name=name, version=packages.get(distribution, found.record.version), details={"python": str(found.python)}
    )


def child_finished(toolchain: str, plan: Plan, folder: Path, runner: Runner) -> tuple[Finished, str]:
    """Run a plan's script in its toolchain's interpreter; how it ended, and how it failed in words (empty: it did not).

    A script says ``done`` at its end: exit code 0 without that word is a failure. Where the toolchain was not installed
    by us (behind a launcher), the plan's own words are run.
    """
    found = installed_toolchain(toolchain)
    argv = (str(found.python), *plan.argv[1:]) if found else plan.argv
    finished = run_script(runner, argv, Path(argv[0]).parent, LOG)
    failure = ended_badly(finished, folder / LOG)
    log = (folder / LOG).read_text(encoding="utf-8", errors="replace") if (folder / LOG).is_file() else ""
    if not failure and not finished.timed_out and not log.rstrip().endswith("done"):
        failure = "the script stopped before its end, with exit code 0"
    return finished, failure
