"""``artifacts verify``: check a version, a target or a pulled folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from artifacts.errors import UsageError
from artifacts.names import parse_ref
from artifacts.render import (
    any_registry_option,
    echo,
    http_options,
    json_option,
    key_option,
    place_of,
    print_json,
    signatures_option,
    size_text,
)
from artifacts.trust import Trust, check_folder_signature, check_ref, make_trust
from artifacts.verify import verify_folder, verify_ref

if TYPE_CHECKING:
    from artifacts.http_options import HttpOptions
    from artifacts.signing import SignatureCheck


@click.command("verify")
@click.argument("what", metavar="REF|FOLDER")
@key_option
@signatures_option
@click.option(
    "--signature", type=click.Path(path_type=Path), help="The signature of a folder, where it lies elsewhere."
)
@any_registry_option
@http_options
@json_option
def command(
    what: str,
    *,
    key: tuple[Path, ...],
    signatures: str | None,
    signature: Path | None,
    registry: str,
    http: HttpOptions,
    as_json: bool,
) -> None:
    """Hash all files of a version or target in the registry, or of a pulled folder, and judge the signatures."""
    if Path(what).is_dir():
        _verify_folder(what, make_trust(key, signatures), signature, as_json)
        return
    if what.startswith(("/", "./", "../")):
        raise UsageError("CNV-2404", f"no folder {what}", hint="name a pulled folder that exists, or NAME:VERSION")
    root, registry, what = place_of(registry, what)
    trust = make_trust(key, signatures, tag=parse_ref(what).tag)
    if root is not None:
        _verify_ref(root, what, trust, as_json)
        return
    from artifacts.place import remote_view

    with remote_view(registry, what, whole=True, options=http) as view:
        _verify_ref(view, what, trust, as_json)


def _verify_folder(what: str, trust: Trust, signature: Path | None, as_json: bool) -> None:
    found = verify_folder(Path(what))
    checks = (check_folder_signature(found, trust, signature),)
    trust.require(checks, what)
    document = {"folder": what, "digest": found.manifest_digest, "checked": found.checked}
    lines = [f"{what}: {len(found.checked)} files are as their manifest says ({found.manifest_digest})"]
    _print(trust, checks, document, lines, as_json)


def _verify_ref(root: Path, what: str, trust: Trust, as_json: bool) -> None:
    stored = verify_ref(root, what)
    checks = check_ref(root, what, trust)
    trust.require(checks, what)
    document = {"ref": stored.ref, "digest": stored.digest, "targets": stored.targets}
    lines = [
        f"{stored.ref}, {item.soc or item.target}: {item.checked} blobs, {size_text(item.bytes)},"
        " all as their digests say"
        for item in stored.targets
    ]
    _print(trust, checks, document, lines, as_json)


def _print(
    trust: Trust, checks: tuple[SignatureCheck, ...], document: dict[str, Any], lines: list[str], as_json: bool
) -> None:
    if as_json:
        print_json({"ok": True, **document, "policy": trust.policy, "signatures": checks})
        return
    for line in lines:
        echo(line)
    for check in checks:
        keys = sorted({item.key[:16] for item in check.signatures if item.state == check.state and item.key})
        echo(f"{check.name}: {check.state}" + (f" by {', '.join(keys)}…" if keys else ""))
    if trust.policy == "warn" and any(check.state != "verified" for check in checks):
        echo("warning: not all of it is signed by a key that you trust", err=True)
