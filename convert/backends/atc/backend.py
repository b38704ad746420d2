"""The protocol of a backend, for ATC: one short method per question."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from convert.backends.atc.amct import SCRIPT, wants_amct, write_data
from convert.backends.atc.compiling import compile_plan
from convert.backends.atc.plan import make_plan
from convert.backends.atc.precheck import PreCheck, precheck
from convert.backends.atc.probe import ASSUMED, NAME, probe_cann
from convert.backends.base import CannotRun, Compiled, Diagnosis, Missing, Ran, Runner, RunRequest, Timing, Toolchain
from convert.values import CompileOptions, OnnxGraph, Plan
from op_registry.values import Target

if TYPE_CHECKING:
    from convert.backends.base import Array, Feeds
    from convert.backends.preprocess import Preprocess


class AtcBackend:
    """ATC of CANN 5.1 to 9.2: ``.onnx`` to ``.om``."""

    name = "atc"

    def probe(self, target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
        """The toolkit on this machine, its flags, its card, and what its Python lacks."""
        return probe_cann(target, environment)

    def assumed(self) -> Toolchain:
        """The version whose operators are assumed, too."""
        return Toolchain(name=NAME, version=ASSUMED, assumed=True)

    def plan(self, graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
        """One call of atc. Raises UsageError CNV-2072 and CNV-2201 to CNV-2207."""
        return make_plan(graph, target, options, toolchain)

    def lacks(self, graph: OnnxGraph, options: CompileOptions, found: Toolchain) -> Missing | None:
        """What of a request the toolkit that is here can't do: int8 is calibrated by AMCT, a package of its own."""
        if not wants_amct(graph, options) or found.details.get("amct", "yes") == "yes":
            return None
        return Missing(
            name="AMCT",
            reason="amct_onnx is not on PATH",
            hint="install the AMCT wheel of this CANN (amct_onnx) and build its custom operators, or take fp16",
            version=found.version,
        )

    def prepare(self, plan: Plan, graph: OnnxGraph, folder: Path) -> None:
        """Put the data to calibrate with into a working folder. Raises UsageError CNV-2288 where it does not fit."""
        if SCRIPT in plan.files:
            write_data(graph, folder)

    def compile(self, plan: Plan, graph: OnnxGraph, folder: Path, runner: Runner) -> Compiled:
        """Run it. Three signs say that it succeeded."""
        self.prepare(plan, graph, folder)
        return compile_plan(plan, folder, runner, os.environ)

    def precheck(self, plan: Plan, graph: OnnxGraph, folder: Path, runner: Runner) -> PreCheck:
        """The toolkit's own word on every operator, in a few seconds and without compiling."""
        return precheck(plan, folder, runner)

    def run(self, request: RunRequest, feeds: Feeds, runner: Runner) -> Ran | CannotRun:
        """Run it on this machine's card."""
        from convert.backends.atc.running import run_artifact

        return run_artifact(request, feeds, runner, os.environ)

    def timing(
        self, request: RunRequest, feed: Mapping[str, Array], runner: Runner, *, warmup: int, runs: int
    ) -> Timing | None:
        """What ais_bench says, where it is installed."""
        from convert.backends.atc.running import time_artifact

        return time_artifact(request, feed, runner, warmup=warmup, runs=runs)

    def image_values(self, images: Array, how: Preprocess) -> Array:
        """What the artifact's preprocessing makes of 8-bit images: the graph is fed with the same."""
        from convert.backends.atc.aipp import aipp_values

        return aipp_values(images, how)

    def device_files(self, plan: Plan, graph: OnnxGraph) -> dict[str, str]:
        """What a handoff bundle carries to measure the artifact where its card is."""
        from convert.backends.atc.running import device_files

        return device_files(plan, graph)

    def diagnose(self, log: str, plan: Plan) -> Diagnosis:
        """The tables of Ascend's errors, in both wordings."""
        from convert.diagnosis import read_log

        return read_log("atc", log)
