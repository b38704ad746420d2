"""Running an artifact on a card: through MagicMind's Python in a child process, else through ``mm_run``.

Outputs are paired by order. A range of sizes is run by giving each input its own shape. What of that an artifact can't
be run on is looked at before anything is started: the arch of the card, and its clusters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.cards import Card
from convert.backends.asking import cards_of, find_program, hidden_by
from convert.backends.base import CannotRun, Missing, Ran, Runner, RunRequest, Timing, Toolchain
from convert.backends.children import read_outputs, sample_pairs, script_text, settings_text, write_feeds
from convert.backends.magicmind.cards import too_few
from convert.backends.magicmind.mm_run import run_by_tool, time_by_tool
from convert.backends.magicmind.outcome import does_not_run, done, failure_of
from convert.backends.magicmind.planning import PACKAGE, SETTINGS
from convert.backends.magicmind.probing import home_of, probe
from convert.backends.magicmind.shapes import transposes
from convert.backends.magicmind.versions import level_of
from convert.values import Note, OnnxGraph, Plan
from op_registry.targets import find_target
from op_registry.values import Target

if TYPE_CHECKING:
    from convert.backends.base import Array, Feeds

RUN_SCRIPT = "magicmind_run.py"
RUN_SETTINGS = "magicmind_run.json"
LOG = "run.log"
TOOL = "mm_run"


def run_artifact(request: RunRequest, feeds: Feeds, runner: Runner) -> Ran | CannotRun:
    """Run an artifact on every sample.

    Raises :class:`CompileFailed` CNV-7005 where it does not load, or fails while it runs.
    """
    artifact = request.artifact
    target = find_target(artifact.target)
    card = card_of(target, os.environ)
    if isinstance(card, CannotRun):
        return card
    needs = artifact.plan.needs
    counts = [int(text) for text in needs.get("clusters", "").split(",") if text.isdigit()]
    if too_few(counts, card.soc or card.name):
        return CannotRun(
            reason=f"it was built for {needs['clusters']} clusters, and {card.name} has fewer",
            hint="convert again with --option clusters=2,6,8",
        )
    toolchain = probe(target, os.environ)
    if isinstance(toolchain, Missing):
        tool = find_program(TOOL, os.environ, _tool_folders(os.environ))
        if not tool:
            return CannotRun(reason=f"{toolchain.reason}, and there is no {TOOL}", hint=toolchain.hint)
        return run_by_tool(request, feeds, runner, tool=tool, device=card.name, axes=axes_of(artifact.plan))
    count = write_feeds(feeds, request.folder)
    said = _run_script(request, toolchain, count, runner)
    return Ran(
        outputs=read_outputs(request.folder, count),
        ran_on="device",
        device=card.name,
        notes=_version_note(needs.get("version", ""), toolchain),
        seconds=tuple(said.get("seconds", ())),
    )


def time_artifact(request: RunRequest, feed: Mapping[str, Array], runner: Runner, *, runs: int) -> Timing | None:
    """What ``mm_run`` says of an artifact's speed; None where it, or the card, is not here."""
    tool = find_program(TOOL, os.environ, _tool_folders(os.environ))
    if not tool or isinstance(card_of(find_target(request.artifact.target), os.environ), CannotRun):
        return None
    return time_by_tool(request, feed, runner, tool, runs=runs, axes=axes_of(request.artifact.plan))


def card_of(target: Target, environment: Mapping[str, str]) -> Card | CannotRun:
    """The card that a target's artifacts run on here."""
    cards = cards_of(("cambricon",), environment)
    hidden = hidden_by("cambricon", environment)
    if not cards or hidden:
        why = f"{hidden} hides every card" if cards else "cnmon shows no card here"
        return CannotRun(reason=why, hint=f"validate on a machine that has {target.name}")
    fitting = [card for card in cards if card.arch == target.arch]
    if not fitting:
        return CannotRun(
            reason=f"the card here is {cards[0].name}, and the artifact is for {target.arch}",
            hint=f"validate on a machine that has {target.name}",
        )
    return next((card for card in fitting if target.name in (card.target, card.soc)), fitting[0])


def axes_of(plan: Plan) -> dict[str, dict[str, list[int]]]:
    """By place, how inputs and outputs of the graph are turned for the artifact."""
    config = json.loads(plan.files[SETTINGS])["config"] if SETTINGS in plan.files else {}
    return {
        "input_axes": transposes(config, "convert_input_layout"),
        "output_axes": transposes(config, "convert_output_layout"),
    }


def run_settings(plan: Plan, graph: OnnxGraph, artifact: str, samples: list[list[str]]) -> dict[str, Any]:
    """What the script is told. ``samples``: per sample the file to read and the file to write."""
    names = [spec.name for spec in graph.inputs]
    return {"artifact": artifact, "samples": samples, "inputs": names, "device": 0, **axes_of(plan)}


def device_files(plan: Plan, graph: OnnxGraph) -> dict[str, str]:
    """What measures an artifact where its card is, for a handoff bundle: ``python3 magicmind_run.py`` in its folder."""
    pairs = [[f"samples/{number:03d}.npz", f"measured/{number:03d}.npz"] for number in range(graph.sample_count)]
    return {
        RUN_SCRIPT: script_text(PACKAGE, "child_job"),
        RUN_SETTINGS: settings_text(run_settings(plan, graph, f"out/{plan.output}", pairs)),
    }


def _run_script(request: RunRequest, toolchain: Toolchain, count: int, runner: Runner) -> dict[str, Any]:
    """Run the samples; gives what the script says that it did. Raises CompileFailed CNV-7005."""
    artifact = request.artifact
    path = str(artifact.path(artifact.files[0].name).resolve())
    settings = run_settings(artifact.plan, request.graph, path, sample_pairs(count))
    (request.folder / RUN_SETTINGS).write_text(settings_text(settings), encoding="utf-8")
    (request.folder / RUN_SCRIPT).write_text(script_text(PACKAGE, "child_job"), encoding="utf-8")
    finished = runner((toolchain.details["program"], RUN_SCRIPT, "run", RUN_SETTINGS), log=LOG)
    log = request.folder / LOG
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    failure = failure_of(finished, text)
    if failure or finished.timed_out:
        raise does_not_run(artifact.target, "it took too long" if finished.timed_out else failure)
    return done(text) or {}


def _version_note(built: str, toolchain: Toolchain) -> tuple[Note, ...]:
    if not built or level_of(built) == level_of(toolchain.version):
        return ()
    text = f"built with MagicMind {built} and run with {toolchain.version}: artifacts are of one version (CNStream)"
    return (Note(level="warning", text=text),)


def _tool_folders(environment: Mapping[str, str]) -> tuple[str, ...]:
    home = home_of(environment)
    return (str(Path(home) / "bin"),) if home else ()
