"""``convert toolchain``: vendor toolchains that pip can install, each in an environment of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from artifacts.render import echo, json_option, print_json, print_table
from convert.errors import UsageError
from convert.toolchains.install import install_toolchain, remove_toolchain
from convert.toolchains.known import Known, all_toolchains, find_toolchain
from convert.toolchains.place import Installed, installed_toolchain, toolchains_root, unfinished_toolchains


@click.group("toolchain")
def command() -> None:
    """Install, list or remove vendor toolchains that come from PyPI."""


@command.command("list")
@json_option
def list_toolchains(as_json: bool) -> None:
    """Which toolchains can be installed, and which are."""
    half = unfinished_toolchains()
    rows = []
    for known in all_toolchains().values():
        found = installed_toolchain(known.name)
        state = "stopped half-way" if known.name in half else "no"
        rows.append((known, found.record.version if found else state))
    if as_json:
        print_json({"root": str(toolchains_root()), "toolchains": [_plain(known, state) for known, state in rows]})
        return
    print_table(
        ("name", "version", "installed", "python", "disk", "targets", "licence"),
        [
            (
                known.name,
                known.version,
                state,
                known.python or "any",
                known.disk,
                ", ".join(known.targets),
                known.licence.partition(":")[0],
            )
            for known, state in rows
        ],
    )


@command.command("install")
@click.argument("name")
@click.option("--accept-license", is_flag=True, help="You have read the licence and agree to it.")
@click.option("--python", "python", type=click.Path(path_type=Path), metavar="PATH", help="The interpreter to take.")
@json_option
def install(name: str, accept_license: bool, python: Path | None, as_json: bool) -> None:
    """Install a toolchain; a stopped installation goes on where it stopped."""
    known = find_toolchain(name)
    if not accept_license and not _agreed(known):
        raise UsageError(
            "CNV-2382",
            f"{known.title} has a licence to agree to: {known.licence} ({known.source})",
            hint=f"read it, then: convert toolchain install {known.name} --accept-license",
        )
    found = install_toolchain(known, python.absolute() if python else None, lambda text: echo(text, err=True))
    _told(known, found, as_json=as_json)


@command.command("remove")
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> None:
    """Remove a toolchain and everything that was installed with it."""
    known = find_toolchain(name)
    gone = remove_toolchain(known)
    if as_json:
        print_json({"name": known.name, "removed": gone})
        return
    echo(f"{known.name} removed" if gone else f"{known.name} is not installed")


def _agreed(known: Known) -> bool:
    """Ask, where somebody can answer."""
    if not sys.stdin.isatty():
        return False
    echo(f"{known.title}\nlicence: {known.licence}\n  ({known.source})", err=True)
    return click.confirm("Do you agree?", err=True)


def _told(known: Known, found: Installed, *, as_json: bool) -> None:
    if as_json:
        print_json({**_plain(known, found.record.version), "folder": str(found.folder)})
        return
    echo(f"{known.name} {found.record.version} in {found.folder}, for {', '.join(known.targets)}")
    for reason in found.record.mended:
        echo(f"  mended: {reason}")


def _plain(known: Known, state: str) -> dict[str, object]:
    facts = msgspec.to_builtins(known)
    kept = ("name", "title", "version", "python", "licence", "disk", "targets", "source")
    return {**{name: facts[name] for name in kept}, "installed": state}
