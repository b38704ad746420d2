"""Showing ``convert diff --per-node``: the first node that departs, and those after it."""

from __future__ import annotations

import click
import msgspec

from artifacts.render import echo, print_table
from convert.commands.forecast import error_text
from convert.errors import GateFailed
from convert.nodewise.values import Departure, NodeDiff
from convert.report.text import shown

LISTED = 12


def show_nodes(found: NodeDiff, a: str, b: str, *, as_json: bool) -> None:
    """Print a comparison. Raises GateFailed CNV-8106 where a node departs (with ``as_json``: exits 8)."""
    error = _departs(found, b) if found.first is not None else None
    if as_json:
        document = {"schema": 1, "a": a, "b": b, "agrees": error is None, **msgspec.to_builtins(found)}
        echo(msgspec.json.encode(document | {"error": error.as_json() if error else None}).decode())
        raise click.exceptions.Exit(error.exit_code if error else 0)
    echo(_headline(found))
    if found.departures:
        print_table(
            ("node", "operator", "module", "error", "arriving", "made", "stands for", "by", "what"),
            [_row(row) for row in found.departures[:LISTED]],
        )
        if len(found.departures) > LISTED:
            echo(f"and {len(found.departures) - LISTED} more; --json has them")
    if error:
        raise error


def _headline(found: NodeDiff) -> str:
    ways = ", ".join(f"{count} by {by}" for by, count in found.by.items() if count)
    aligned = f"{found.aligned} of {found.values} values aligned{f' ({ways})' if ways else ''}"
    verdict = "no node departs" if found.first is None else f"{shown(found.first.node)} is the first to depart"
    return f"{verdict} beyond {found.limit:g}; {aligned}"


def _row(row: Departure) -> tuple[str, ...]:
    return (
        shown(row.node),
        row.op,
        shown(row.module),
        error_text(row.error),
        error_text(row.arriving),
        "" if row.made is None else error_text(row.made),
        shown(row.counterpart_node or row.counterpart),
        row.by,
        shown(row.reason),
    )


def _departs(found: NodeDiff, b: str) -> GateFailed:
    assert found.first is not None
    first = found.first
    made = "" if first.made is None else f", {error_text(first.made)} of it made there"
    return GateFailed(
        "CNV-8106",
        f"{b}: {first.op} {first.node!r} is the first node to depart: relative L2 {error_text(first.error)}{made}",
        hint="--gate rel_l2=VALUE says how much is acceptable; half precision alone gives about 5e-4 at each node",
    )
