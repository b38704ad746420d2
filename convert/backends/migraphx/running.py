"""Running an artifact: through the migraphx module, in a child process, since the driver prints no outputs.

An .mxr is tied to the format of its MIGraphX and, on a card, to the arch that it was compiled on; nothing checks the
latter at load. Both are looked at here, before anything is started.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from convert.backends.base import CannotRun, Missing, Ran, Runner, RunRequest, Toolchain
from convert.backends.children import TIMES, read_outputs, sample_pairs, script_text, settings_text, write_feeds
from convert.backends.migraphx.child_run import NO_MODULE
from convert.backends.migraphx.planning import DRIVER, PACKAGE, REFERENCE_ARCH
from convert.backends.migraphx.probing import probe
from convert.backends.migraphx.versions import dialect_of
from convert.errors import CompileFailed
from convert.values import Note, OnnxGraph, Plan
from op_registry.targets import find_target

if TYPE_CHECKING:
    from convert.backends.base import Array, Feeds

SCRIPT = "migraphx_run.py"
SETTINGS = "migraphx_run.json"
LOG = "run.log"
DONE = re.compile(r"^migraphx_run: done", re.MULTILINE)


def run_artifact(request: RunRequest, feeds: Feeds, runner: Runner) -> Ran | CannotRun:
    """Run an artifact on every sample.

    Raises :class:`CompileFailed` CNV-7005 where it does not load, or fails while it runs.
    """
    artifact = request.artifact
    toolchain = probe(find_target(artifact.target), os.environ)
    if isinstance(toolchain, Missing):
        return CannotRun(reason=toolchain.reason, hint=toolchain.hint)
    if reason := unfit(artifact.plan, toolchain):
        return CannotRun(reason=reason, hint="compile it again here: an .mxr is tied to the version and the arch")
    count = write_feeds(feeds, request.folder)
    _write_script(request, count)
    failure = _run_script(request, toolchain, runner)
    if failure is not None:
        return failure
    on_card = artifact.plan.needs.get("arch") != REFERENCE_ARCH
    return Ran(
        outputs=_outputs(request, count),
        ran_on="device" if on_card else "simulator",
        device=toolchain.details.get("card") or toolchain.details.get("arch") or "MIGraphX's reference target",
        notes=_version_note(artifact.plan, toolchain),
    )


def unfit(plan: Plan, toolchain: Toolchain) -> str:
    """Why an artifact can't be loaded by a toolchain, by what its plan needs; empty: nothing speaks against it."""
    needs = plan.needs
    fork = toolchain.details.get("flavour") == "dtk"
    here = dialect_of(toolchain.version, fork=fork)
    if (needs.get("toolchain") == "DTK") != fork:
        return f"it was compiled by the MIGraphX of {needs.get('toolchain')}, and {toolchain.version} is another's"
    if needs.get("mxr") and here.file_version and needs["mxr"] != str(here.file_version):
        return (
            f"MIGraphX {needs['version']} writes file version {needs['mxr']}, and {toolchain.version} reads"
            f" {here.file_version} only"
        )
    arch = toolchain.details.get("arch", REFERENCE_ARCH)
    if needs.get("arch") and needs["arch"] != arch:
        return f"it was compiled for {needs['arch']}, and the card here is {arch}"
    return ""


def _version_note(plan: Plan, toolchain: Toolchain) -> tuple[Note, ...]:
    here = dialect_of(toolchain.version, fork=toolchain.details.get("flavour") == "dtk").text
    compiled = plan.needs.get("version", here)
    if compiled == here:
        return ()
    text = f"compiled with MIGraphX {compiled} and run with {here}: the file fits, kernels may differ"
    return (Note(level="warning", text=text),)


def _write_script(request: RunRequest, count: int) -> None:
    artifact = request.artifact
    path = str(artifact.path(artifact.files[0].name).resolve())
    settings = {**run_settings(artifact.plan, path, sample_pairs(count)), "times": TIMES}
    (request.folder / SETTINGS).write_text(settings_text(settings), encoding="utf-8")
    (request.folder / SCRIPT).write_text(script_text(PACKAGE, "child_run"), encoding="utf-8")


def run_settings(plan: Plan, artifact: str, samples: list[list[str]]) -> dict[str, Any]:
    """What the script is told. ``samples``: per sample the file to read and the file to write."""
    return {
        "artifact": artifact,
        "samples": samples,
        "host": plan.needs.get("arch") == REFERENCE_ARCH or offload_copy(plan),
        "reshape": plan.environment.get("MIGRAPHX_DYNAMIC_SHAPE") == "1",
    }


def device_files(plan: Plan, graph: OnnxGraph) -> dict[str, str]:
    """What measures an artifact where its card is, for a handoff bundle: ``python3 migraphx_run.py`` in its folder."""
    pairs = [[f"samples/{number:03d}.npz", f"measured/{number:03d}.npz"] for number in range(graph.sample_count)]
    return {
        SCRIPT: script_text(PACKAGE, "child_run"),
        SETTINGS: settings_text(run_settings(plan, f"out/{plan.output}", pairs)),
    }


def offload_copy(plan: Plan) -> bool:
    """Whether a plan's artifact copies its inputs and outputs itself."""
    if plan.argv[0].endswith(DRIVER):
        return "--enable-offload-copy" in plan.argv
    return any('"offload_copy": true' in text for text in plan.files.values())


def _run_script(request: RunRequest, toolchain: Toolchain, runner: Runner) -> CannotRun | None:
    """Run the script; None where it came to its end. Raises CompileFailed CNV-7005."""
    details = toolchain.details
    kept = ("MIGRAPHX_DYNAMIC_SHAPE",)
    environment = {key: value for key, value in request.artifact.plan.environment.items() if key in kept}
    if details.get("pythonpath"):
        inherited = os.environ.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = ":".join(part for part in (details["pythonpath"], inherited) if part)
    finished = runner((details.get("python", "python3"), SCRIPT, SETTINGS), environment=environment, log=LOG)
    log = request.folder / LOG
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    if finished.returncode == NO_MODULE:
        return CannotRun(
            reason=f"{finished.argv[0]} has no module migraphx",
            hint="install it, or name the Python that has it in CONVERT_MIGRAPHX_PYTHON",
        )
    if finished.returncode or not DONE.search(text):
        told = [line.replace("what():", "").strip() for line in text.splitlines() if line.strip()]
        ended = "took too long" if finished.timed_out else f"ended with exit code {finished.returncode}"
        raise CompileFailed(
            "CNV-7005",
            f"the artifact for {request.artifact.target} does not run ({ended}): {told[-1] if told else 'no message'}",
            hint="the samples must fit the sizes that it was compiled for, and the card must be the one of its arch",
        )
    return None


def _outputs(request: RunRequest, count: int) -> Iterator[list[Array]]:
    for outputs in read_outputs(request.folder, count):
        yield scalars(outputs, request.graph)


def scalars(outputs: list[Array], graph: OnnxGraph) -> list[Array]:
    """MIGraphX has no shape of rank 0: what the graph calls a scalar comes as one element, and is made one again."""
    ranks = [len(spec.shape) for spec in graph.outputs]
    return [
        array.reshape(()) if number < len(ranks) and ranks[number] == 0 and array.size == 1 else array
        for number, array in enumerate(outputs)
    ]
