"""Printing results: one JSON document, or tables for people."""

from __future__ import annotations

import functools
import getpass
import os
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import msgspec

from artifacts.errors import UsageError, one_line
from artifacts.registry import folder_of, root_of

registry_option = click.option(
    "--registry",
    callback=lambda _context, _option, value: folder_of(value) if value else None,
    default=None,
    help="The registry folder.  [default: $CONVERT_REGISTRY, else ~/.local/share/model-convert/registry]",
)
any_registry_option = click.option(
    "--registry",
    envvar="CONVERT_REGISTRY",
    default="",
    help="A registry folder, or oci://HOST/PROJECT.  [default: $CONVERT_REGISTRY, else the folder in ~/.local/share]",
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

_HTTP = (
    click.option("--insecure-http", is_flag=True, help="Talk plain HTTP to an oci:// registry on another machine."),
    click.option(
        "--ca", type=click.Path(path_type=Path), envvar="CONVERT_CA_BUNDLE", help="Certificates to trust (PEM)."
    ),
    click.option("--deadline", type=click.FloatRange(min=0), default=0.0, help="Seconds for all requests together."),
)
F = TypeVar("F", bound=Callable[..., Any])


def http_options(command: F) -> F:
    """The options of commands that may talk to an OCI registry; they arrive as one value ``http``."""

    @functools.wraps(command)
    def gathered(*args: Any, insecure_http: bool, ca: Path | None, deadline: float, **rest: Any) -> Any:
        from artifacts.http_options import HttpOptions

        return command(*args, http=HttpOptions(insecure_http=insecure_http, ca=ca, deadline=deadline), **rest)

    for option in reversed(_HTTP):
        gathered = option(gathered)
    return cast(F, gathered)


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


def place_of(registry: str, text: str) -> tuple[Path | None, str, str]:
    """Where a reference is: a registry folder, or else None and an OCI registry; then the reference in it.

    ``oci://HOST/PROJECT/NAME:TAG`` may stand for ``NAME:TAG`` with ``--registry oci://HOST/PROJECT``.
    """
    if text.startswith("oci://"):
        place, _, text = text.rpartition("/")
        if place in ("oci:/", "oci:"):
            raise UsageError("CNV-2430", f"oci://{text[:200]} names no model", hint="write oci://HOST/PROJECT/NAME")
        return None, place, text
    return root_of(registry), registry or os.environ.get("CONVERT_REGISTRY", ""), text


def echo(text: str = "", *, err: bool = False) -> None:
    """Print lines for people. Names in them come from strangers' files, and a terminal acts on what some of them hold:
    what can't be seen is replaced."""
    click.echo("\n".join(map(one_line, text.split("\n"))), err=err)


def print_json(value: Any, **extra: Any) -> None:
    """Print a value as one JSON document with ``schema`` 1 first."""
    plain = msgspec.to_builtins(value)
    document = {"schema": 1, **(plain if isinstance(plain, dict) else {"items": plain}), **extra}
    click.echo(msgspec.json.encode(document).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table that fits the terminal; piped, it is plain columns, never cut. Each cell is one printable line."""
    printable = [[one_line(cell) for cell in row] for row in rows]
    if sys.stdout is None or not sys.stdout.isatty():
        _print_columns([columns, *printable])
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in printable:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Columns two spaces apart, without the library that draws tables: a pipe needs no drawing."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


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
