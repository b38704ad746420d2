"""``convert accept ARTIFACT``: the three stages that a site signs off on, as one report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from artifacts.render import echo, print_table
from convert.commands.accepting import ARTIFACT, headline, opened_session, show_dry_run, teller
from convert.commands.options import add_options
from convert.settings import load_settings

if TYPE_CHECKING:
    from artifacts.attach import Attached
    from convert.acceptance.session import Session
    from convert.acceptance.values import Acceptance

ACCEPT = (
    click.option(
        "--for", "duration", default="10m", show_default=True, metavar="TIME", help="How long the stress stage lasts."
    ),
    click.option("--stress-runs", type=click.IntRange(1), metavar="N", help="End the stress after so many runs, too."),
    click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Processes at once."),
    click.option("--runs", type=click.IntRange(1), default=100, show_default=True, help="Runs that are timed."),
    click.option("--warmup", type=click.IntRange(0), default=5, show_default=True, help="Runs before those."),
    click.option("--out", metavar="DIR", help="Where reports go: DIR/acceptance/ (default: convert-out)."),
    click.option("--no-attach", is_flag=True, help="Leave the registry as it is."),
)


@click.command("accept", context_settings={"max_content_width": 110})
@click.argument("artifact", type=click.Path())
@add_options(ACCEPT, ARTIFACT)
def command(artifact: str, as_json: bool, quiet: bool, **given: Any) -> int:
    """Precision, stress and fault injection of ARTIFACT, as one report.

    The report is JSON and an HTML page, under a number of its own. Where ARTIFACT came from a registry, both are
    attached to it. ARTIFACT is what `convert bench` takes. Exits 8 where it is not accepted.
    """
    from convert.acceptance.accept import accept_artifact, rejected
    from convert.acceptance.kept import attach_report, write_report
    from convert.acceptance.soak import parse_duration

    seconds, tell = parse_duration(given["duration"]), teller(quiet)
    with opened_session(artifact, given) as session:
        if given["dry_run"]:
            return show_dry_run(session, _steps(seconds, given), as_json=as_json)
        report = accept_artifact(session, _options(seconds, given), tell)
        folder = Path(load_settings({"out": given["out"] or None}).out) / "acceptance"
        files = write_report(report, folder)
        attached = None
        if session.opened.ref and not given["no_attach"]:
            attached = attach_report(session.opened, files)
        error = rejected(report)
        if as_json:
            told = {
                "report": {"json": str(files[0]), "html": str(files[1])},
                "attached": {"ref": attached.ref, "tag": attached.tag} if attached else None,
                "error": error.as_json() if error else None,
            }
            echo(msgspec.json.encode(msgspec.to_builtins(report) | told).decode())
            return error.exit_code if error else 0
        _print(session, report, files, attached)
    if error:
        raise error
    return 0


def _options(seconds: float, given: dict[str, Any]) -> Any:
    from convert.acceptance.accept import AcceptOptions

    return AcceptOptions(
        seconds=seconds,
        stress_runs=given["stress_runs"] or 0,
        workers=given["workers"],
        runs=given["runs"],
        warmup=given["warmup"],
    )


def _steps(seconds: float, given: dict[str, Any]) -> list[str]:
    from convert.acceptance.faults import DONE, NAMES

    return [
        "compare the outputs of every sample with the reference outputs",
        f"time {given['runs']} runs, then run for {seconds:.0f} s in {given['workers']} processes at once",
        *(f"inject {NAMES.get(fault, fault)}: {done}" for fault, done in DONE.items()),
    ]


def _print(session: Session, report: Acceptance, files: tuple[Path, Path], attached: Attached | None) -> None:
    echo(headline(session))
    echo(f"{'accepted' if report.passed else 'NOT accepted'}, ran on {report.ran_on or 'nothing'}")
    print_table(("stage", "state", "what was seen"), [(one.stage, one.state, one.said) for one in report.stages])
    if report.faults:
        rows = [(one.fault, one.state, one.code, one.next_run or one.said) for one in report.faults]
        print_table(("fault", "state", "code", "next run"), rows)
    for note in report.notes:
        echo(f"{note.level}: {note.text}")
    for path in files:
        echo(f"report    {path}")
    if attached is not None:
        echo(f"attached  {attached.ref} {report.target} as {attached.tag}")
