"""``artifacts sign``: sign a version or target in the registry."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.keys import load_private_key
from artifacts.registry import default_root
from artifacts.render import echo, json_option, print_json, registry_option
from artifacts.signing import sign_ref


@click.command("sign")
@click.argument("ref")
@click.option(
    "--sign-key", type=click.Path(path_type=Path), required=True, envvar="CONVERT_SIGN_KEY", help="The private key."
)
@registry_option
@json_option
def command(ref: str, sign_key: Path, registry: Path | None, as_json: bool) -> None:
    """Sign REF: the files of each target, how they were made and tested, and the version's set of targets.

    Works offline; the signatures are Sigstore bundles, stored beside what they are about. An encrypted key takes its
    password from CONVERT_KEY_PASSWORD.
    """
    signed = sign_ref(registry or default_root(), ref, load_private_key(sign_key))
    if as_json:
        print_json(signed)
        return
    already = f", {signed.already} were there already" if signed.already else ""
    echo(f"{signed.ref}: {len(signed.tags)} signatures by {signed.key[:16]}…{already}")
