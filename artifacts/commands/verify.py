"""``artifacts verify``: check a version, a target or a pulled folder."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.registry import default_root
from artifacts.render import json_option, print_json, registry_option, size_text
from artifacts.verify import verify_folder, verify_ref


@click.command("verify")
@click.argument("what", metavar="REF|FOLDER")
@registry_option
@json_option
def command(what: str, registry: Path | None, as_json: bool) -> None:
    """Hash all files of a version or target in the registry, or of a folder made by `artifacts pull`."""
    folder = Path(what)
    if folder.is_dir():
        found = verify_folder(folder)
        if as_json:
            print_json({"ok": True, "folder": what, "digest": found.manifest_digest, "checked": found.checked})
        else:
            click.echo(f"{what}: {len(found.checked)} files are as their manifest says ({found.manifest_digest})")
        return
    stored = verify_ref(registry or default_root(), what)
    if as_json:
        print_json(stored, ok=True)
        return
    for target in stored.targets:
        name = target.soc or target.target
        click.echo(f"{stored.ref}, {name}: {target.checked} blobs, {size_text(target.bytes)}, all as their digests say")
