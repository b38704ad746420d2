"""``convert check MODEL --target T``: everything before the compiler."""

from __future__ import annotations

from typing import Any

import click

from convert.commands.options import MODEL, RUN, TARGET, add_options, request_from
from convert.commands.show import print_conversion, progress
from convert.pipeline import convert_model
from convert.settings import load_settings


@click.command("check", context_settings={"max_content_width": 110})
@click.argument("model", type=click.Path())
@add_options(TARGET, MODEL, RUN)
def command(model: str, as_json: bool, quiet: bool, **given: Any) -> int:
    """Judge every operator of MODEL for each target: what is refused, why, from which source, what to do."""
    settings = load_settings({name: given[name] for name in ("timeout", "memory", "jobs")})
    with progress(quiet=quiet) as listener:
        conversion = convert_model(request_from(model, given, until="check"), settings, listener)
    return print_conversion(conversion, as_json=as_json)
