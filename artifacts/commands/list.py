"""``artifacts list``: the models and versions in the registry."""

from __future__ import annotations

import os

import click

from artifacts.http_options import HttpOptions
from artifacts.listing import ListedModel, list_models
from artifacts.registry import Registry, root_of
from artifacts.render import any_registry_option, echo, http_options, json_option, print_json, print_table


@click.command("list")
@click.argument("pattern", default="")
@any_registry_option
@http_options
@json_option
def command(pattern: str, registry: str, http: HttpOptions, as_json: bool) -> None:
    """List the models whose name contains PATTERN, newest version first; or those of oci://HOST/PROJECT."""
    if pattern.startswith("oci://"):
        registry, pattern = pattern, ""
    root = root_of(registry)
    if root is not None:
        place, models = str(root.absolute()), list_models(Registry(root), pattern)
    else:
        from artifacts.remote_moves import list_remote

        place = registry or os.environ.get("CONVERT_REGISTRY", "")
        models = list_remote(place, pattern, options=http)
    if as_json:
        print_json({"registry": place, "models": models})
    else:
        _print(models, pattern, place)


def _print(models: tuple[ListedModel, ...], pattern: str, place: str) -> None:
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
        echo(f"no model{f' matching {pattern}' if pattern else ''} in {place}")
