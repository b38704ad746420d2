"""``artifacts push``: push a version, target or channel to an OCI registry."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.http_options import HttpOptions
from artifacts.names import parse_ref, version_tag
from artifacts.registry import Registry, default_root
from artifacts.remote import Remote, parse_address
from artifacts.render import echo, http_options, json_option, print_json, registry_option, size_text
from artifacts.transfer import push
from artifacts.versions import Versions


@click.command("push")
@click.argument("ref")
@click.argument("to", metavar="oci://HOST/PROJECT")
@click.option("--mount-from", default="", help="Another repository of that registry that may have the files already.")
@registry_option
@http_options
@json_option
def command(ref: str, to: str, *, mount_from: str, registry: Path | None, http: HttpOptions, as_json: bool) -> None:
    """Push a version, target or channel of the registry folder to an OCI registry, with signatures and history.

    The model's name becomes the repository below PROJECT. What is there already is not sent again; a version that is
    there with other content is refused.
    """
    wanted = parse_ref(ref)
    layout = Registry(registry or default_root()).open_model(wanted.name)
    tag = wanted.tag or version_tag(Versions(layout, layout.refs()).newest)
    with Remote(parse_address(to).child(wanted.name), http) as remote:
        done = push(layout, (tag,), remote, mount_from=mount_from)
    if as_json:
        print_json(done)
        return
    if done.already:
        echo(f"{done.address} has all of {tag} already")
    else:
        echo(f"{done.address}: {len(done.tags)} tags, {done.blobs} files, {size_text(done.uploaded)} sent")
