"""``artifacts promote`` and ``artifacts rollback``: move a channel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from artifacts.channels import Move, Moved, promote, rollback
from artifacts.keys import PrivateKey, load_private_key
from artifacts.registry import default_root
from artifacts.render import actor_option, json_option, print_json, registry_option, whoami

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    click.option("--expect", default="", help="The version that the channel has now (none: nothing); else it fails."),
    click.option("--reason", default="", help="Why; kept in the history."),
    actor_option,
    click.option("--sign-key", type=click.Path(path_type=Path), envvar="CONVERT_SIGN_KEY", help="Sign the event."),
    registry_option,
    json_option,
)


def move_options(command: F) -> F:
    """The options that promotion and rollback share."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command("promote")
@click.argument("ref")
@click.argument("channel")
@click.option("--waive", multiple=True, help="A rule to set aside: passed, device, targets, minimum, maximum.")
@move_options
def promote_command(ref: str, channel: str, *, waive: tuple[str, ...], **options: Any) -> None:
    """Point CHANNEL to the version REF (NAME, NAME:VERSION, or another channel of it).

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
    _print(promote(options["registry"] or default_root(), ref, move, _key(options["sign_key"])), options["as_json"])


@click.command("rollback")
@click.argument("model")
@click.argument("channel")
@click.option("--to", default="", help="A version that the channel had.  [default: the one before]")
@move_options
def rollback_command(model: str, channel: str, *, to: str, **options: Any) -> None:
    """Point CHANNEL of MODEL back to a version that it had before."""
    move = Move(channel=channel, actor=options["actor"] or whoami(), reason=options["reason"], expect=options["expect"])
    root = options["registry"] or default_root()
    _print(rollback(root, model, move, to=to, key=_key(options["sign_key"])), options["as_json"])


def _key(path: Path | None) -> PrivateKey | None:
    return load_private_key(path) if path else None


def _print(moved: Moved, as_json: bool) -> None:
    if as_json:
        print_json(moved)
        return
    name = f"{moved.model}:{moved.channel}"
    if moved.already:
        click.echo(f"{name} is {moved.version} already")
        return
    click.echo(f"{name} is {moved.version} now ({moved.after})")
    for waiver in moved.waivers:
        click.echo(f"waived: {waiver.rule}, by {waiver.by}: {waiver.reason}")
    click.echo(f"event {moved.seq}: {moved.event} (keep it elsewhere to notice a rewritten history)")
