"""``convert explain CODE``: the page of an error code."""

from __future__ import annotations

import difflib
import re
from importlib import resources

import click
import msgspec

from artifacts.errors import UsageError

CODE = re.compile(r"(?:CNV-?)?(\d{4})", re.IGNORECASE)


def pages() -> dict[str, str]:
    """Every page by code."""
    folder = resources.files("convert") / "explain"
    return {
        entry.name.removesuffix(".md"): entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda item: item.name)
        if entry.name.startswith("CNV-")
    }


@click.command("explain")
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(code: str | None, as_json: bool) -> None:
    """Say what an error code means and what to do. Without CODE, list all of them."""
    known = pages()
    if code is None:
        listed = {name: title_of(text) for name, text in known.items()}
        lines = "\n".join(f"{name}  {title}" for name, title in listed.items())
        click.echo(msgspec.json.encode({"schema": 1, "codes": listed}).decode() if as_json else lines)
        return
    match = CODE.fullmatch(code.strip())
    wanted = f"CNV-{match[1]}" if match else code
    if wanted not in known:
        near = difflib.get_close_matches(wanted, known, n=3)
        hint = f"near it: {', '.join(near)}" if near else "`convert explain` lists all codes"
        raise UsageError("CNV-2008", f"there is no error code {code!r}", hint=hint)
    text = known[wanted]
    document = {"schema": 1, "code": wanted, "title": title_of(text), "page": text}
    click.echo(msgspec.json.encode(document).decode() if as_json else text.rstrip())


def title_of(text: str) -> str:
    """The title of a page: its first line without the code."""
    return text.splitlines()[0].lstrip("# ").partition(": ")[2]
