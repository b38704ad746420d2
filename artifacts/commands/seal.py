"""``artifacts seal``: publish a draft although targets are missing."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.drafts import seal
from artifacts.registry import default_root
from artifacts.render import actor_option, echo, json_option, print_json, registry_option, whoami


@click.command("seal")
@click.argument("model")
@click.argument("version")
@click.option("--reason", required=True, help="Why it is published without the targets that are missing.")
@actor_option
@registry_option
@json_option
def command(model: str, version: str, *, reason: str, actor: str, registry: Path | None, as_json: bool) -> None:
    """Publish the draft VERSION of MODEL although targets declared for it are missing."""
    done = seal(registry or default_root(), model, version, actor=actor or whoami(), reason=reason)
    if as_json:
        print_json(done, missing=done.missing)
        return
    without = f", without {', '.join(done.missing)}" if done.missing else ""
    echo(f"{done.ref} is sealed with {', '.join(done.targets)}{without}")
