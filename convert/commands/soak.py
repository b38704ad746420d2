"""``convert soak ARTIFACT --for 24h``: does it stay right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from artifacts.render import echo, size_text
from convert.commands.accepting import ARTIFACT, about, headline, opened_session, print_speeds, show_dry_run, teller
from convert.commands.options import add_options
from convert.report.text import metrics_table

if TYPE_CHECKING:
    from convert.acceptance.session import Session
    from convert.acceptance.values import Soak
    from convert.errors import GateFailed

SOAK = (
    click.option("--for", "duration", default="10m", show_default=True, metavar="TIME", help="90s, 10m, 24h, 2d."),
    click.option("--runs", type=click.IntRange(1), metavar="N", help="Stop after this many runs, too."),
    click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes at once."),
)


@click.command("soak", context_settings={"max_content_width": 110})
@click.argument("artifact", type=click.Path())
@add_options(SOAK, ARTIFACT)
def command(artifact: str, as_json: bool, quiet: bool, **given: Any) -> int:
    """Run ARTIFACT over and over: every output must equal the first one of its input, within the gate.

    Stops at the first that does not, and then exits 8. ARTIFACT is what `convert bench` takes.
    """
    from convert.acceptance.bench import unsteady
    from convert.acceptance.soak import parse_duration, soak_artifact

    seconds, tell = parse_duration(given["duration"]), teller(quiet)
    with opened_session(artifact, given) as session:
        if given["dry_run"]:
            steps = [f"run for {seconds:.0f} s in {given['workers']} processes, each output against the first"]
            return show_dry_run(session, steps, as_json=as_json)
        accuracy = session.accuracy()
        found = soak_artifact(
            session, accuracy, seconds=seconds, runs=given["runs"] or 0, workers=given["workers"], tell=tell
        )
        error = None if found.passed else unsteady(found.broken, found.failures)
        if as_json:
            _print_json(session, found, error)
            return error.exit_code if error else 0
        _print(session, found)
    if error:
        raise error
    return 0


def _print_json(session: Session, found: Soak, error: GateFailed | None) -> None:
    document = {"schema": 1, "artifact": about(session), "passed": found.passed, **msgspec.to_builtins(found)}
    echo(msgspec.json.encode({**document, "error": error.as_json() if error else None}).decode())


def _print(session: Session, found: Soak) -> None:
    from convert.acceptance.accept import soak_sentence

    echo(headline(session))
    if found.passed:
        echo(soak_sentence(found))
    else:
        echo(f"stopped at run {found.broken} after {found.seconds:.0f} s")
    rows = [("first round", found.first), ("last round", found.last)]
    print_speeds([(name, speed) for name, speed in rows if speed is not None])
    echo(f"memory {size_text(found.memory_first)} after the first round, {size_text(found.memory_last)} at the end")
    if found.worst:
        echo(metrics_table(found.worst))
