"""``artifacts push`` and ``artifacts copy``: between a registry folder, OCI registries and archives."""

from __future__ import annotations

from pathlib import Path

import click

from artifacts.http_options import HttpOptions
from artifacts.names import parse_ref, version_tag
from artifacts.place import copy
from artifacts.registry import Registry, default_root
from artifacts.remote import Remote, parse_address
from artifacts.render import http_options, json_option, print_json, registry_option, size_text
from artifacts.transfer import push
from artifacts.versions import Versions


@click.command("push")
@click.argument("ref")
@click.argument("to", metavar="oci://HOST/PROJECT")
@click.option("--mount-from", default="", help="Another repository of that registry that may have the files already.")
@registry_option
@http_options
@json_option
def push_command(
    ref: str, to: str, *, mount_from: str, registry: Path | None, http: HttpOptions, as_json: bool
) -> None:
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
        click.echo(f"{done.address} has all of {tag} already")
    else:
        click.echo(f"{done.address}: {len(done.tags)} tags, {done.blobs} files, {size_text(done.uploaded)} sent")


@click.command("copy")
@click.argument("source")
@click.argument("destination")
@click.option("--all", "everything", is_flag=True, help="All versions, channels and events.")
@registry_option
@http_options
@json_option
def copy_command(
    source: str, destination: str, *, everything: bool, registry: Path | None, http: HttpOptions, as_json: bool
) -> None:
    """Copy versions from SOURCE to DESTINATION; digests, signatures and history stay as they are.

    Each is NAME[:TAG] of the registry folder, oci://HOST/PROJECT/NAME[:TAG], or oci-archive:FILE[:TAG], one file that
    can be carried to a site without network.
    """
    done = copy(source, destination, registry or default_root(), everything=everything, options=http)
    if as_json:
        print_json(done)
        return
    click.echo(
        f"{done.destination}: {len(done.tags)} tags: {', '.join(done.tags[:6])}{' …' if len(done.tags) > 6 else ''}"
    )
