"""What ``bench``, ``soak`` and ``accept`` share: their options, opening what they are given, and printing times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from artifacts.render import echo, place_of, print_table
from artifacts.scratch import temporary_folder
from convert.gate import parse_gate
from convert.settings import Settings, load_settings, stage_limits

if TYPE_CHECKING:
    from convert.acceptance.session import Session, Workshop
    from convert.acceptance.values import Opened, Prepared, Speed

ARTIFACT = (
    click.option("--target", "-t", metavar="NAME", default="", help="The target, of a reference or an .onnx file."),
    click.option("--soc", metavar="NAME", default="", help="The exact SoC, where a target of a reference has several."),
    click.option("--registry", metavar="R", help="A registry folder or oci://HOST/PROJECT, for a reference."),
    click.option(
        "--samples", metavar="PATH", help="Inputs of your own: .npz, a folder of them, or samples.zip with outputs."
    ),
    click.option("--input", "inputs", multiple=True, metavar="SPEC", help="Ranges of made-up inputs: 'ids:…{0..99}'."),
    click.option("--dim", "dims", multiple=True, metavar="NAME=SIZES", help="Sizes of made-up inputs: N=8."),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of made-up inputs."),
    click.option("--gate", "gates", multiple=True, metavar="METRIC=VALUE", help="Replace a threshold; repeatable."),
    click.option("--timeout", type=float, metavar="S", help="Seconds that one pass over the inputs may take."),
    click.option("--memory", metavar="SIZE", help="Memory that a run may use, such as 8GB."),
    click.option("--launcher", metavar="TEXT", help="What programs that run the artifact are started with."),
    click.option("--dry-run", is_flag=True, help="Say what would be run, and run nothing."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout, also on failure."),
    click.option("--quiet", "-q", is_flag=True, help="No progress on stderr."),
)


def teller(quiet: bool) -> Callable[[str], None]:
    """What writes progress to stderr."""
    return (lambda text: None) if quiet else (lambda text: echo(text, err=True))


@contextmanager
def opened_session(place: str, given: dict[str, Any]) -> Iterator[Session]:
    """Open what a user named and make its inputs ready; workers end with the block."""
    with opened_artifact(place, given) as (shop, opened):
        from convert.acceptance.session import Session

        yield Session(shop, opened, prepared(shop, opened, given), parse_gate(given["gates"]))


@contextmanager
def opened_artifact(place: str, given: dict[str, Any]) -> Iterator[tuple[Workshop, Opened]]:
    """Open what a user named."""
    from convert.acceptance.opening import open_artifact, pull_with
    from convert.acceptance.session import Workshop
    from convert.launcher import parse_launcher

    settings = load_settings({name: given[name] or None for name in ("registry", "timeout", "memory", "launcher")})
    registry, text = settings.registry, place
    if place.startswith("oci://"):
        _, registry, text = place_of("", place)
    with temporary_folder("convert-accept") as scratch:
        work = Path(scratch)
        limits = _limits(settings, parse_launcher(settings.launcher))
        with Workshop(work, limits) as shop:
            pull = pull_with(registry, target=given["target"], soc=given["soc"])
            opened = open_artifact(text, target=given["target"], pull=pull, outline=shop.outline, work=work)
            yield shop, msgspec.structs.replace(opened, registry=registry if opened.ref else "")


def _limits(settings: Settings, launcher: tuple[str, ...]) -> Any:
    from convert.acceptance.session import RunLimits

    return RunLimits(**stage_limits(settings), launcher=launcher)


def prepared(shop: Workshop, opened: Opened, given: dict[str, Any]) -> Prepared:
    """The inputs to run with."""
    from convert.acceptance.values import SampleOptions
    from convert.backends.preprocess import PREPROCESS_FILE
    from convert.commands.options import absolute

    options = SampleOptions(
        given=absolute(given["samples"]),
        kept=opened.kept,
        preprocess=opened.artifact.plan.files.get(PREPROCESS_FILE, ""),
        inputs=given["inputs"],
        dims=given["dims"],
        seed=given["seed"],
    )
    return shop.prepare(opened, options)


def about(session: Session) -> dict[str, Any]:
    """What is run, as ``--json`` has it."""
    opened, artifact = session.opened, session.opened.artifact
    return {
        "name": opened.name,
        "target": artifact.target,
        "soc": artifact.soc,
        "backend": artifact.backend,
        "precision": artifact.precision,
        "path": str(artifact.path(artifact.files[0].name)),
        "sha256": artifact.files[0].sha256,
        "bytes": artifact.files[0].bytes,
        "ref": opened.ref or None,
        "inputs": [msgspec.to_builtins(spec) for spec in opened.graph.inputs],
        "samples": session.samples,
        "sampled": session.prepared.sampled,
        "references": session.prepared.references,
    }


def headline(session: Session) -> str:
    """What is run, in a line."""
    opened, artifact = session.opened, session.opened.artifact
    kind = {"kept": "kept with the artifact", "given": "given", "random": "made up"}[session.prepared.sampled]
    count = f"{session.samples} input{'' if session.samples == 1 else 's'} {kind}"
    exact = f" {artifact.soc}" if artifact.soc and artifact.soc != artifact.target else ""
    return f"{opened.ref or opened.name}  {artifact.target}{exact}  {artifact.precision}  {count}"


def show_dry_run(session: Session, steps: list[str], *, as_json: bool) -> int:
    """Say what would be done."""
    if as_json:
        document = {"schema": 1, "artifact": about(session), "steps": steps, "error": None}
        echo(msgspec.json.encode(document).decode())
        return 0
    echo(headline(session))
    for step in steps:
        echo(f"would {step}")
    return 0


def print_speeds(rows: list[tuple[str, Speed]]) -> None:
    """Times side by side."""
    columns = ("what", "median ms", "p90", "p99", "mean", "runs/s", "runs", "clock")
    print_table(columns, [_row(name, speed) for name, speed in rows])


def _row(name: str, speed: Speed) -> tuple[str, ...]:
    times = (speed.p50, speed.p90, speed.p99, speed.mean)
    shown = tuple(f"{value:.3f}" if value else "–" for value in times)
    return (name, *shown, f"{speed.per_second:.1f}", str(speed.runs), speed.tool or speed.clock)
