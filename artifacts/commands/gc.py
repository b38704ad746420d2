"""``artifacts gc``: remove what nothing refers to any more."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.gc import collect
from artifacts.registry import default_root
from artifacts.render import json_option, print_json, print_table, registry_option, size_text


@click.command("gc")
@click.argument("models", nargs=-1)
@click.option("--apply", is_flag=True, help="Remove; without it only what would be removed is told.")
@click.option(
    "--grace", type=click.FloatRange(min=0), default=24.0, show_default=True, help="Hours to spare new files."
)
@registry_option
@json_option
def command(models: tuple[str, ...], *, apply: bool, grace: float, registry: Path | None, as_json: bool) -> None:
    """Find files that no version, channel or event of the registry (or of MODELS) refers to; remove them with --apply.

    Files written or reused within the grace period are spared: a publisher may be about to refer to them.
    """
    report = collect(registry or default_root(), models, grace=grace * 3600, apply=apply)
    if as_json:
        print_json(report)
        return
    rows = [
        (model.name, str(model.kept), str(len(model.swept)), size_text(model.bytes), str(model.young))
        for model in report.models
    ]
    print_table(("model", "in use", "removed" if apply else "to remove", "size", "too young"), rows)
    if not apply and any(model.swept for model in report.models):
        click.echo("nothing was removed: run it with --apply")
