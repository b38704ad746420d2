"""``artifacts show``: one version or target in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from artifacts.fetch_commands import fetch_commands, remote_fetch_commands
from artifacts.listing import Shown, ShownTarget, list_model, show
from artifacts.names import parse_ref
from artifacts.registry import Registry
from artifacts.render import (
    any_registry_option,
    echo,
    http_options,
    json_option,
    number_text,
    place_of,
    print_json,
    print_table,
    size_text,
)

if TYPE_CHECKING:
    from artifacts.http_options import HttpOptions


@click.command("show")
@click.argument("ref")
@click.option("--fetch-commands", is_flag=True, help="Print how to fetch it with cp, skopeo, jq or curl alone.")
@any_registry_option
@http_options
@json_option
def command(ref: str, *, fetch_commands: bool, registry: str, http: HttpOptions, as_json: bool) -> None:
    """Show a version or target: REF is NAME, NAME:VERSION, NAME:CHANNEL or NAME@sha256:…"""
    root, registry, ref = place_of(registry, ref)
    if root is not None:
        _show(Registry(root), ref, fetch_commands, as_json)
        return
    from artifacts.place import remote_view

    with remote_view(registry, ref, whole=False, options=http) as view:
        _show(Registry(view), ref, fetch_commands, as_json, remote=registry)


def _show(store: Registry, ref: str, fetch_commands: bool, as_json: bool, *, remote: str = "") -> None:
    shown = show(store.root, parse_ref(ref))
    if fetch_commands:
        _print_commands(store, shown, as_json, remote)
    elif as_json:
        versions = list_model(shown.name, store.layout(shown.name)).versions
        print_json(shown, versions=msgspec.to_builtins(versions))
    else:
        _print_shown(shown)


def _print_commands(store: Registry, shown: Shown, as_json: bool, remote: str) -> None:
    found = [
        remote_fetch_commands(remote, target) if remote else fetch_commands(store.root, target)
        for target in shown.targets
    ]
    if as_json:
        print_json({"ref": shown.ref, "commands": found})
        return
    for item in found:
        for tool in ("cp", "skopeo", "jq", "curl"):
            if script := getattr(item, tool):
                echo(f"# {item.ref} with {tool}\n{script}\n")


def _print_shown(shown: Shown) -> None:
    echo(f"{shown.ref}  {shown.digest}")
    if shown.channels:
        echo(f"channels: {', '.join(shown.channels)}")
    columns = ("target", "soc", "precision", "gate", "ran on", "cosine", "rel L2", "size", "ref")
    print_table(columns, [_target_row(target) for target in shown.targets])
    for target in shown.targets:
        _print_target(target)


def _target_row(target: ShownTarget) -> tuple[str, ...]:
    return (
        target.target,
        target.soc or "–",
        target.precision,
        target.verdict,
        target.ran_on,
        number_text(target.cosine),
        number_text(target.rel_l2),
        size_text(target.bytes),
        target.ref,
    )


def _print_target(target: ShownTarget) -> None:
    manifest = target.manifest
    echo(f"{target.ref}  {target.digest}")
    rows = [(entry.name, size_text(entry.bytes), entry.sha256) for entry in (*manifest.files, *manifest.reports)]
    print_table(("file", "size", "digest"), rows)
    chain = [("source", manifest.model.format, manifest.model.sha256)]
    chain += [(link.stage, "", link.digest) for link in manifest.chain]
    print_table(("made from", "format", "digest"), chain)
    tools = sorted({**manifest.libraries, **manifest.toolchain}.items())
    echo("made with: " + ", ".join(f"{name} {version}" for name, version in tools) + "\n")
