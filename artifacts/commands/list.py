"""``artifacts list``: the models and versions in the registry."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.listing import list_models
from artifacts.registry import Registry, default_root
from artifacts.render import json_option, print_json, print_table, registry_option


@click.command("list")
@click.argument("pattern", default="")
@registry_option
@json_option
def command(pattern: str, registry: Path | None, as_json: bool) -> None:
    """List the models whose name contains PATTERN, newest version first."""
    store = Registry(registry or default_root())
    models = list_models(store, pattern)
    if as_json:
        print_json({"registry": str(store.root), "models": models})
        return
    rows = []
    for model in models:
        if model.problem:
            rows.append((model.name, "damaged", model.problem, ""))
        rows += [(model.name, f"{draft.version} (draft)", ", ".join(draft.targets), "") for draft in model.drafts]
        rows += [
            (model.name, version.version, ", ".join(version.targets), ", ".join(version.channels))
            for version in model.versions
        ]
    if rows:
        print_table(("model", "version", "targets", "channels"), rows)
    else:
        click.echo(f"no model{f' matching {pattern}' if pattern else ''} in {store.root}")
