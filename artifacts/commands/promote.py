"""``artifacts promote``: point a channel to a version."""

from __future__ import annotations

from typing import Any

import click

from artifacts.channels import Move, promote
from artifacts.move_options import move_options, print_moved, signing_key
from artifacts.render import place_of, whoami


@click.command("promote")
@click.argument("ref")
@click.argument("channel")
@click.option("--waive", multiple=True, help="A rule to set aside: passed, device, targets, minimum, maximum.")
@move_options
def command(ref: str, channel: str, *, waive: tuple[str, ...], **options: Any) -> None:
    """Point CHANNEL to the version REF (NAME, NAME:VERSION, another channel of it, or oci://HOST/PROJECT/NAME…).

    The version must show what the channel asks for; by default candidate asks nothing, staging that every gate passed,
    and any other channel also that every target ran on its device and none that the channel has now is missing.
    """
    move = Move(
        channel=channel,
        actor=options["actor"] or whoami(),
        reason=options["reason"],
        expect=options["expect"],
        waive=waive,
    )
    key = signing_key(options["sign_key"])
    root, registry, ref = place_of(options["registry"], ref)
    if root is not None:
        moved = promote(root, ref, move, key)
    else:
        from artifacts.remote_moves import promote_remote

        moved = promote_remote(registry, ref, move, key, policy=options["policy"], options=options["http"])
    print_moved(moved, options["as_json"])
