"""``convert doctor``: is this machine fit, and what is in the way."""

from __future__ import annotations

import click
import msgspec

from artifacts.render import echo, print_table
from convert.doctor.values import Examination, Health
from convert.settings import load_settings
from op_registry.targets import find_target

NOT_USABLE = 6


@click.command("doctor", context_settings={"max_content_width": 110})
@click.option("--target", "-t", "targets", multiple=True, metavar="NAME", help="Examine for this card; repeatable.")
@click.option("--launcher", metavar="TEXT", help="What compilers are started with: asked for the toolchain instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(targets: tuple[str, ...], launcher: str | None, as_json: bool) -> int:
    """Look at toolkits, versions that belong together, environment, cards and space.

    Without a target, every vendor is looked at, and those of which something is here count. Exits 0 where the machine
    is usable as it is, 6 where it is not.
    """
    # Imported here: asking the machine costs more than the other commands' start may.
    from convert.doctor.examine import examine

    found = examine([find_target(name) for name in targets], load_settings({"launcher": launcher or None}))
    if as_json:
        echo(msgspec.json.encode(as_document(found)).decode())
    else:
        _print(found, everything=bool(targets))
    return 0 if found.usable else NOT_USABLE


def as_document(found: Examination) -> dict[str, object]:
    """The examination as ``--json`` has it, schema 1."""
    return {
        "schema": 1,
        "usable": found.usable,
        "machine": _document(found.machine),
        "vendors": [_document(health) for health in found.vendors],
        "error": None,
    }


def _document(health: Health) -> dict[str, object]:
    document: dict[str, object] = msgspec.to_builtins(health)
    return {**document, "level": health.level}


def _print(found: Examination, *, everything: bool) -> None:
    _print_health(found.machine)
    absent = []
    for health in found.vendors:
        if health.present or everything:
            _print_health(health)
        else:
            absent.append(f"{health.title} ({health.toolchain})")
    if absent:
        echo(f"nothing here of: {', '.join(absent)}; `convert doctor --target NAME` says what to install")
    echo("usable" if found.usable else "NOT usable as it is")


def _print_health(health: Health) -> None:
    state = "usable" if health.usable else "not usable"
    named = f" for {health.target}" if health.target else ""
    echo(f"{health.title}{named}: {state}")
    if health.versions:
        echo("  " + "  ".join(f"{name} {version}" for name, version in health.versions.items()))
    if health.findings:
        print_table(
            ("", "", "about", "what"),
            [("", finding.level, finding.about, finding.text) for finding in health.findings],
        )
    for finding in health.findings:
        if finding.hint:
            source = f" ({finding.source})" if finding.source else ""
            echo(f"  {finding.about}: {finding.hint}{source}")
