"""``artifacts keygen``: make a signing key."""

from __future__ import annotations

import os
from pathlib import Path

import click

from artifacts.keys import PASSWORD_VARIABLE, generate_key, trust_folder
from artifacts.render import echo, json_option, print_json


@click.command("keygen")
@click.argument("name", type=click.Path(path_type=Path))
@json_option
def command(name: Path, as_json: bool) -> None:
    """Make a P-256 key: NAME.key, which signs, and NAME.pub, which verifies.

    With the environment variable CONVERT_KEY_PASSWORD the private key is encrypted.
    """
    pair = generate_key(name, password=os.environ.get(PASSWORD_VARIABLE, ""))
    if as_json:
        print_json(pair)
        return
    echo(f"{pair.private} signs; keep it secret\n{pair.public} verifies; its id is {pair.id}")
    echo(f"to trust it: cp {pair.public} {trust_folder()}/")
