"""``artifacts pull``: fetch one target's files."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.names import parse_ref
from artifacts.pull import pull
from artifacts.registry import default_root
from artifacts.render import json_option, key_option, print_json, registry_option, signatures_option
from artifacts.trust import make_trust


@click.command("pull")
@click.argument("ref")
@click.argument("out", required=False, type=click.Path(path_type=Path))
@click.option("--target", default="", help="The target or SoC, where the version has several.")
@click.option("--soc", default="", help="The exact SoC, where a target has several.")
@key_option
@signatures_option
@registry_option
@json_option
def command(
    ref: str,
    out: Path | None,
    *,
    target: str,
    soc: str,
    key: tuple[Path, ...],
    signatures: str | None,
    registry: Path | None,
    as_json: bool,
) -> None:
    """Pull REF (NAME, NAME:VERSION, NAME:CHANNEL or NAME@sha256:…) into the folder OUT.

    Without OUT the folder is named after the model and the target. It appears as a whole, every file checked; a folder
    that an earlier pull made is replaced.
    """
    trust = make_trust(key, signatures, tag=parse_ref(ref).tag)
    pulled = pull(registry or default_root(), ref, out, target=target, soc=soc, trust=trust)
    if as_json:
        print_json(pulled)
        return
    exact = f" ({pulled.soc})" if pulled.soc else ""
    click.echo(f"{pulled.ref}, {pulled.target}{exact}, {pulled.precision}: {Path(pulled.path) / pulled.main}")
    click.echo(
        "it was there already, unchanged" if pulled.already else f"{len(pulled.files)} files, every digest checked"
    )
