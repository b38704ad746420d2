"""Reading ``convert.toml``: every problem at once, each with its line.

Three rounds, so that a fault is told once: the grammar (``tomllib``), the shape (the structs of ``values``), the sense
(targets that exist, thresholds that mean something, schedules that can fire).
"""

from __future__ import annotations

import difflib
import tomllib
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from artifacts.digest import read_start
from convert.catalog.lines import Place, key_lines, line_of, shown
from convert.catalog.sense import Found, sense_of
from convert.catalog.values import Catalog, CatalogFile, Entry, Problem
from convert.errors import UsageError
from convert.settings import FILE

MAX_BYTES = 4 << 20


def read_catalog(path: Path) -> Catalog:
    """The catalogue in a file. An empty one is a catalogue, too.

    Raises:
        UsageError: CNV-2351 (the file can't be read, or is no TOML), CNV-2352 (what it says is wrong; all of it).
    """
    text = read_text(path)
    problems, file = check_text(text)
    if problems:
        raise wrong(path, problems)
    lines = key_lines(text)
    entries = tuple(
        Entry(line=line_of(lines, ("model", number)), model=model) for number, model in enumerate(file.model)
    )
    return Catalog(path=str(path.absolute()), defaults=file.catalog, entries=entries)


def read_text(path: Path) -> str:
    """The text of a catalogue file. Raises UsageError CNV-2351."""
    try:
        data = read_start(path, MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UsageError(
                "CNV-2351",
                f"{path} is larger than {MAX_BYTES >> 20} MiB",
                hint="split the catalogue, or name the right file",
            )
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError as error:
        raise UsageError(
            "CNV-2351", f"there is no {path}", hint=f"write one ({FILE} in the current folder), or name it with --file"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("CNV-2351", f"{path} can't be read: {error}", hint="the catalogue is TOML in UTF-8") from error


def check_text(text: str) -> tuple[tuple[Problem, ...], CatalogFile]:
    """Every problem of a text, in the order of its lines, and the file where there is none (else an empty one)."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # ValueError beside TOML's own: a number of thousands of digits.
        return (_grammar(text, error),), CatalogFile()
    found = list(_shape(document, CatalogFile, ()))
    file = CatalogFile()
    if not found:
        file = msgspec.convert(document, CatalogFile)
        found = list(sense_of(file))
    lines = key_lines(text)
    problems = [Problem(line=line_of(lines, path), key=shown(path), message=message) for path, message in found]
    return tuple(sorted(problems, key=lambda problem: (problem.line, problem.key))), file


def wrong(path: Path, problems: tuple[Problem, ...]) -> UsageError:
    """The error that lists every problem."""
    listed = "; ".join(str(problem) for problem in problems)
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return UsageError(
        "CNV-2352",
        f"{path} has {count}: {listed}",
        hint="`convert catalog check` lists them one a line; convert.example.toml shows every key",
    )


def _grammar(text: str, error: Exception) -> Problem:
    words = str(error)
    _, _, place = words.rpartition("(at line ")
    number = place.partition(",")[0]
    line = int(number) if number.isdigit() else text.count("\n") + 1
    return Problem(line=line, key="TOML", message=words)


# --------------------------------------------------------------------------------------------------------------- shape


def _shape(value: Any, kind: Any, path: Place) -> Iterator[Found]:
    """Where a parsed value is not what a struct's fields say. Goes into structs; leaves are checked by msgspec."""
    inner = _struct_in(kind)
    if inner is None:
        yield from _leaf(value, kind, path)
    elif get_origin(kind) is tuple:
        yield from _each(value, list, "an array of tables", lambda: enumerate(value), (inner, path))
    elif get_origin(kind) is dict:
        yield from _each(value, dict, "a table", lambda: value.items(), (inner, path))
    elif not isinstance(value, dict):
        yield path, f"this is a table, not {_kind(value)}"
    else:
        fields = _fields(inner)
        names = list(inner.__struct_fields__)
        for key, item in value.items():
            if key not in names:
                yield (*path, key), _unknown_key(key, names)
            else:
                yield from _shape(item, fields[key], (*path, key))


def _each(value: Any, wanted: type, words: str, items: Callable[[], Any], inside: tuple[Any, Place]) -> Iterator[Found]:
    kind, path = inside
    if not isinstance(value, wanted):
        yield path, f"this is {words}, not {_kind(value)}"
        return
    for key, item in items():
        yield from _shape(item, kind, (*path, key))


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The type of each field; evaluating them costs more than all else, and a catalogue has thousands of tables."""
    return get_type_hints(kind, include_extras=True)


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """The struct that a type is, or holds as ``tuple[S, ...]`` or ``dict[str, S]``."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    if get_origin(kind) in (tuple, dict):
        for inner in get_args(kind):
            if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
                return inner
    return None


def _leaf(value: Any, kind: Any, path: Place) -> Iterator[Found]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message = str(error).replace("`", "").removesuffix(" - at $")
        choices = _choices(kind)
        yield path, f"{message} (one of {', '.join(choices)})" if choices and isinstance(value, str) else message


def _choices(kind: Any) -> list[str]:
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return [str(word) for option in options for word in get_args(option) if isinstance(word, str)]


def _unknown_key(key: str, names: list[str]) -> str:
    near = difflib.get_close_matches(key, names, n=1)
    return f"no such key; did you mean {near[0]}?" if near else f"no such key; there are {', '.join(names)}"


def _kind(value: Any) -> str:
    words = {
        dict: "a table",
        list: "an array",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return words.get(type(value), f"a {type(value).__name__}")
