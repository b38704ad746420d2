"""``artifacts pull``: fetch one target's files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from artifacts.errors import UsageError
from artifacts.names import parse_ref
from artifacts.pull import Pulled, pull
from artifacts.registry import root_of
from artifacts.render import any_registry_option, http_options, json_option, key_option, print_json, signatures_option
from artifacts.trust import Trust, make_trust
from artifacts.watch import watch as keep_current


@click.command("pull")
@click.argument("ref")
@click.argument("out", required=False, type=click.Path(path_type=Path))
@click.option("--out", "folder", type=click.Path(path_type=Path), help="The same as OUT.")
@click.option("--target", default="", help="The target or SoC, where the version has several.")
@click.option("--soc", default="", help="The exact SoC, where a target has several.")
@click.option("--watch", type=click.FloatRange(min=1), metavar="SECONDS", help="Keep OUT current.")
@click.option("--hook", default="", metavar="COMMAND", help="With --watch: run this in a shell after each change.")
@key_option
@signatures_option
@any_registry_option
@http_options
@json_option
def command(ref: str, out: Path | None, *, watch: float | None, hook: str, as_json: bool, **options: Any) -> None:
    """Pull REF (NAME, NAME:VERSION, NAME:CHANNEL or NAME@sha256:…) into the folder OUT.

    Without OUT the folder is named after the model and the target. It appears as a whole, every file checked; a folder
    that an earlier pull made is replaced.

    With --watch it goes on until it is stopped. The command of --hook gets CONVERT_PATH, CONVERT_REF, CONVERT_DIGEST,
    and is run again until it ends with 0.
    """
    out = out or options["folder"]
    trust = make_trust(options["key"], options["signatures"], tag=parse_ref(ref).tag)
    once = partial(_pull, ref, out, trust, options)
    if watch is None and not hook:
        _print(once(), as_json)
        return
    if watch is None or as_json or out is None:
        raise UsageError(
            "CNV-2408",
            "a folder is kept current with --watch and a named OUT; --hook belongs to it, --json does not",
            hint="for example: artifacts pull net:prod /srv/net --watch 60 --hook 'systemctl reload serving'",
        )
    keep_current(once, seconds=watch, hook=hook, tell=lambda line: click.echo(line, err=True))


def _pull(ref: str, out: Path | None, trust: Trust, options: dict[str, Any]) -> Pulled:
    chosen = {"target": options["target"], "soc": options["soc"], "trust": trust}
    root = root_of(options["registry"])
    if root is not None:
        return pull(root, ref, out, **chosen)
    from artifacts.place import pull_remote

    return pull_remote(options["registry"], ref, out, options=options["http"], **chosen)


def _print(pulled: Pulled, as_json: bool) -> None:
    if as_json:
        print_json(pulled)
        return
    exact = f" ({pulled.soc})" if pulled.soc else ""
    click.echo(f"{pulled.ref}, {pulled.target}{exact}, {pulled.precision}: {Path(pulled.path) / pulled.main}")
    click.echo(
        "it was there already, unchanged" if pulled.already else f"{len(pulled.files)} files, every digest checked"
    )
