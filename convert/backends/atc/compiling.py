"""Running a plan: atc says that it succeeded by exit code, by its closing line and by a new file; all three count.

Sources: hicann/ge api/atc/main_impl.cc (texts, exit code 255 for any failure), base/common/helper/model_helper.cc
(names of outputs); threads Tlntin/qwen-ascend-llm#5, #6, #7 (compile children killed for memory).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from artifacts.runner import Finished
from convert.backends.atc.amct import MISSING, SCRIPT
from convert.backends.atc.find import environment_of, find_cann
from convert.backends.base import LOG, OUT, Compiled, Runner
from convert.values import Note, Plan

SUCCESS = "ATC run success"
FAILED = "ATC run failed"
TAIL = 1 << 20
HEAD = 1 << 16
KILLED = re.compile(r"\bEOFError\b|\bKilled\b|signal 9\b|Broken pipe|E22001|EC0009")
"""Signs that a compile child was killed, most often because memory ran out."""
THRIFTY = {"TE_PARALLEL_COMPILER": "1", "MAX_COMPILE_CORE_NUMBER": "1"}
"""One kernel at a time: what the threads found to help."""
WARNING = re.compile(r"\b(W\d{5})\b[^A-Za-z]*(.*)")
MOST_WARNINGS = 10
WEIGHTS = "weight."
CALIBRATION_LOG = "calibrate.log"
LEFT_BEHIND = (
    "kernel_meta",
    "fusion_result.json",
    "check_result.json",
    "atc_data",
    "compile.log.first",
    "amct",
    "amct_log",
)


def compile_plan(plan: Plan, folder: Path, runner: Runner, environment: Mapping[str, str]) -> Compiled:
    """Run the plan in its working folder, a second time with one kernel at a time where a child was killed."""
    argv, added = command(plan, environment)
    if SCRIPT in plan.files:
        calibrated = calibrate(folder, runner, {**plan.environment, **added})
        if calibrated is not None:
            return calibrated
    finished = runner(argv, environment={**plan.environment, **added})
    failure = judge(finished, _log(folder))
    notes: tuple[Note, ...] = ()
    if failure and not finished.timed_out and _was_killed(finished, _log(folder)) and not _thrifty(environment):
        (folder / LOG).replace(folder / "compile.log.first")
        finished = runner(argv, environment={**plan.environment, **added, **THRIFTY})
        failure = judge(finished, _log(folder))
        text = "a compile process was killed, so atc ran again with one kernel at a time (TE_PARALLEL_COMPILER=1)"
        notes = (Note(level="warning", text=f"{text}{'' if failure else '; that worked'}"),)
    if failure:
        return Compiled(files=(), failure=failure, finished=finished, notes=notes)
    notes += settle_output(folder / OUT, plan.output)
    _clean(folder)
    return Compiled(
        files=_files(folder / OUT, plan.output), finished=finished, notes=(*notes, *_warnings(_log(folder)))
    )


def calibrate(folder: Path, runner: Runner, environment: Mapping[str, str]) -> Compiled | None:
    """Run AMCT's step; a result where it failed. Its log then is the compile log."""
    finished = runner(("bash", SCRIPT), environment=environment)
    if finished.timed_out:
        return Compiled(files=(), failure="AMCT was stopped at its time limit", finished=finished)
    if finished.returncode == MISSING:
        return Compiled(files=(), failure="amct_onnx is not on PATH: install AMCT's wheel", finished=finished)
    if finished.returncode:
        failure = f"AMCT (amct_onnx) ended with exit code {finished.returncode}"
        return Compiled(files=(), failure=failure, finished=finished)
    (folder / LOG).replace(folder / CALIBRATION_LOG)
    return None


def command(plan: Plan, environment: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The argument list for this machine, and what its environment lacks."""
    cann = None if plan.needs.get("launched") else find_cann(environment)
    if cann is None:
        return plan.argv, {}
    return (cann.program, *plan.argv[1:]), environment_of(cann, environment)


def judge(finished: Finished, log: str) -> str:
    """How atc failed, in words; empty where it says that it did not. Whether the file is there, the stage looks."""
    if finished.timed_out:
        return "atc was stopped at its time limit"
    if finished.returncode < 0:
        return f"atc was ended by signal {-finished.returncode}"
    if finished.returncode in (137, 139):
        return (
            f"atc was ended by signal {finished.returncode - 128}{' (out of memory?)' * (finished.returncode == 137)}"
        )
    if FAILED in log:
        return f"atc says that it failed (exit code {finished.returncode})"
    if finished.returncode:
        return f"atc ended with exit code {finished.returncode}"
    if SUCCESS not in log:
        return "atc ended with exit code 0, but without its line of success"
    return ""


def _was_killed(finished: Finished, log: str) -> bool:
    return finished.returncode in (-9, 137) or KILLED.search(log) is not None


def _thrifty(environment: Mapping[str, str]) -> bool:
    return environment.get("TE_PARALLEL_COMPILER") == "1"


def _log(folder: Path) -> str:
    """The head and the tail of the log: the closing line stands at the end, but warnings may follow it."""
    path = folder / LOG
    if not path.is_file():
        return ""
    size = path.stat().st_size
    with path.open("rb") as stream:
        if size <= TAIL:
            return stream.read().decode("utf-8", "replace")
        head = stream.read(HEAD)
        stream.seek(size - TAIL + HEAD)
        return (head + b"\n" + stream.read()).decode("utf-8", "replace")


def settle_output(out: Path, name: str) -> tuple[Note, ...]:
    """Give the artifact its planned name: a file that is bound to a host is called ``model_linux_x86_64.om``."""
    stem = name.removesuffix(".om")
    bound = sorted(path for path in out.glob(f"{stem}_*_*.om") if path.is_file() and not path.is_symlink())
    if (out / name).exists() or len(bound) != 1:
        return ()
    host = bound[0].stem.removeprefix(f"{stem}_")
    bound[0].replace(out / name)
    text = f"the artifact holds code for the host system {host}: it runs there only, with the same operator package"
    return (Note(level="warning", text=text),)


def _files(out: Path, name: str) -> tuple[str, ...]:
    """The artifact, then the weights beside it (``external_weight``), under flat names: ``weight/x`` is ``weight.x``.

    An artifact's files lie in one folder wherever they go; what runs it puts them back (``device_run.laid_out``).
    """
    found = sorted(path for path in (out / "weight").glob("*") if path.is_file() and not path.is_symlink())
    for path in found:
        path.rename(out / f"{WEIGHTS}{path.name}")
    return (name, *(f"{WEIGHTS}{path.name}" for path in found))


def _warnings(log: str) -> tuple[Note, ...]:
    found: dict[str, str] = {}
    for code, text in WARNING.findall(log):
        found.setdefault(code, text.strip()[:300])
    return tuple(Note(level="warning", text=f"{code}: {text}") for code, text in list(found.items())[:MOST_WARNINGS])


def _clean(folder: Path) -> None:
    """Remove what atc leaves in its folder beside the artifact."""
    for name in LEFT_BEHIND:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
