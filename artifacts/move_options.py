"""What the commands ``promote`` and ``rollback`` share: their options, and how they print what happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from artifacts.channels import Moved
from artifacts.keys import PrivateKey, load_private_key
from artifacts.render import actor_option, any_registry_option, echo, http_options, json_option, print_json

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    click.option("--expect", default="", help="The version that the channel has now (none: nothing); else it fails."),
    click.option("--reason", default="", help="Why; kept in the history."),
    actor_option,
    click.option("--sign-key", type=click.Path(path_type=Path), envvar="CONVERT_SIGN_KEY", help="Sign the event."),
    click.option(
        "--policy", type=click.Path(path_type=Path), help="With an OCI registry: a registry.json with channels' rules."
    ),
    any_registry_option,
    http_options,
    json_option,
)


def move_options(command: F) -> F:
    """The options that promotion and rollback share."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def signing_key(path: Path | None) -> PrivateKey | None:
    """The key of ``--sign-key``; None without one."""
    return load_private_key(path) if path else None


def print_moved(moved: Moved, as_json: bool) -> None:
    """Tell where a channel points now, what was waived, and the event to keep elsewhere."""
    if as_json:
        print_json(moved)
        return
    name = f"{moved.model}:{moved.channel}"
    if moved.already:
        echo(f"{name} is {moved.version} already")
        return
    echo(f"{name} is {moved.version} now ({moved.after})")
    for waiver in moved.waivers:
        echo(f"waived: {waiver.rule}, by {waiver.by}: {waiver.reason}")
    echo(f"event {moved.seq}: {moved.event} (keep it elsewhere to notice a rewritten history)")
