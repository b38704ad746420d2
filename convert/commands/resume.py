"""``convert resume BUNDLE``: go on with a handoff bundle that came back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from convert.commands.options import add_options
from convert.commands.show import print_conversion, progress
from convert.gate import parse_gate
from convert.handoff.resume import ResumeRequest, resume_bundle
from convert.settings import load_settings

OPTIONS = (
    click.option("--compiled", type=click.Path(), metavar="FILE", help="The compiled file, where it is not in out/."),
    click.option(
        "--measured", type=click.Path(), metavar="PATH", help="The device's outputs: a folder of NNN.npz, or one .npz."
    ),
    click.option("--soc", metavar="NAME", help="The exact SoC, where compile.sh did not note it."),
    click.option("--gate", "gates", multiple=True, metavar="METRIC=VALUE", help="Replace a threshold of the gate."),
    click.option("--metric", "metrics", multiple=True, metavar="WHERE", help="A metric of your own: module:callable."),
    click.option("--name", metavar="NAME", help="Another name in the registry than the bundle says."),
    click.option("--version", "model_version", metavar="V", help="The version to publish."),
    click.option("--out", metavar="DIR", help="Where files are put: DIR/NAME/TARGET/ (default: convert-out)."),
    click.option("--registry", metavar="DIR", help="The registry to publish into."),
    click.option("--no-publish", is_flag=True, help="Stop after the gate."),
    click.option("--launcher", metavar="TEXT", help="What a compiler here is started with: a container, ssh, srun."),
    click.option("--timeout", type=float, metavar="S", help="Seconds that one stage may take."),
    click.option("--memory", metavar="SIZE", help="Memory that one stage may use, such as 8GB."),
    click.option("--no-cache", is_flag=True, help="Neither read nor write the stage cache."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout, also on failure."),
    click.option("--quiet", "-q", is_flag=True, help="No progress on stderr."),
)


@click.command("resume", context_settings={"max_content_width": 110})
@click.argument("bundle", type=click.Path())
@add_options(OPTIONS)
def command(bundle: str, as_json: bool, quiet: bool, **given: Any) -> int:
    """Take what was compiled and measured elsewhere, judge it, and publish what passed.

    BUNDLE is a .handoff.tar, or the folder that it unpacks to. Without outputs of a device the gate is judged on the
    forecast, and without a forecast the artifact stays unpublished. Where nothing was compiled yet and the toolchain is
    on this machine, it is compiled here.
    """
    settings = load_settings(
        {name: given[name] or None for name in ("registry", "out", "timeout", "memory", "launcher")}
    )
    wanted = ResumeRequest(
        place=str(Path(bundle).absolute()),
        compiled=given["compiled"] or "",
        measured=given["measured"] or "",
        soc=given["soc"] or "",
        gate=parse_gate(given["gates"], [text.rpartition(":")[2] for text in given["metrics"]]),
        metrics=given["metrics"],
        name=given["name"] or "",
        version=given["model_version"] or "",
        out=given["out"] or "",
        publish=not given["no_publish"],
        use_cache=not given["no_cache"],
    )
    with progress(quiet=quiet) as listener:
        conversion = resume_bundle(wanted, settings, listener)
    return print_conversion(conversion, as_json=as_json)
