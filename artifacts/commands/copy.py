"""``artifacts copy``: between a registry folder, OCI registries and archives."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.http_options import HttpOptions
from artifacts.place import copy
from artifacts.registry import default_root
from artifacts.render import echo, http_options, json_option, print_json, registry_option


@click.command("copy")
@click.argument("source")
@click.argument("destination")
@click.option("--all", "everything", is_flag=True, help="All versions, channels and events.")
@registry_option
@http_options
@json_option
def command(
    source: str, destination: str, *, everything: bool, registry: Path | None, http: HttpOptions, as_json: bool
) -> None:
    """Copy versions from SOURCE to DESTINATION; digests, signatures and history stay as they are.

    Each is NAME[:TAG] of the registry folder, oci://HOST/PROJECT/NAME[:TAG], or oci-archive:FILE[:TAG], one file that
    can be carried to a site without network.
    """
    done = copy(source, destination, registry or default_root(), everything=everything, options=http)
    if as_json:
        print_json(done)
        return
    echo(f"{done.destination}: {len(done.tags)} tags: {', '.join(done.tags[:6])}{' …' if len(done.tags) > 6 else ''}")
