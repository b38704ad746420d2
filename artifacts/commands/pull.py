"""``artifacts pull``: fetch one target's files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from artifacts.cards import find_cards
from artifacts.errors import UsageError
from artifacts.names import parse_ref
from artifacts.pull import Pulled, pull
from artifacts.render import (
    any_registry_option,
    echo,
    http_options,
    json_option,
    key_option,
    place_of,
    print_json,
    signatures_option,
)
from artifacts.trust import Trust, make_trust
from artifacts.watch import watch as keep_current


@click.command("pull")
@click.argument("ref")
@click.argument("out", required=False, type=click.Path(path_type=Path))
@click.option("--out", "folder", type=click.Path(path_type=Path), help="The same as OUT.")
@click.option("--target", default="", help="The target or SoC.  [default: what fits this machine's card]")
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

    Without --target and --soc the card of this machine decides, asked of its vendor's tool: the artifact for its exact
    part is taken, else one for its family. Without OUT the folder is named after the model and the target. It appears
    as a whole, every file checked; a folder that an earlier pull made is replaced.

    With --watch it goes on until it is stopped. The command of --hook gets CONVERT_PATH, CONVERT_REF, CONVERT_DIGEST,
    and is run again until it ends with 0.
    """
    out = out or options["folder"]
    root, registry, ref = place_of(options["registry"], ref)
    options = {**options, "root": root, "registry": registry}
    trust = make_trust(options["key"], options["signatures"], tag=parse_ref(ref).tag)
    cards = None if options["target"] or options["soc"] else find_cards()
    once = partial(_pull, ref, out, trust, {**options, "cards": cards})
    if watch is None and not hook:
        _print(once(), as_json)
        return
    if watch is None or as_json or out is None:
        raise UsageError(
            "CNV-2408",
            "a folder is kept current with --watch and a named OUT; --hook belongs to it, --json does not",
            hint="for example: artifacts pull net:prod /srv/net --watch 60 --hook 'systemctl reload serving'",
        )
    keep_current(once, seconds=watch, hook=hook, tell=lambda line: echo(line, err=True))


def _pull(ref: str, out: Path | None, trust: Trust, options: dict[str, Any]) -> Pulled:
    chosen = {"target": options["target"], "soc": options["soc"], "cards": options["cards"], "trust": trust}
    if options["root"] is not None:
        return pull(options["root"], ref, out, **chosen)
    from artifacts.place import pull_remote

    return pull_remote(options["registry"], ref, out, options=options["http"], **chosen)


def _print(pulled: Pulled, as_json: bool) -> None:
    if as_json:
        print_json(pulled)
        return
    exact = f" ({pulled.soc})" if pulled.soc else ""
    echo(f"{pulled.ref}, {pulled.target}{exact}, {pulled.precision}: {Path(pulled.path) / pulled.main}")
    echo("it was there already, unchanged" if pulled.already else f"{len(pulled.files)} files, every digest checked")
