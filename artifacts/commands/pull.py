"""``artifacts pull``: fetch one target's files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from artifacts.names import parse_ref
from artifacts.pull import Pulled, pull
from artifacts.registry import root_of
from artifacts.render import any_registry_option, http_options, json_option, key_option, print_json, signatures_option
from artifacts.trust import make_trust

if TYPE_CHECKING:
    from artifacts.http_options import HttpOptions


@click.command("pull")
@click.argument("ref")
@click.argument("out", required=False, type=click.Path(path_type=Path))
@click.option("--out", "folder", type=click.Path(path_type=Path), help="The same as OUT.")
@click.option("--target", default="", help="The target or SoC, where the version has several.")
@click.option("--soc", default="", help="The exact SoC, where a target has several.")
@key_option
@signatures_option
@any_registry_option
@http_options
@json_option
def command(
    ref: str,
    out: Path | None,
    *,
    folder: Path | None,
    target: str,
    soc: str,
    key: tuple[Path, ...],
    signatures: str | None,
    registry: str,
    http: HttpOptions,
    as_json: bool,
) -> None:
    """Pull REF (NAME, NAME:VERSION, NAME:CHANNEL or NAME@sha256:…) into the folder OUT.

    Without OUT the folder is named after the model and the target. It appears as a whole, every file checked; a folder
    that an earlier pull made is replaced.
    """
    out = out or folder
    trust = make_trust(key, signatures, tag=parse_ref(ref).tag)
    root = root_of(registry)
    if root is None:
        from artifacts.place import pull_remote

        pulled = pull_remote(registry, ref, out, target=target, soc=soc, trust=trust, options=http)
    else:
        pulled = pull(root, ref, out, target=target, soc=soc, trust=trust)
    _print(pulled, as_json)


def _print(pulled: Pulled, as_json: bool) -> None:
    if as_json:
        print_json(pulled)
        return
    exact = f" ({pulled.soc})" if pulled.soc else ""
    click.echo(f"{pulled.ref}, {pulled.target}{exact}, {pulled.precision}: {Path(pulled.path) / pulled.main}")
    click.echo(
        "it was there already, unchanged" if pulled.already else f"{len(pulled.files)} files, every digest checked"
    )
