"""How to fetch a target with standard tools alone: the commands that ``artifacts show --fetch-commands`` prints.

They are complete POSIX shell, quoted, and leave the files under their own names, checked with ``sha256sum``.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from artifacts.listing import ShownTarget
from artifacts.names import parse_ref


class FetchCommands(msgspec.Struct, frozen=True, kw_only=True):
    """Shell text by tool, for one target."""

    ref: str
    cp: str
    skopeo: str
    jq: str
    curl: str


def fetch_commands(root: Path, target: ShownTarget) -> FetchCommands:
    """The commands that fetch one target from the registry folder ``root``, or over HTTP from ``$REGISTRY``.

    ``cp`` needs coreutils only; ``skopeo`` names files by digest, so they are copied to their names; ``jq`` finds the
    files from the tag; ``curl`` works against any OCI registry that the model was copied to.
    """
    ref = parse_ref(target.ref)
    layout = root.absolute() / ref.name
    entries = [(entry.name, entry.sha256) for entry in target.files]
    out = shlex.quote(f"{ref.name.rsplit('/', 1)[-1]}-{(target.soc or target.target).lower()}")
    check = f"\n(cd {out} && {_check(entries)})"
    blobs = shlex.quote(str(layout / "blobs" / "sha256"))
    return FetchCommands(
        ref=target.ref,
        cp=_copies(entries, blobs, out) + check,
        skopeo=f"skopeo copy {_skopeo(layout, ref.tag)} dir:{out}.oci\n" + _copies(entries, f"{out}.oci", out) + check,
        jq=_jq_script(layout, ref.tag or target.digest, out),
        curl=_curl_script(ref.name, entries, out, check),
    )


def _skopeo(layout: Path, tag: str) -> str:
    return shlex.quote(f"oci:{layout}:{tag}" if tag else f"oci:{layout}")


def _check(entries: list[tuple[str, str]]) -> str:
    lines = "".join(f"{digest.removeprefix('sha256:')}  {name}\n" for name, digest in entries)
    return f"printf %s {shlex.quote(lines)} | sha256sum -c -"


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


def _curl_script(name: str, entries: list[tuple[str, str]], out: str, check: str) -> str:
    lines = [f"# REGISTRY is the address of the registry, as https://harbor.example.com\nmkdir -p {out}"]
    for title, digest in entries:
        url = f'"$REGISTRY"/v2/{name}/blobs/{digest}'
        lines.append(f"curl -fL -C - -o {out}/{shlex.quote(title)} {url}")
    return "\n".join(lines) + check
