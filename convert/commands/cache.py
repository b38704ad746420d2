"""``convert cache``: show and prune the stage cache."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from artifacts.render import echo, print_table, size_text
from convert.cache import Cache, EntryInfo
from convert.settings import load_settings, parse_bytes

DAY = 86400.0


@click.command("cache")
@click.option("--prune", is_flag=True, help="Remove entries; with neither limit below, all of them.")
@click.option("--keep-days", type=click.IntRange(0), metavar="D", help="Prune only what was not used for D days.")
@click.option("--keep-size", metavar="SIZE", help="Prune the longest unused until the rest fits, such as 20GB.")
@click.option("--dry-run", is_flag=True, help="Say what would be pruned, and prune nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(prune: bool, keep_days: int | None, keep_size: str | None, dry_run: bool, as_json: bool) -> None:
    """Show what the stage cache holds, or prune it. Entries in use by a running conversion are made again by it."""
    cache = Cache(Path(load_settings({}).cache_dir))
    entries = list(cache.entries())
    gone = chosen(entries, keep_days, parse_bytes(keep_size) if keep_size else None, time.time()) if prune else []
    if prune and not dry_run:
        cache.sweep()
        for entry in gone:
            cache.drop(entry.key)
    if as_json:
        document = {
            "schema": 1,
            "root": str(cache.root),
            "entries": entries,
            "pruned": [entry.key for entry in gone],
            "dry_run": dry_run,
        }
        echo(msgspec.json.encode(document).decode())
        return
    _print(cache, entries, gone, prune=prune, dry_run=dry_run)


def chosen(entries: list[EntryInfo], keep_days: int | None, keep_bytes: int | None, now: float) -> list[EntryInfo]:
    """Which entries a prune removes; ``entries`` come the longest unused first."""
    gone = [entry for entry in entries if keep_days is not None and now - entry.used > keep_days * DAY]
    if keep_days is None and keep_bytes is None:
        return entries
    if keep_bytes is not None:
        rest = sum(entry.bytes for entry in entries) - sum(entry.bytes for entry in gone)
        for entry in entries:
            if rest <= keep_bytes:
                break
            if entry not in gone:
                gone.append(entry)
                rest -= entry.bytes
    return gone


def _print(cache: Cache, entries: list[EntryInfo], gone: list[EntryInfo], *, prune: bool, dry_run: bool) -> None:
    echo(f"{cache.root}: {len(entries)} entries, {size_text(sum(entry.bytes for entry in entries))}")
    if prune:
        verb = "would remove" if dry_run else "removed"
        echo(f"{verb} {len(gone)} entries, {size_text(sum(entry.bytes for entry in gone))}")
        return
    rows = [
        (
            entry.stage,
            size_text(entry.bytes),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used)),
            entry.key[:12],
        )
        for entry in entries
    ]
    if rows:
        print_table(("stage", "size", "last used", "key"), rows)
