"""``artifacts gc``: remove what nothing refers to any more, and old versions where a retention rule says so."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.errors import UsageError
from artifacts.gc import GcReport, collect
from artifacts.registry import Registry, default_root
from artifacts.render import (
    actor_option,
    echo,
    json_option,
    print_json,
    print_table,
    registry_option,
    size_text,
    whoami,
)
from artifacts.rules import Retention


@click.command("gc")
@click.argument("models", nargs=-1)
@click.option("--apply", is_flag=True, help="Remove; without it only what would be removed is told.")
@click.option(
    "--grace", type=click.FloatRange(min=0), default=24.0, show_default=True, help="Hours to spare new files."
)
@click.option("--keep", type=click.IntRange(min=1), help="Let versions go that are not among the newest KEEP.")
@click.option("--days", type=click.FloatRange(min=0), help="With --keep: spare versions younger than this.")
@actor_option
@registry_option
@json_option
def command(
    models: tuple[str, ...],
    *,
    apply: bool,
    grace: float,
    keep: int | None,
    days: float | None,
    actor: str,
    registry: Path | None,
    as_json: bool,
) -> None:
    """Find files that no version, channel or event of the registry (or of MODELS) refers to; remove them with --apply.

    Files written or reused within the grace period are spared: a publisher may be about to refer to them.

    With --keep, or with "retention" in registry.json, old versions go too: never one that a channel has or ever had,
    nor the newest ones. The name of a removed version is never used for anything else.
    """
    root = registry or default_root()
    rule = _rule(root, keep, days)
    who = actor or (whoami() if apply and rule.keep else "")
    report = collect(root, models, grace=grace * 3600, apply=apply, retention=rule, actor=who)
    if as_json:
        print_json(report)
    else:
        _print(report)


def _rule(root: Path, keep: int | None, days: float | None) -> Retention:
    said = Registry(root).policy().retention
    rule = Retention(keep=said.keep if keep is None else keep, days=said.days if days is None else days)
    if days is not None and not rule.keep:
        raise UsageError(
            "CNV-2440", "--days alone removes nothing: it spares young versions", hint="add --keep, as --keep 10"
        )
    return rule


def _print(report: GcReport) -> None:
    removed = "removed" if report.applied else "to remove"
    rows = [
        (model.name, str(model.kept), str(len(model.swept)), size_text(model.bytes), str(model.young))
        for model in report.models
    ]
    print_table(("model", "in use", removed, "size", "too young"), rows)
    for model in report.models:
        if model.expired:
            echo(f"{model.name}: {len(model.expired)} old versions {removed}: {', '.join(model.expired)}")
    if not report.applied and any(model.swept or model.expired for model in report.models):
        echo("nothing was removed: run it with --apply")
