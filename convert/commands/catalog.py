"""``convert catalog check | plan | run | schema``: keep every model of ``convert.toml`` current, without any server."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from artifacts.cli import LazyGroup
from artifacts.render import echo, json_option, print_table
from convert.settings import FILE, Settings, load_settings

if TYPE_CHECKING:
    from convert.catalog.values import Outcome, Pair, PairPlan

F = TypeVar("F", bound=Callable[..., Any])
COMMANDS = {
    "check": ("convert.commands.catalog:check_command", "Whether the file is right; every problem with its line."),
    "plan": ("convert.commands.catalog:plan_command", "What would be rebuilt, and why."),
    "run": ("convert.commands.catalog:run_command", "Rebuild what changed; one failure never stops the rest."),
    "schema": ("convert.commands.catalog:schema_command", "The JSON schema of the file, for editors."),
}
FILE_OPTION = click.option(
    "--file", "file", type=click.Path(dir_okay=False, path_type=Path), default=Path(FILE), show_default=True
)
CHOICE = (
    FILE_OPTION,
    click.option("--model", "models", multiple=True, metavar="PATTERN", help="Only these models, such as 'yolo*'."),
    click.option("--target", "-t", "targets", multiple=True, metavar="NAME", help="Only these targets."),
    click.option("--all", "everything", is_flag=True, help="Rebuild what is unchanged, too."),
    click.option("--retry-failed", is_flag=True, help="Try again what failed with exactly the same recipe."),
    click.option("--registry", metavar="DIR", help="The registry to compare with and publish into."),
    json_option,
)


@click.group("catalog", cls=LazyGroup, table=COMMANDS)
def command() -> None:
    """Keep the models of a catalogue (convert.toml) current for their targets."""


def _choosing(function: F) -> F:
    for option in reversed(CHOICE):
        function = option(function)
    return function


@click.command("check")
@FILE_OPTION
@json_option
def check_command(file: Path, as_json: bool) -> int:
    """Read the catalogue: the grammar, the keys, and whether what it says makes sense. Exit 2 where it is wrong."""
    from convert.catalog.pairs import expand
    from convert.catalog.reader import check_text, read_catalog, read_text, wrong

    problems, _ = check_text(read_text(file))
    if problems:
        error = wrong(file, problems)
        if as_json:
            echo(json.dumps({"schema": 1, "problems": _problems(problems), "error": error.as_json()}))
        for problem in problems:
            echo(f"{file}:{problem.line}: {problem.key}: {problem.message}", err=as_json)
        echo(f"error [{error.code}]: {file} has {len(problems)} problem(s)\nhint: {error.hint}", err=True)
        return error.exit_code
    pairs = expand(read_catalog(file))
    models = len({pair.name for pair in pairs})
    if as_json:
        echo(json.dumps({"schema": 1, "problems": [], "models": models, "pairs": len(pairs), "error": None}))
    else:
        echo(f"{file}: {models} models, {len(pairs)} pairs of model and target, nothing is wrong")
    return 0


def _problems(problems: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"line": one.line, "key": one.key, "message": one.message} for one in problems]


@click.command("schema")
@json_option
def schema_command(as_json: bool) -> None:
    """Print the JSON schema of convert.toml, which is one JSON document in any case."""
    from convert.catalog.schema import json_schema

    echo(json.dumps(json_schema(), indent=2))


@click.command("plan")
@_choosing
def plan_command(as_json: bool, **given: Any) -> None:
    """Say what would be rebuilt and why: which file, option or tool version is not what it was when it was made."""
    plans, _, _ = _planned(given)
    _show_plans(plans, as_json=as_json)


@click.command("run")
@_choosing
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Models converted side by side.")
@click.option("--out", metavar="DIR", help="Where files are put: DIR/NAME/TARGET/ (default: convert-out).")
@click.option("--dry-run", is_flag=True, help="The same as plan.")
@click.option("--quiet", "-q", is_flag=True, help="No progress on stderr.")
def run_command(as_json: bool, dry_run: bool, quiet: bool, **given: Any) -> int:
    """Rebuild what changed and publish what passed; the exit code is that of the worst pair.

    A run that was cut off goes on where it stopped when it is started again.
    """
    plans, settings, address = _planned(given)
    if dry_run:
        _show_plans(plans, as_json=as_json)
        return 0
    from convert.catalog.notify import notify
    from convert.catalog.outcomes import worst_error
    from convert.catalog.running import run_plans
    from convert.commands.show import progress

    with progress(quiet=quiet) as listener:
        outcomes = run_plans(plans, settings, listener=listener, done=_teller(quiet=quiet), out=given["out"] or "")
    for lost in notify(address, outcomes):
        echo(f"warning: {lost}", err=True)
    _show_outcomes(outcomes, as_json=as_json)
    error = worst_error(outcomes)
    return int(error["exit_code"]) if error else 0


def _planned(given: dict[str, Any]) -> tuple[tuple[PairPlan, ...], Settings, str]:
    """The plan of what was chosen, the settings beside the catalogue, and where regressions are told."""
    from convert.catalog.pairs import expand, select
    from convert.catalog.planning import plan_pairs
    from convert.catalog.reader import read_catalog

    file: Path = given["file"]
    catalog = read_catalog(file)
    settings = load_settings(
        {name: given.get(name) or None for name in ("registry", "jobs", "out")}, folder=file.absolute().parent
    )
    pairs = select(expand(catalog), given["models"], given["targets"])
    plans = plan_pairs(pairs, settings, everything=given["everything"], retry_failed=given["retry_failed"])
    return plans, settings, catalog.defaults.on_regression


def _show_plans(plans: Sequence[PairPlan], *, as_json: bool) -> None:
    actions = [plan.action for plan in plans]
    counts = {action: actions.count(action) for action in dict.fromkeys(actions)}
    if as_json:
        echo(json.dumps({"schema": 1, "counts": counts, "pairs": [plan_json(plan) for plan in plans], "error": None}))
        return
    rows = [(plan.pair.name, plan.pair.target, plan.action, plan.why, plan.published) for plan in plans]
    print_table(("model", "target", "action", "why", "published"), rows)
    for plan in plans:
        for change in plan.changes:
            echo(f"{plan.pair.label}  {change}")
    echo(", ".join(f"{count} {action}" for action, count in counts.items()) or "the catalogue is empty")


def _pair_json(pair: Pair) -> dict[str, Any]:
    return {"model": pair.name, "target": pair.target, "owner": pair.owner or None}


def plan_json(plan: PairPlan) -> dict[str, Any]:
    """One pair of a plan as ``--json`` prints it."""
    changes = [{"fact": one.fact, "was": one.was or None, "now": one.now or None} for one in plan.changes]
    return {
        **_pair_json(plan.pair),
        "action": plan.action,
        "why": plan.why,
        "changes": changes,
        "published": plan.published or None,
        "error": plan.error,
    }


def _teller(*, quiet: bool) -> Callable[[Outcome], None]:
    def tell(outcome: Outcome) -> None:
        if not quiet and outcome.status != "unchanged":
            echo(f"{outcome.name}@{outcome.target}  {outcome.status}  {outcome.change}", err=True)

    return tell


def _show_outcomes(outcomes: Sequence[Outcome], *, as_json: bool) -> None:
    from convert.catalog.outcomes import TABLE, counts, table_rows, worst_error

    if as_json:
        echo(json.dumps(run_json(outcomes)))
    else:
        print_table(TABLE, table_rows(outcomes))
        echo(counts(outcomes))
    error = worst_error(outcomes)
    if error:
        echo(f"error{' [' + error['code'] + ']' if error['code'] else ''}: {error['message']}", err=True)
        echo(f"hint: {error['hint']}", err=True)
        if error.get("traceback"):
            echo(error["traceback"], err=True)


def run_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What ``catalog run --json`` prints, schema 1."""
    from convert.catalog.outcomes import worst_error

    error = worst_error(outcomes)
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[outcome.status] = counts.get(outcome.status, 0) + 1
    return {
        "schema": 1,
        "status": "failed" if error else "done",
        "counts": counts,
        "pairs": [_outcome_json(outcome) for outcome in outcomes],
        "error": error,
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "model": outcome.name,
        "target": outcome.target,
        "status": outcome.status,
        "verdict": outcome.verdict or None,
        "change": outcome.change,
        "regression": outcome.regression or None,
        "ref": outcome.ref or None,
        "digest": outcome.digest or None,
        "report": outcome.report or None,
        "owner": outcome.owner or None,
        "seconds": outcome.seconds,
        "error": outcome.error,
    }
