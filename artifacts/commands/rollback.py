"""``artifacts rollback``: point a channel back to a version that it had."""

from __future__ import annotations

from typing import Any

import click

from artifacts.channels import Move, rollback
from artifacts.move_options import move_options, print_moved, signing_key
from artifacts.registry import default_root
from artifacts.render import whoami


@click.command("rollback")
@click.argument("model")
@click.argument("channel")
@click.option("--to", default="", help="A version that the channel had.  [default: the one before]")
@move_options
def command(model: str, channel: str, *, to: str, **options: Any) -> None:
    """Point CHANNEL of MODEL back to a version that it had before."""
    move = Move(channel=channel, actor=options["actor"] or whoami(), reason=options["reason"], expect=options["expect"])
    root = options["registry"] or default_root()
    print_moved(rollback(root, model, move, to=to, key=signing_key(options["sign_key"])), options["as_json"])
