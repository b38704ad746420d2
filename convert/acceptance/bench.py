"""``convert bench``: the outputs first, then the times. A fast artifact with wrong outputs is not fast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from artifacts.scratch import temporary_folder
from convert.acceptance.session import Session, died
from convert.acceptance.speed import speed_of
from convert.acceptance.values import Accuracy, Bench, Speed, TorchRun
from convert.errors import GateFailed
from convert.host import Limits, StageHost, WorkerDied
from convert.settings import load_settings, stage_limits
from convert.values import LoadOptions, Note

DISK = 1 << 30
"""Bytes of inputs that one pass may put on disk: programs of a vendor get each run's inputs as a file."""


def bench_artifact(session: Session, *, runs: int, warmup: int, tell: Callable[[str], None]) -> Bench:
    """Judge the outputs, warm up, and time ``runs`` runs one after another.

    Raises what running raises: ToolchainMissing CNV-6002, CompileFailed CNV-7005, GateFailed CNV-8122, ResourceLimit.
    A verdict that failed is no error here: it stands in the result.
    """
    tell("outputs: every sample once")
    accuracy = session.accuracy()
    notes: tuple[Note, ...] = ()
    fit = max(session.samples, DISK // max(1, session.prepared.sample_bytes) - warmup)
    if runs > fit:
        notes = (Note(text=f"{fit} runs instead of {runs}: the inputs of more would take over 1 GiB of disk"),)
    tell(f"times: {warmup} runs to warm up, then {min(runs, fit)}")
    speed = timed(session, runs=min(runs, fit), warmup=warmup)
    vendor = session.ask_vendor(runs=min(runs, fit), warmup=warmup)
    return Bench(accuracy=accuracy, speed=speed, vendor=vendor, notes=(*notes, *_clock_note(speed)))


def timed(session: Session, *, runs: int, warmup: int) -> Speed:
    """The speed of a pass whose outputs are compared with the first ones. Raises GateFailed CNV-8123 as they differ."""
    ran = session.run(session.job(runs=runs, warmup=warmup))
    if ran.broken >= 0:
        raise unsteady(ran.broken, ran.failures)
    return speed_of(ran, warmup=warmup)


def unsteady(run: int, failures: tuple[str, ...]) -> GateFailed:
    """The error for an output that differs from the first one of the same input."""
    shown = "; ".join(failures[:2])
    return GateFailed(
        "CNV-8123",
        f"run {run} gave another answer than the first run on the same input: {shown}",
        hint="look at the card's health (`convert doctor`), its temperature and its memory errors; if the artifact"
        " is random by design, it can't be accepted like this",
    )


def _clock_note(speed: Speed) -> tuple[Note, ...]:
    if speed.clock != "process":
        return ()
    what = "each run is a process of its own" if speed.p50 else "there is one process for all runs"
    text = f"{what}, and the times have its start and the loading of the artifact in them: they say little of the card"
    return (Note(level="warning", text=text),)


def differs(accuracy: Accuracy, subject: str) -> GateFailed | None:
    """The error of a verdict that failed, with a code of its own; None where it passed or nothing was judged."""
    if accuracy.verdict is None or accuracy.verdict.passed:
        return None
    shown = "; ".join(accuracy.verdict.failures[:3])
    return GateFailed(
        "CNV-8124",
        f"{subject} differs from its reference outputs beyond the gate: {shown}",
        hint="the card, its driver or its toolkit give other numbers than those it was validated with: `convert doctor`"
        " looks at what belongs together; if the difference is acceptable, say so with --gate METRIC=VALUE",
    )


# --------------------------------------------------------------------------------------------------- the PyTorch model


def run_torch_model(
    load: LoadOptions,
    *,
    device: str,
    runs: int,
    warmup: int,
    gate: dict[str, float],
    settings: dict[str, Any],
) -> TorchRun:
    """Run a PyTorch model on a device, in a worker of its own.

    Raises what loading it raises, UsageError CNV-2284 and CNV-2285, and GateFailed CNV-8122 where it crashes.
    """
    told = load_settings(settings)
    options = {"load": msgspec.to_builtins(load), "device": device, "runs": runs, "warmup": warmup, "gate": gate}
    with temporary_folder("convert-torch") as folder:
        with StageHost(Path(folder) / "workers.log", preload=("numpy",)) as host, host.worker() as worker:
            try:
                answer = worker.call(
                    "convert.acceptance.torch_baseline:run_on_device",
                    options,
                    str(Path(folder) / "model"),
                    limits=Limits(**stage_limits(told)),
                )
            except WorkerDied as death:
                raise died(death) from death
        return msgspec.json.decode(answer.value, type=TorchRun)


def torch_differs(run: TorchRun | None) -> GateFailed | None:
    """The error for a PyTorch model whose outputs on a device are not those on the CPU; None where they are."""
    if run is None or run.verdict.passed:
        return None
    return GateFailed(
        "CNV-8127",
        f"the PyTorch model gives other outputs on {run.device} than on the CPU: {'; '.join(run.verdict.failures[:3])}",
        hint="it is torch on this card that differs, not the artifact: look at its versions with `convert doctor`",
    )
