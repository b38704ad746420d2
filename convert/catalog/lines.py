"""Where each key of a TOML text stands. Only for texts that ``tomllib`` has taken: it knows the grammar, this does not.

Places are tuples: ``("model", 0, "gate", "cosine")`` is that key of the first ``[[model]]``. A key inside an inline
table stands where the table begins.
"""

from __future__ import annotations

import re

Place = tuple[str | int, ...]
"""Where a key stands: names, and numbers within arrays of tables."""
_KEY = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*""")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}' + r"|'''.*?'{3,5}" + r'|"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'", re.DOTALL
)


def key_lines(text: str) -> dict[Place, int]:
    """The line (from 1) of every table header and of every key that begins a line."""
    found: dict[Place, int] = {(): 1}
    arrays: dict[Place, int] = {}
    table: Place = ()
    place, line, counted = 0, 1, 0
    while place < len(text):
        end = _statement_end(text, place)
        statement = text[place:end]
        stripped = statement.lstrip()
        begins = place + len(statement) - len(stripped)
        line, counted = line + text.count("\n", counted, begins), begins
        if stripped.startswith("["):
            table = _header(stripped, arrays)
            _note(found, table, line)
        elif stripped and not stripped.startswith("#"):
            _note(found, (*table, *_dotted(stripped)), line)
        place = end + 1
    return found


def line_of(lines: dict[Place, int], path: Place) -> int:
    """The line of a path, or that of the nearest thing around it."""
    while path not in lines and path:
        path = path[:-1]
    return lines.get(path, 1)


def _note(found: dict[Place, int], path: Place, line: int) -> None:
    for length in range(1, len(path) + 1):
        found.setdefault(path[:length], line)


def _statement_end(text: str, place: int) -> int:
    """Where a key with its value, a header, a comment or an empty line ends: at a line break outside of everything."""
    depth = 0
    while place < len(text):
        char = text[place]
        if char in "\"'" and (match := _STRING.match(text, place)):
            place = match.end()
            continue
        if char == "#":
            place = text.find("\n", place)
            place = len(text) if place < 0 else place
            continue
        depth += (char in "[{") - (char in "]}")
        if char == "\n" and depth <= 0:
            return place
        place += 1
    return place


def _dotted(text: str) -> tuple[str, ...]:
    """The parts of a dotted key that a text begins with."""
    parts: list[str] = []
    place = 0
    while match := _KEY.match(text, place):
        parts.append(_unquoted(match))
        place = match.end()
        if text[place : place + 1] != ".":
            break
        place += 1
    return tuple(parts)


def _unquoted(match: re.Match[str]) -> str:
    import tomllib

    basic, literal, bare = match.groups()
    if basic is not None:
        return str(next(iter(tomllib.loads(f'"{basic}" = 0'))))
    return literal if literal is not None else bare


def _header(text: str, arrays: dict[Place, int]) -> Place:
    """The path of ``[a.b]`` or ``[[a.b]]``; keeps count of the tables of each array."""
    is_array = text.startswith("[[")
    names = _dotted(text[2 if is_array else 1 :])
    path: Place = ()
    for number, name in enumerate(names):
        path = (*path, name)
        last = number == len(names) - 1
        if is_array and last:
            arrays[path] = arrays.get(path, -1) + 1
        if path in arrays:
            path = (*path, arrays[path])
    return path


def shown(path: Place) -> str:
    """A path as a reader of the file would write it: ``model.gate.cosine``."""
    return ".".join(str(part) for part in path if not isinstance(part, int)) or "the file"
