"""``artifacts attach``: add a result or report to what is published."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.attach import attach
from artifacts.registry import default_root
from artifacts.render import json_option, print_json, registry_option


@click.command("attach")
@click.argument("ref")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--type", "artifact_type", required=True, help="A media type, or a word such as latency.")
@click.option("--target", default="", help="Attach to this target of the version.")
@registry_option
@json_option
def command(
    ref: str, files: tuple[Path, ...], *, artifact_type: str, target: str, registry: Path | None, as_json: bool
) -> None:
    """Attach FILES (a result, a report) to the version or target REF, which itself does not change."""
    done = attach(registry or default_root(), ref, files, artifact_type=artifact_type, target=target)
    if as_json:
        print_json(done)
        return
    click.echo(f"{', '.join(done.files)} attached to {done.ref} as {done.tag}")
