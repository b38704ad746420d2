"""``convert bench ARTIFACT``: are the outputs right, and how fast does it give them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from artifacts.render import echo
from convert.commands.accepting import (
    ARTIFACT,
    about,
    headline,
    opened_session,
    print_speeds,
    show_dry_run,
    teller,
)
from convert.commands.options import LOADING, add_options, load_options
from convert.gate import parse_gate
from convert.report.text import metrics_table, verdict_text

if TYPE_CHECKING:
    from convert.acceptance.session import Session
    from convert.acceptance.values import Bench, TorchRun
    from convert.errors import GateFailed

BENCH = (
    click.option("--runs", type=click.IntRange(1), default=100, show_default=True, help="Runs that are timed."),
    click.option("--warmup", type=click.IntRange(0), default=5, show_default=True, help="Runs before those."),
    click.option(
        "--torch", "torch_model", metavar="MODEL", help="The PyTorch model, to be timed and compared beside it."
    ),
    click.option(
        "--torch-device",
        metavar="NAME",
        help="Where the PyTorch model runs: auto, npu, mlu, cuda, cpu.  [default: auto; alone, it makes ARTIFACT one]",
    ),
)
SHARED = {"inputs", "dims", "samples", "seed"}
TORCH = tuple(option for option, name in zip(LOADING, (
    "inputs", "dims", "samples", "calibration", "factory", "factory_args", "allow_pickle", "seed",
), strict=True) if name not in {*SHARED, "calibration"})  # fmt: skip


@click.command("bench", context_settings={"max_content_width": 110})
@click.argument("artifact", type=click.Path())
@add_options(BENCH, ARTIFACT, TORCH)
def command(artifact: str, as_json: bool, quiet: bool, **given: Any) -> int:
    """Run ARTIFACT on its samples: outputs against the reference, then latency and throughput.

    ARTIFACT is the folder OUT/NAME/TARGET of a conversion, one that `artifacts pull` made, an .onnx file for the cpu,
    or a reference NAME:VERSION of the registry. With --torch-device and no --torch it is a PyTorch model, which is run
    on that device and compared with the CPU. Exits 8 where outputs differ beyond the gate.
    """
    tell = teller(quiet)
    if given["torch_device"] and not given["torch_model"]:
        return _torch_alone(artifact, given, as_json=as_json, tell=tell)
    with opened_session(artifact, given) as session:
        if given["dry_run"]:
            steps = ["compare the outputs of every sample", f"time {given['runs']} runs after {given['warmup']}"]
            return show_dry_run(session, steps, as_json=as_json)
        from convert.acceptance.bench import bench_artifact, differs, torch_differs

        found = bench_artifact(session, runs=given["runs"], warmup=given["warmup"], tell=tell)
        if given["torch_model"]:
            tell("torch: the PyTorch model beside it")
            found = msgspec.structs.replace(found, torch=run_torch(given["torch_model"], given))
        error = (differs(found.accuracy, session.opened.name) if found.accuracy else None) or torch_differs(found.torch)
        if as_json:
            _print_json({"artifact": about(session)}, found, error)
        else:
            _print(session, found)
    return _end(error, as_json=as_json)


def _torch_alone(model: str, given: dict[str, Any], *, as_json: bool, tell: Any) -> int:
    from convert.acceptance.bench import torch_differs
    from convert.acceptance.values import Bench

    tell("torch: loading, then every sample on the CPU and on the device")
    found = Bench(torch=run_torch(model, given))
    error = torch_differs(found.torch)
    if as_json:
        _print_json({"artifact": None}, found, error)
    else:
        _print_torch(found)
    return _end(error, as_json=as_json)


def run_torch(model: str, given: dict[str, Any]) -> TorchRun:
    """Run the PyTorch model in a worker of its own."""
    from convert.acceptance.bench import run_torch_model

    settings = {name: given[name] or None for name in ("timeout", "memory")}
    load = load_options(str(Path(model)), {**given, "calibration": None})
    return run_torch_model(
        load,
        device=given["torch_device"] or "auto",
        runs=given["runs"],
        warmup=given["warmup"],
        gate=parse_gate(given["gates"]),
        settings=settings,
    )


def _print_json(head: dict[str, Any], found: Bench, error: GateFailed | None) -> None:
    passed = error is None
    document = {"schema": 1, **head, "passed": passed, **msgspec.to_builtins(found)}
    echo(msgspec.json.encode({**document, "error": error.as_json() if error else None}).decode())


def _end(error: GateFailed | None, *, as_json: bool) -> int:
    if error is None:
        return 0
    if as_json:
        return error.exit_code
    raise error


def _print(session: Session, found: Bench) -> None:
    echo(headline(session))
    accuracy = found.accuracy
    if accuracy is not None:
        device = f" ({accuracy.device})" if accuracy.device else ""
        if accuracy.verdict is None:
            echo(f"outputs not judged: no reference outputs are kept with it; ran on {accuracy.ran_on}{device}")
        else:
            echo(f"{verdict_text(accuracy.verdict, accuracy.judged_as)}\nran on {accuracy.ran_on}{device}")
            echo(metrics_table(accuracy.outputs))
    rows = [(session.opened.artifact.target, found.speed), ("by the vendor's tool", found.vendor)]
    if found.torch is not None:
        rows.append((f"torch on {found.torch.card or found.torch.device}", found.torch.speed))
    print_speeds([(name, speed) for name, speed in rows if speed is not None])
    if found.torch is not None:
        _print_verdict(found.torch)
    for note in (*session.opened.notes, *found.notes):
        echo(f"{note.level}: {note.text}")


def _print_torch(found: Bench) -> None:
    assert found.torch is not None
    print_speeds([(f"torch on {found.torch.card or found.torch.device}", found.torch.speed)])
    _print_verdict(found.torch)
    echo(metrics_table(found.torch.outputs))


def _print_verdict(run: TorchRun) -> None:
    state = "keep" if run.verdict.passed else "BREAK"
    echo(f"torch on {run.device}: its outputs {state} the {run.judged_as} gate, compared with those on the CPU")
