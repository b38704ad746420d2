"""The ``magicmind`` backend: one class that puts the parts together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from convert.backends.base import (
    LOG,
    CannotRun,
    Compiled,
    Diagnosis,
    Missing,
    Ran,
    Runner,
    RunRequest,
    Timing,
    Toolchain,
)
from convert.backends.children import link_files
from convert.backends.magicmind.outcome import failure_of, notes_of, own_diagnosis
from convert.backends.magicmind.planning import NAME, SETTINGS, make_plan
from convert.backends.magicmind.probing import probe
from convert.backends.magicmind.running import device_files, run_artifact, time_artifact
from convert.backends.magicmind.versions import ASSUMED
from convert.values import CompileOptions, OnnxGraph, Plan
from op_registry.values import Target

if TYPE_CHECKING:
    from convert.backends.base import Array, Feeds


class MagicmindBackend:
    """Cambricon's MagicMind, by its Python package in the SDK's own interpreter."""

    name = NAME

    def probe(self, target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
        """The Python that can import magicmind; a card isn't needed to compile."""
        return probe(target, environment)

    def assumed(self) -> Toolchain:
        """The newest release of which anything is public."""
        return Toolchain(name="MagicMind", version=ASSUMED, assumed=True)

    def plan(self, graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
        """See :func:`convert.backends.magicmind.planning.make_plan`."""
        return make_plan(graph, target, options, toolchain)

    def prepare(self, plan: Plan, graph: OnnxGraph, folder: Path) -> None:
        """Put into a working folder what the plan calibrates with."""
        link_files(graph, _calibration(plan), folder)

    def device_files(self, plan: Plan, graph: OnnxGraph) -> dict[str, str]:
        """The script that measures the artifact on its card, for a handoff bundle."""
        return device_files(plan, graph)

    def compile(self, plan: Plan, graph: OnnxGraph, folder: Path, runner: Runner) -> Compiled:
        """Run the plan. Its script has come to its end only where it says so."""
        self.prepare(plan, graph, folder)
        finished = runner(plan.argv, environment=plan.environment)
        for name in _calibration(plan):
            (folder / name).unlink(missing_ok=True)
        log = (folder / LOG).read_text(encoding="utf-8", errors="replace") if (folder / LOG).is_file() else ""
        failure = failure_of(finished, log)
        notes = () if failure else notes_of(log)
        return Compiled(files=(plan.output,), failure=failure, finished=finished, notes=notes)

    def run(self, request: RunRequest, feeds: Feeds, runner: Runner) -> Ran | CannotRun:
        """Run on the card of this machine, in the SDK's Python or by ``mm_run``."""
        return run_artifact(request, feeds, runner)

    def timing(
        self, request: RunRequest, feed: Mapping[str, Array], runner: Runner, *, warmup: int, runs: int
    ) -> Timing | None:
        """What ``mm_run`` says of many runs; it warms up by time, not by runs."""
        return time_artifact(request, feed, runner, runs=runs)

    def diagnose(self, log: str, plan: Plan) -> Diagnosis:
        """By what the script itself says, else by the table of MagicMind's messages."""
        from convert.diagnosis import read_log

        return own_diagnosis(log) or read_log("magicmind", log)


def _calibration(plan: Plan) -> list[str]:
    """The graph's files that a plan calibrates with; none for one that doesn't."""
    names: list[str] = json.loads(plan.files[SETTINGS]).get("calibration", {}).get("files", [])
    return names
