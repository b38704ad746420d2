"""Whether a driver did what it was told.

``main`` of migraphx-driver has no handler and no exit code of its own: it gives 0 unless an exception or a fault ends
it. A wrong command, an unknown flag, a missing file, a bad number: all exit 0 (seen with 2.16; the same source since
5.2). So a compile succeeded only where the exit code is 0, no such message stands in the log, and the closing line of
this version is there; that the file exists, is new and is not empty is what the stage looks at.
"""

from __future__ import annotations

import re

from artifacts.runner import Finished
from convert.backends.migraphx.child_compile import NO_MODULE
from convert.backends.migraphx.planning import SCRIPT
from convert.backends.migraphx.versions import Closing, Dialect
from convert.values import Plan

CLOSING: dict[Closing, re.Pattern[str] | None] = {
    "seconds": re.compile(r"\] Complete\([0-9.e+-]+s\): "),
    "plain": re.compile(r"\] Complete: "),
    "none": None,
    "unknown": None,
}
"""The last line of a command that came to its end. 2.9 (ROCm 6.1) began it, 2.13 (7.0) put the seconds in."""
SCRIPT_CLOSING = re.compile(r"^migraphx_compile: done", re.MULTILINE)
REFUSALS = (
    re.compile(r"Found argument '[^']*' which wasn't expected"),
    re.compile(r"Path does not exist: .*"),
    re.compile(r"The following required arguments were not provided"),
    re.compile(r"Too many arguments passed\."),
    re.compile(r"Flag with no value\."),
    re.compile(r"Failed to parse '[^']*' as .*"),
    re.compile(r"Invalid input to '[^']*'"),
    re.compile(r"'[^']*' is not a valid command"),
    re.compile(r"command '[^']*' must be first argument"),
)
"""What the argument parser says before it ends with exit code 0 (src/driver/argument_parser.hpp)."""
COMPILED_BEFORE = "The program is already compiled, skipping compilation"
WHAT = re.compile(r"what\(\):\s*(.*)")
READING = "Reading: "
ZERO = re.compile(r"[{,]\s*0\s*[,}]|\[0\.\.")


def failure_of(plan: Plan, finished: Finished, log: str, dialect: Dialect) -> str:
    """In words, how a compile failed; empty where the tool says that it succeeded."""
    if finished.returncode:
        return _ended(plan, finished.returncode, log)
    if SCRIPT in plan.argv:
        done = SCRIPT_CLOSING.search(log)
        return "" if done else f"{SCRIPT} ended with exit code 0, and without its closing line"
    for refusal in REFUSALS:
        if found := refusal.search(log):
            return f"migraphx-driver refused its arguments, and ended with exit code 0: {found[0].strip()}"
    if COMPILED_BEFORE in log:
        return "migraphx-driver took the graph for a compiled program, and wrote nothing"
    closing = CLOSING[dialect.closing]
    if closing is not None and not closing.search(log):
        return f"migraphx-driver ended with exit code 0, and without the closing line of {dialect.text}"
    if not dialect.fork and READING not in log:
        return "migraphx-driver ended with exit code 0, and read no file"
    return ""


def _ended(plan: Plan, code: int, log: str) -> str:
    if SCRIPT in plan.argv and code == NO_MODULE:
        return (
            f"{plan.argv[0]} has no module migraphx, which int8 and fp8 are calibrated with: install it, or name the"
            " Python that has it in CONVERT_MIGRAPHX_PYTHON"
        )
    if code in (-11, 139):
        return "migraphx-driver ended with a memory fault (SIGSEGV), without a word"
    told = WHAT.findall(log)
    by = "SIGABRT" if code in (-6, 134) else f"exit code {code}"
    return f"{plan.argv[0]} ended with {by}" + (f": {told[-1].strip()}" if told else "")


def zero_dimension(text: str, names: tuple[str, ...]) -> str:
    """Which input has dimension 0, by what ``migraphx-driver params`` says; empty: none.

    That is how a form of a range that the version does not read shows itself.
    """
    for line in text.splitlines():
        name, colon, shape = line.partition(": ")
        if colon and name.strip() in names and ZERO.search(shape.partition("}")[0] + "}"):
            return name.strip()
    return ""
