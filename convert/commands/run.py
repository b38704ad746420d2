"""``convert MODEL --target T``: the main job."""

from __future__ import annotations

from typing import Any

import click

from convert.commands.options import MODEL, RUN, TARGET, add_options, key_values, request_from
from convert.commands.show import print_conversion, progress
from convert.gate import parse_gate
from convert.pipeline import convert_model
from convert.settings import load_settings
from convert.target_options import parse_preprocess

WHAT = (
    click.option("--precision", "-p", type=click.Choice(["fp32", "fp16", "bf16", "int8", "mixed", "auto"])),
    click.option(
        "--calibration-method",
        type=click.Choice(["minmax", "entropy", "percentile"]),
        default="minmax",
        show_default=True,
        help="How int8 ranges are found.",
    ),
    click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of the backend."),
    click.option(
        "--preprocess", metavar="JSON", help="Image preprocessing that the compiler builds in: an object, or its file."
    ),
    click.option("--gate", "gates", multiple=True, metavar="METRIC=VALUE", help="Replace a threshold of the gate."),
    click.option("--metric", "metrics", multiple=True, metavar="WHERE", help="A metric of your own: module:callable."),
    click.option("--argmax", is_flag=True, help="Compare which class wins, too."),
    click.option("--gate-on", metavar="TARGET", help="Judge the graph on this target first, such as migraphx-ref."),
    click.option("--name", metavar="NAME", help="The model's name in the registry (default: from the file's name)."),
    click.option("--version", "model_version", metavar="V", help="The version to publish (default: the next patch)."),
    click.option("--out", metavar="DIR", help="Where files are put: DIR/NAME/TARGET/ (default: convert-out)."),
    click.option("--registry", metavar="DIR", help="The registry to publish into."),
    click.option("--no-publish", is_flag=True, help="Stop after the gate."),
    click.option("--launcher", metavar="TEXT", help="What the compiler is started with: a container, ssh, srun."),
    click.option("--dry-run", is_flag=True, help="Everything before the compiler, and what it would be told."),
)


@click.command("run", context_settings={"max_content_width": 110})
@click.argument("model", type=click.Path())
@add_options(TARGET, WHAT, MODEL, RUN)
def command(model: str, as_json: bool, quiet: bool, **given: Any) -> int:
    """Convert MODEL to an artifact for each target, judge it, and publish what passed."""
    names = ("registry", "out", "timeout", "memory", "jobs", "launcher")
    settings = load_settings({name: given[name] or None for name in names})
    request = request_from(
        model,
        given,
        precision=given["precision"] or "",
        options=key_values(given["options"], "--option"),
        calibration=given["calibration_method"],
        gate=parse_gate(given["gates"], [text.rpartition(":")[2] for text in given["metrics"]]),
        metrics=given["metrics"],
        argmax=given["argmax"],
        preprocess=parse_preprocess(given["preprocess"] or ""),
        gate_on=given["gate_on"] or "",
        name=given["name"] or "",
        version=given["model_version"] or "",
        out=given["out"] or "",
        publish=not given["no_publish"],
        until="plan" if given["dry_run"] else "publish",
    )
    with progress(quiet=quiet) as listener:
        conversion = convert_model(request, settings, listener)
    return print_conversion(conversion, as_json=as_json)
