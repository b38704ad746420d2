"""``artifacts attach``: add a result or report to what is published."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.attach import attach
from artifacts.http_options import HttpOptions
from artifacts.render import any_registry_option, echo, http_options, json_option, place_of, print_json


@click.command("attach")
@click.argument("ref")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--type", "artifact_type", required=True, help="A media type, or a word such as latency.")
@click.option("--target", default="", help="Attach to this target of the version.")
@any_registry_option
@http_options
@json_option
def command(
    ref: str,
    files: tuple[Path, ...],
    *,
    artifact_type: str,
    target: str,
    registry: str,
    http: HttpOptions,
    as_json: bool,
) -> None:
    """Attach FILES (a result, a report) to the version or target REF, which itself does not change."""
    root, registry, ref = place_of(registry, ref)
    if root is not None:
        done = attach(root, ref, files, artifact_type=artifact_type, target=target)
    else:
        from artifacts.remote_moves import attach_remote

        done = attach_remote(registry, ref, files, artifact_type=artifact_type, target=target, options=http)
    if as_json:
        print_json(done)
        return
    echo(f"{', '.join(done.files)} attached to {done.ref} as {done.tag}")
