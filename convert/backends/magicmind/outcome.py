"""Whether a job did what it was told, and what it did: by its exit code and its own lines in the log.

MagicMind's Python ends with exit code 0 whatever happens to a model, so the script's closing line is what counts.
"""

from __future__ import annotations

import json
import re
from typing import Any

from artifacts.runner import Finished
from convert.backends.base import Diagnosis
from convert.backends.magicmind.child_job import NO_MODULE
from convert.backends.magicmind.planning import SCRIPT
from convert.errors import CompileFailed
from convert.values import Note

DONE = re.compile(r"^magicmind_job: done (\{.*\})\s*$", re.MULTILINE)
FAILED = re.compile(r"^magicmind_job: failed: (.{1,2000})$", re.MULTILINE)
AGAIN = re.compile(r"^magicmind_job: the builder (.{1,200}); trying again with (.{1,200})$", re.MULTILINE)
SIGNALLED = 128


def done(log: str) -> dict[str, Any] | None:
    """What a job that came to its end did; None where it didn't."""
    found = DONE.findall(log)
    return json.loads(found[-1]) if found else None


def failure_of(finished: Finished, log: str) -> str:
    """In words, how a job failed; empty where it came to its end."""
    code = finished.returncode
    if code == 0 and done(log) is not None:
        return ""
    told = FAILED.findall(log)
    if code == 0:
        return f"{SCRIPT} ended with exit code 0, and without its closing line"
    if code == NO_MODULE:
        return "this Python can't import magicmind"
    if code < 0 or code > SIGNALLED:
        return f"MagicMind was ended by signal {-code if code < 0 else code - SIGNALLED}"
    return told[-1].strip() if told else f"{SCRIPT} ended with exit code {code}"


def notes_of(log: str) -> tuple[Note, ...]:
    """What a build did that its user should know."""
    notes = []
    said = done(log) or {}
    if again := AGAIN.findall(log):
        text = f"the builder {again[-1][0]}, so the artifact was built with {again[-1][1]}: fusion off costs speed"
        notes.append(Note(level="warning", text=text))
    if said.get("calibrated"):
        notes.append(Note(text=f"calibrated on {said['calibrated']} samples"))
    if said.get("left_out"):
        text = f"{said['left_out']} inputs to calibrate with were left out: their shapes are not those of the first"
        notes.append(Note(level="warning", text=text))
    return tuple(notes)


def own_diagnosis(log: str) -> Diagnosis | None:
    """What the script itself says went wrong; None where MagicMind's messages must tell."""
    told = FAILED.findall(log)
    text = told[-1].strip() if told else ""
    if "no node called" in text:
        return Diagnosis(
            code="CNV-7221",
            cause=f"MagicMind gave the nodes to keep in float32 other names: {text}",
            hint="take --precision fp32, or fp16 where its forecast keeps the gate",
        )
    if "no calibration data fits" in text:
        return Diagnosis(
            code="CNV-7222",
            cause=text,
            hint="each file of --calibration must hold every input by its name",
        )
    if "Invalid dev id" in text:
        return Diagnosis(
            code="CNV-7223",
            cause=f"there is no such card to calibrate on ({text})",
            hint="look at `cnmon` and MLU_VISIBLE_DEVICES, or name another machine: --option rpc_server=ADDRESS:9009",
        )
    return None


def does_not_run(target: str, failure: str) -> CompileFailed:
    """The error for an artifact that does not run on its card."""
    return CompileFailed(
        "CNV-7005",
        f"the artifact for {target} does not run: {failure}",
        hint="the samples must fit the sizes that it was built for, and integer inputs their meaning (ids in range)",
    )
