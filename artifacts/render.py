"""Printing results: one JSON document, or tables for people."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from artifacts.errors import UsageError

registry_option = click.option(
    "--registry",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="The registry folder.  [default: $CONVERT_REGISTRY, else ~/.local/share/model-convert/registry]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")

key_option = click.option(
    "--key",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A public key to trust, besides those of the trust folder.",
)
signatures_option = click.option(
    "--signatures",
    type=click.Choice(["none", "warn", "enforce"]),
    default=None,
    help="What to do without a trusted signature.  [default: enforce with --key or for prod, else warn]",
)

actor_option = click.option("--actor", envvar="CONVERT_ACTOR", default="", help="Who.  [default: user@host]")


def whoami() -> str:
    """This user and machine, as the history of channels names them.

    Raises:
        UsageError: CNV-2422, where the operating system has no name for the user.
    """
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError) as error:
        raise UsageError("CNV-2422", "this machine has no name for you", hint="say who you are with --actor") from error


def print_json(value: Any, **extra: Any) -> None:
    """Print a value as one JSON document with ``schema`` 1 first."""
    plain = msgspec.to_builtins(value)
    document = {"schema": 1, **(plain if isinstance(plain, dict) else {"items": plain}), **extra}
    click.echo(msgspec.json.encode(document).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table that fits the terminal; piped, it isn't cut."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 500
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def size_text(count: int) -> str:
    """A size for people: ``11.2 MB``."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def number_text(value: float | None) -> str:
    """A metric for people; a dash where nothing was measured."""
    return "–" if value is None else f"{value:.6g}"
