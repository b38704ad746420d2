"""``convert explain WHAT``: an error code of ours or of a vendor, a vendor's log, or a word that people search for."""

from __future__ import annotations

import collections
import difflib
import re
import sys
from importlib import resources
from pathlib import Path
from typing import IO, Any

import click
import msgspec

from artifacts.errors import UsageError
from artifacts.render import echo

CODE = re.compile(r"(?:CNV-?)?(\d{4})", re.IGNORECASE)
HEAD, TAIL = 1 << 20, 4 << 20
"""Bytes of a log's beginning and end that are read, as many as a conversion keeps of a compiler's."""
ALSO = 5
"""Further causes of a log that are shown."""


def pages() -> dict[str, str]:
    """Every page by code."""
    folder = resources.files("convert") / "explain"
    return {
        entry.name.removesuffix(".md"): entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda item: item.name)
        if entry.name.startswith("CNV-")
    }


@click.command("explain")
@click.argument("what", required=False)
@click.option("--vendor", help="Whose log it is: atc, magicmind, migraphx, tensorrt or ixrt; else it is found out.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(what: str | None, vendor: str | None, as_json: bool) -> None:
    """Say what an error means and what to do.

    WHAT is a code of this program (CNV-8001), a code of a vendor's compiler (E19010, EZ3003, 507008), a file that
    holds a compiler's log, `-` for a log on standard input, or a word such as OP_NOT_SUPPORTED. Without WHAT, all
    codes of this program are listed.
    """
    known = pages()
    if what is None:
        listed = {name: title_of(text) for name, text in known.items()}
        lines = "\n".join(f"{name}  {title}" for name, title in listed.items())
        echo(msgspec.json.encode({"schema": 1, "codes": listed}).decode() if as_json else lines)
        return
    document = _page(what, known) or _log(what, vendor) or _vendor_code(what) or _word(what, known)
    if document is None:
        raise _unknown(what, known)
    echo(msgspec.json.encode(document).decode() if as_json else _text(document))


def title_of(text: str) -> str:
    """The title of a page: its first line without the code."""
    return text.splitlines()[0].lstrip("# ").partition(": ")[2]


def _page(what: str, known: dict[str, str]) -> dict[str, Any] | None:
    match = CODE.fullmatch(what.strip())
    wanted = f"CNV-{match[1]}" if match else what
    if wanted not in known:
        return None
    text = known[wanted]
    return {"schema": 1, "code": wanted, "title": title_of(text), "page": text}


def _log(what: str, vendor: str | None) -> dict[str, Any] | None:
    """The document of a log; None where ``what`` is no file. Raises UsageError CNV-2262."""
    from convert.diagnosis.lookup import find_vendor
    from convert.diagnosis.reading import matches_in, read_log
    from convert.diagnosis.tables import VENDORS

    log = _read(what)
    if log is None:
        return None
    if vendor is not None and vendor not in VENDORS:
        near = difflib.get_close_matches(vendor, VENDORS, n=1)
        raise UsageError(
            "CNV-2263",
            f"there are no error tables for the vendor {vendor!r}",
            hint=f"did you mean {near[0]}?" if near else f"there are: {', '.join(VENDORS)}",
        )
    found = vendor or find_vendor(log)
    diagnosis = read_log(found or VENDORS[0], log)
    seen = {diagnosis.hint}
    also: list[dict[str, str]] = []
    for match in matches_in(found, log) if found else []:
        if match.row.action not in seen and len(also) < ALSO:
            seen.add(match.row.action)
            also.append({"cause": match.row.cause, "line": match.line[:200], "hint": match.row.action})
    told = msgspec.to_builtins(diagnosis)
    return {"schema": 1, "log": what, "vendor": found, **told, "also": also}


def _read(what: str) -> str | None:
    """Head and tail of a log; None where there is no such file. Raises UsageError CNV-2262."""
    if what == "-":
        return _ends(sys.stdin.buffer)
    path = Path(what)
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise UsageError("CNV-2262", f"{what} is no file", hint="name the log itself, such as compile.log")
        with path.open("rb") as stream:
            return _ends(stream)
    except (OSError, ValueError) as error:
        if not isinstance(error, OSError) or len(what) > 255:
            return None
        raise UsageError(
            "CNV-2262",
            f"{what} can't be read: {error.strerror}",
            hint="check its permissions, or pipe it: `convert explain - < LOG`",
        ) from error


def _ends(stream: IO[bytes]) -> str:
    head = stream.read(HEAD)
    parts: collections.deque[bytes] = collections.deque(maxlen=TAIL // 65536)
    while part := stream.read(65536):
        parts.append(part)
    return (head + b"".join(parts)).decode("utf-8", "replace")


def _vendor_code(what: str) -> dict[str, Any] | None:
    from convert.diagnosis.lookup import rows_of_code

    rows = rows_of_code(what)
    return {"schema": 1, "vendor_code": what.strip().upper(), "causes": _causes(rows)} if rows else None


def _word(what: str, known: dict[str, str]) -> dict[str, Any] | None:
    from convert.diagnosis.lookup import kind_of_word, rows_of_kind
    from convert.diagnosis.tables import KINDS

    kind = kind_of_word(what)
    if not kind:
        return None
    code = KINDS[kind].code
    causes = _causes(rows_of_kind(kind))
    return {"schema": 1, "word": what, "code": code, "title": title_of(known[code]), "causes": causes}


def _causes(rows: list[Any]) -> list[dict[str, str]]:
    from convert.diagnosis.tables import KINDS

    return [
        {
            "vendor": row.vendor,
            "code": KINDS[row.kind].code,
            "cause": row.cause,
            "hint": row.action,
            "versions": row.versions,
            "source": row.source,
        }
        for row in rows
    ]


def _unknown(what: str, known: dict[str, str]) -> UsageError:
    from convert.diagnosis.lookup import near

    if re.match(r"(?i)cnv", what.strip()) or CODE.fullmatch(what.strip()):
        close = difflib.get_close_matches(what.strip().upper(), known, n=3)
        hint = f"near it: {', '.join(close)}" if close else "`convert explain` lists all codes"
        return UsageError("CNV-2008", f"there is no error code {what!r}", hint=hint)
    close = near(what)
    hint = f"near it: {', '.join(close)}" if close else "`convert explain` lists all codes of this program"
    return UsageError("CNV-2261", f"{what!r} is no file, no error code and no word that is known here", hint=hint)


def _text(document: dict[str, Any]) -> str:
    if "page" in document:
        return str(document["page"]).rstrip()
    if "log" in document:
        return _log_text(document)
    head = document.get("vendor_code") or f"{document['word']}: {document['title']} ({document['code']})"
    parts = [str(head)]
    for cause in document["causes"]:
        when = f", {cause['versions']}" if cause["versions"] not in ("", "all") else ""
        parts.append(f"\n{cause['cause']}  [{cause['vendor']}{when}]\n  {cause['hint']}")
    return "\n".join(parts)


def _log_text(document: dict[str, Any]) -> str:
    vendor = document["vendor"] or "a vendor that is not known"
    lines = [f"log       of {vendor}"]
    lines.append(
        f"{'cause     ' if document['known'] else 'last lines'}{'' if document['known'] else '  '}{document['cause']}"
    )
    if document["nodes"]:
        lines.append(f"nodes     {', '.join(document['nodes'])}")
    lines.append(f"to do     {document['hint']}")
    if document["known"]:
        lines.append(f"page      convert explain {document['code']}")
    lines += [f"also      {one['cause']}\n          {one['hint']}" for one in document["also"]]
    return "\n".join(lines)
