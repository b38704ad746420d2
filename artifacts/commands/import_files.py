"""``artifacts import``: register an artifact that was built elsewhere."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.errors import UsageError
from artifacts.imports import ImportRequest, import_files
from artifacts.registry import default_root
from artifacts.render import echo, json_option, print_json, registry_option

_FILE = click.Path(path_type=Path)


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=_FILE)
@click.option("--name", required=True, help="The model.")
@click.option("--version", default="", help="The version.  [default: the next patch]")
@click.option("--target", required=True, help="The target that the files run on.")
@click.option("--soc", default="", help="The exact SoC, where they run on one only.")
@click.option("--precision", default="unknown", help="fp32, fp16, int8, …")
@click.option("--report", "reports", multiple=True, type=_FILE, help="A document to store beside them.")
@click.option("--source", default="", help="The digest of the model they were made from (sha256:…).")
@click.option("--toolchain", "tools", multiple=True, metavar="NAME=VERSION", help="What made them.")
@registry_option
@json_option
def command(
    files: tuple[Path, ...],
    *,
    reports: tuple[Path, ...],
    tools: tuple[str, ...],
    registry: Path | None,
    as_json: bool,
    **fields: str,
) -> None:
    """Register FILES that were built elsewhere; the first is the main one.

    The version is marked `ungated`: nothing here has measured it, and channels that ask for a passed gate refuse it.
    """
    toolchain = dict(_pair(text) for text in tools)
    request = ImportRequest(files=files, reports=reports, toolchain=toolchain, **fields)
    done = import_files(registry or default_root(), request)
    if as_json:
        print_json(done)
        return
    echo(f"{done.ref} {'was there already' if done.already else 'imported'}: {done.targets[0].ref}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, version = text.partition("=")
    if not (name and equals):
        raise UsageError("CNV-2407", f"{text[:80]!r} names no tool and version", hint="write --toolchain cann=8.0.RC3")
    return name, version
