"""``atc --mode=3``: the toolkit's own word on every operator, before anything is compiled.

It writes ``check_result.json`` (hicann/ge parser/common/pre_checker): per model an ``op`` list with name, type
(``ai.onnx::13::Resize``), result, and causes with code and message.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from artifacts.runner import Finished
from convert.backends.atc.compiling import command
from convert.backends.base import MODEL_IN, Runner
from convert.values import Plan
from op_registry.values import Judged

REPORT = "check_result.json"
LOG = "precheck.log"
MOST = 64 << 20
KEPT = ("framework", "soc_version", "log")
KIND = re.compile(r"^(?:(?P<domain>.*)::)?(?P<opset>\d+)::(?P<op>[^:]+)$")
UNPARSED = re.compile(r"No parser is registered for Op \[(?P<node>.+?), optype \[(?P<kind>.+?)\]\]")
UNPLUGGED = re.compile(
    r"No operator plugin is registered for Op: (?P<node>.+?), optype: (?P<kind>\S+?)\.?$", re.MULTILINE
)
SOURCE = "atc --mode=3 of CANN {version}"


class PreCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What the toolkit refuses. ``ran`` is false where it gave no report; ``failure`` then says why."""

    judged: tuple[Judged, ...] = ()
    ran: bool = False
    failure: str = ""
    finished: Finished | None = None


def precheck(plan: Plan, folder: Path, runner: Runner) -> PreCheck:
    """Ask the toolkit which nodes it refuses. ``folder`` is a working folder with the graph in ``model/``."""
    (folder / REPORT).unlink(missing_ok=True)
    argv, added = command(plan, os.environ)
    wanted = tuple(word for word in argv[1:] if word[2:].partition("=")[0] in KEPT)
    finished = runner(
        # The graph itself: for int8 the plan compiles what AMCT will make of it.
        (argv[0], "--mode=3", f"--model={MODEL_IN}", *wanted, f"--check_report={REPORT}"),
        environment={**plan.environment, **added},
        log=LOG,
    )
    path, log = folder / REPORT, folder / LOG
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    source = SOURCE.format(version=plan.needs.get("version", ""))
    judged = {one.node: one for one in refused_in_log(text, source)}
    if path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST:
        judged |= {one.node: one for one in refused_in_report(path.read_bytes(), source)}
        return PreCheck(judged=tuple(judged.values()), ran=True, finished=finished)
    failure = f"atc --mode=3 ended with exit code {finished.returncode} and left no {REPORT}"
    return PreCheck(judged=tuple(judged.values()), ran=bool(judged), failure=failure, finished=finished)


def refused_in_report(content: bytes, source: str) -> list[Judged]:
    """The refused nodes of a ``check_result.json``; nothing for a file that is no such report."""
    try:
        report = json.loads(content)
    except (ValueError, RecursionError):
        return []
    found = []
    for op in _ops(report):
        if op.get("result") != "failed":
            continue
        causes = op.get("cause")
        told = [str(cause.get("message", "")) for cause in _objects(causes)] or ["refused by the parser"]
        found.append(_judged(str(op.get("name", "")), str(op.get("type", "")), "; ".join(told)[:500], source))
    return found


def refused_in_log(text: str, source: str) -> list[Judged]:
    """The refused nodes that a log names, in both wordings (E19010 and E13010)."""
    matches = [*UNPARSED.finditer(text), *UNPLUGGED.finditer(text)]
    return [_judged(match["node"], match["kind"], "no parser is registered for it", source) for match in matches]


def _ops(report: Any) -> Iterable[dict[str, Any]]:
    """Every entry of an ``op`` list, wherever the version puts it."""
    models = [report] if isinstance(report, dict) else report
    for model in _objects(models):
        nested = [model, *_objects(list(model.values()))]
        for holder in nested:
            yield from _objects(holder.get("op"))


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _judged(node: str, kind: str, reason: str, source: str) -> Judged:
    match = KIND.match(kind)
    return Judged(
        op=match["op"] if match else kind,
        node=node,
        state="refused",
        grade="measured",
        reason=f"{reason} (opset {match['opset']})" if match else reason,
        source=source,
        hint="export at another opset (11 to 18), replace the operator, or install the plug-in that parses it",
    )
