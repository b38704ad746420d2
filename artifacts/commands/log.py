"""``artifacts log``: the history of a channel."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.channels import channel_log
from artifacts.errors import RegistryError
from artifacts.events import ChannelLog, LoggedEvent
from artifacts.http_options import HttpOptions
from artifacts.keys import trusted_keys
from artifacts.render import (
    any_registry_option,
    echo,
    http_options,
    json_option,
    key_option,
    place_of,
    print_json,
    print_table,
)


@click.command("log")
@click.argument("model")
@click.argument("channel")
@key_option
@click.option("--head", default="", help="The event digest that you kept: it must be part of the history.")
@any_registry_option
@http_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: str,
    channel: str,
    *,
    key: tuple[Path, ...],
    head: str,
    registry: str,
    http: HttpOptions,
    as_json: bool,
) -> None:
    """Show who moved CHANNEL of MODEL, when, why, and what the gates said; newest first.

    A gap, a fork, a broken signature or a missing --head ends with exit code 9.
    """
    root, registry, model = place_of(registry, model)
    if root is not None:
        log = channel_log(root, model, channel, trusted_keys(key))
    else:
        from artifacts.remote_moves import log_remote

        log = log_remote(registry, model, channel, trusted_keys(key), options=http)
    problems = list(log.problems)
    if head and head not in {item.digest for item in log.events}:
        problems.append(f"the event {head} is not in the history: it was replaced or cut")
    error = _error(model, channel, problems)
    if as_json:
        print_json(log, error=error.as_json() if error else None)
        ctx.exit(error.exit_code if error else 0)
    _print_log(log)
    if error:
        raise error


def _error(model: str, channel: str, problems: list[str]) -> RegistryError | None:
    if not problems:
        return None
    return RegistryError(
        "CNV-9041",
        f"the history of {model}:{channel} does not hold together: {'; '.join(problems)}",
        hint="find out who wrote it; restore index.json from a copy, or begin another channel",
    )


def _print_log(log: ChannelLog) -> None:
    print_table(("no", "time", "version", "by", "reason", "gates", "signature"), [_row(item) for item in log.events])
    echo(f"newest event: {log.head}")


def _row(item: LoggedEvent) -> tuple[str, ...]:
    event = item.event
    waived = [waiver.rule for waiver in event.waivers]
    gates = ", ".join(f"{gate.rule} waived" if gate.rule in waived else gate.rule for gate in event.gates)
    version = f"back to {event.version}" if event.rollback else event.version
    return str(event.seq), event.time, version, event.actor, event.reason, gates or "–", item.signature
