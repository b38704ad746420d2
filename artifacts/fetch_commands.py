"""How to fetch a target with standard tools alone: the commands that ``artifacts show --fetch-commands`` prints.

They are complete POSIX shell, quoted, and leave the files under their own names, checked with ``sha256sum``.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from artifacts.listing import ShownTarget
from artifacts.names import parse_ref


class FetchCommands(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Shell text by tool, for one target. ``cp`` and ``jq`` need the registry folder."""

    ref: str
    cp: str = ""
    skopeo: str
    jq: str = ""
    curl: str


def fetch_commands(root: Path, target: ShownTarget) -> FetchCommands:
    """The commands that fetch one target from the registry folder ``root``, or over HTTP from ``$REGISTRY``.

    ``cp`` needs coreutils only; ``skopeo`` names files by digest, so they are copied to their names; ``jq`` finds the
    files from the tag; ``curl`` works against any OCI registry that the model was copied to.
    """
    ref = parse_ref(target.ref)
    layout = root.absolute() / ref.name
    out, entries = _folder(target), _entries(target)
    blobs = shlex.quote(str(layout / "blobs" / "sha256"))
    return FetchCommands(
        ref=target.ref,
        cp=_copies(entries, blobs, out) + _check(entries, out),
        skopeo=_skopeo_script(f"oci:{layout}" + (f":{ref.tag}" if ref.tag else ""), entries, out),
        jq=_jq_script(layout, ref.tag or target.digest, out),
        curl=_curl_script('"$REGISTRY"', ref.name, entries, out),
    )


def remote_fetch_commands(registry: str, target: ShownTarget) -> FetchCommands:
    """The commands that fetch one target from an OCI registry, ``oci://host/project``."""
    ref = parse_ref(target.ref)
    host, _, project = registry.removeprefix("oci://").partition("/")
    repository = f"{project.strip('/')}/{ref.name}".lstrip("/")
    entries, out = _entries(target), _folder(target)
    source = f"docker://{host}/{repository}" + (f":{ref.tag}" if ref.tag else f"@{target.digest}")
    return FetchCommands(
        ref=target.ref,
        skopeo=_skopeo_script(source, entries, out),
        curl=_curl_script(f'"${{REGISTRY:-https://{host}}}"', repository, entries, out),
    )


def download_script(target: ShownTarget, urls: dict[str, str]) -> str:
    """Shell that fetches a target's files from the URL of each by name, and checks them."""
    out = _folder(target)
    lines = [f"mkdir -p {out}"]
    lines += [f"curl -fL -C - -o {out}/{shlex.quote(name)} {shlex.quote(url)}" for name, url in urls.items()]
    return "\n".join(lines) + _check(_entries(target), out)


def _entries(target: ShownTarget) -> list[tuple[str, str]]:
    return [(entry.name, entry.sha256) for entry in target.files]


def _folder(target: ShownTarget) -> str:
    name = parse_ref(target.ref).name.rsplit("/", 1)[-1]
    return shlex.quote(f"{name}-{(target.soc or target.target).lower()}")


def _skopeo_script(source: str, entries: list[tuple[str, str]], out: str) -> str:
    copies = _copies(entries, f"{out}.oci", out)
    return f"skopeo copy {shlex.quote(source)} dir:{out}.oci\n{copies}{_check(entries, out)}"


def _check(entries: list[tuple[str, str]], out: str) -> str:
    lines = "".join(f"{digest.removeprefix('sha256:')}  {name}\n" for name, digest in entries)
    return f"\n(cd {out} && printf %s {shlex.quote(lines)} | sha256sum -c -)"


def _copies(entries: list[tuple[str, str]], source: str, out: str) -> str:
    lines = [f"cp {source}/{digest.removeprefix('sha256:')} {out}/{shlex.quote(name)}" for name, digest in entries]
    return "\n".join([f"mkdir -p {out}", *lines])


def _jq_script(layout: Path, tag: str, out: str) -> str:
    place, tag = shlex.quote(str(layout)), shlex.quote(tag)
    return f"""\
mkdir -p {out}
B={place}/blobs
M=$(jq -er --arg t {tag} '.manifests[] |\
 select(.annotations["org.opencontainers.image.ref.name"]==$t or .digest==$t).digest' {place}/index.json | head -n 1)
jq -er '.layers[]|[.digest,.annotations["org.opencontainers.image.title"]]|@tsv' "$B/${{M%%:*}}/${{M#*:}}" |
while IFS="$(printf '\\t')" read -r D NAME; do
  case "$NAME" in */*|.*|-*|"") echo "refused: $NAME" >&2; exit 1;; esac
  cp "$B/${{D%%:*}}/${{D#*:}}" {out}/"$NAME" && echo "${{D#*:}}  "{out}/"$NAME" | sha256sum -c - || exit 1
done"""


def _curl_script(registry: str, name: str, entries: list[tuple[str, str]], out: str) -> str:
    lines = [f"# REGISTRY is the address of the registry, as https://harbor.example.com\nmkdir -p {out}"]
    for title, digest in entries:
        lines.append(f"curl -fL -C - -o {out}/{shlex.quote(title)} {registry}/v2/{name}/blobs/{digest}")
    return "\n".join(lines) + _check(entries, out)
