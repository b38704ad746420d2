"""``artifacts rollback``: point a channel back to a version that it had."""

from __future__ import annotations

from typing import Any

import click

from artifacts.channels import Move, rollback
from artifacts.move_options import move_options, print_moved, signing_key
from artifacts.render import place_of, whoami


@click.command("rollback")
@click.argument("model")
@click.argument("channel")
@click.option("--to", default="", help="A version that the channel had.  [default: the one before]")
@move_options
def command(model: str, channel: str, *, to: str, **options: Any) -> None:
    """Point CHANNEL of MODEL back to a version that it had before."""
    move = Move(channel=channel, actor=options["actor"] or whoami(), reason=options["reason"], expect=options["expect"])
    key = signing_key(options["sign_key"])
    root, registry, model = place_of(options["registry"], model)
    if root is not None:
        moved = rollback(root, model, move, to=to, key=key)
    else:
        from artifacts.remote_moves import rollback_remote

        policy = options["policy"]
        moved = rollback_remote(registry, model, move, to=to, key=key, policy=policy, options=options["http"])
    print_moved(moved, options["as_json"])
