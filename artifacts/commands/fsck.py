"""``artifacts fsck``: check the whole registry."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.errors import RegistryError
from artifacts.fsck import FsckReport, fsck
from artifacts.registry import default_root
from artifacts.render import echo, json_option, print_json, print_table, registry_option, size_text


@click.command("fsck")
@click.argument("models", nargs=-1)
@registry_option
@json_option
@click.pass_context
def command(ctx: click.Context, models: tuple[str, ...], registry: Path | None, as_json: bool) -> None:
    """Walk every ref and hash every blob of the registry, or of MODELS alone. Nothing is changed.

    Damage ends with exit code 9. What a stopped publisher left behind is listed and is no damage.
    """
    report = fsck(registry or default_root(), models)
    error = _error(report)
    if as_json:
        print_json(report, clean=report.clean, error=error.as_json() if error else None)
    else:
        _print_report(report)
    if error and not as_json:
        raise error
    ctx.exit(error.exit_code if error else 0)


def _error(report: FsckReport) -> RegistryError | None:
    count = sum(len(model.damage) for model in report.models)
    if not count:
        return None
    return RegistryError(
        "CNV-9013",
        f"{count} fault{'s' if count > 1 else ''} in the registry {report.root}",
        hint="publish the versions named above again, or copy them from another registry; their digests stay the same",
    )


def _print_report(report: FsckReport) -> None:
    echo(report.root)
    rows = [
        (model.name, str(model.refs), str(model.blobs), size_text(model.bytes), str(len(model.damage) or "none"))
        for model in report.models
    ]
    print_table(("model", "refs", "blobs", "size", "damage"), rows)
    for model in report.models:
        for fault in model.damage:
            echo(f"{model.name}: {fault.fault}: {fault.what}" + (f" ({fault.digest})" if fault.digest else ""))
        waste = sum(item.bytes for item in model.leavings)
        if model.leavings:
            echo(f"{model.name}: {len(model.leavings)} leftover files that nothing refers to, {size_text(waste)}")
