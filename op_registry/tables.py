"""Reading the registry's data files: CSV tables and small TOML files, refused with file and line where they are wrong.

A data file is written by people, so every cell is checked when it is read: an unknown state, a range that can't be
read or a missing source is an error (CNV-2504) that names the file and the line, never a row that is skipped.
"""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from op_registry.errors import MalformedData
from op_registry.values import GRADES, STATES, Grade, State
from op_registry.versions import range_fault

DATA = Path(__file__).parent / "data"
MAX_BYTES = 8 << 20
"""A table larger than this isn't one of ours."""
MAX_OPSET = 64

T = TypeVar("T")


class Line(msgspec.Struct, frozen=True):
    """One row of a table, and where it stands."""

    path: Path
    number: int
    cells: dict[str, str]

    def fault(self, why: str) -> MalformedData:
        """The error that refuses the row."""
        return malformed(self.path, self.number, why)

    def text(self, column: str) -> str:
        """A cell that must not be empty."""
        value = self.cells.get(column, "")
        if not value:
            raise self.fault(f"column {column!r} is empty")
        return value

    def get(self, column: str) -> str:
        """A cell that may be empty."""
        return self.cells.get(column, "")

    def one_of(self, column: str, allowed: Iterable[T]) -> T:
        """A cell that holds one of some words."""
        value = self.cells.get(column, "")
        for item in allowed:
            if item == value:
                return item
        raise self.fault(f"column {column!r} holds {value!r}; it must be one of {', '.join(map(str, allowed))}")

    def state(self, column: str = "state") -> State:
        """A cell that holds a state."""
        return self.one_of(column, STATES)

    def grade(self, column: str = "grade") -> Grade:
        """A cell that holds a grade."""
        return self.one_of(column, GRADES)

    def opsets(self, column: str) -> frozenset[int] | None:
        """A cell that holds opsets: ``8-15 18``, or ``*`` for every one."""
        return self.parsed(column, parse_opsets)

    def versions(self, column: str) -> str:
        """A cell that holds a version range."""
        value = self.get(column)
        if fault := range_fault(value):
            raise self.fault(f"column {column!r}: {fault}")
        return value

    def parsed(self, column: str, parse: Callable[[str], T]) -> T:
        """A cell read by a function that raises ValueError with what is wrong."""
        try:
            return parse(self.get(column))
        except ValueError as fault:
            raise self.fault(f"column {column!r}: {fault}") from fault


def malformed(path: Path, number: int, why: str) -> MalformedData:
    """The error for a file that breaks its format at a line (0: the file as a whole)."""
    place = f"{path.parent.name}/{path.name}" + (f", line {number}" if number else "")
    hint = "correct that line; docs/concepts/support.md has the format"
    return MalformedData("CNV-2504", f"{place}: {why}", hint=hint)


@lru_cache(maxsize=1024)
def parse_opsets(text: str) -> frozenset[int] | None:
    """``8-15 18`` as numbers; ``*``: None, every opset. Raises ValueError."""
    if text == "*":
        return None
    numbers: set[int] = set()
    for part in text.split():
        low, dash, high = part.partition("-")
        if not part.isascii() or not low.isdigit() or not (high if dash else low).isdigit():
            raise ValueError(f"{part!r} is no opset or range of opsets")
        first, last = int(low), int(high or low)
        if not 0 < first <= last <= MAX_OPSET:
            raise ValueError(f"{part!r} is no range between 1 and {MAX_OPSET}")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def format_opsets(opsets: Iterable[int] | None) -> str:
    """Opset numbers as ``8-15 18``; None as ``*``."""
    if opsets is None:
        return "*"
    runs: list[list[int]] = []
    for number in sorted(opsets):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def read_bytes(path: Path) -> bytes:
    """A data file's bytes; one that can't be read or is far too large is refused."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise malformed(path, 0, f"is larger than {MAX_BYTES >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise malformed(path, 0, f"can't be read: {error.strerror}") from error


def read_text(path: Path) -> str:
    """A data file's text."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise malformed(path, 0, "isn't UTF-8 text") from error


def read_csv(path: Path, columns: Iterable[str]) -> Iterator[Line]:
    """The rows of a table, in order. Its header must hold ``columns``; others may follow."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise malformed(path, 1, str(error)) from error
    for column in columns:
        if column not in header:
            raise malformed(path, 1, f"column {column!r} is missing")
    if len(set(header)) != len(header):
        raise malformed(path, 1, "a column appears twice")
    width = len(header)
    try:
        for cells in reader:
            if len(cells) != width:
                raise malformed(path, reader.line_num, f"has {len(cells)} cells, the header has {width}")
            if not all(cell.isprintable() for cell in cells):
                raise malformed(path, reader.line_num, "a cell holds a line break or a control character")
            yield Line(path, reader.line_num, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise malformed(path, reader.line_num, str(error)) from error


def read_toml(path: Path, kind: type[T]) -> T:
    """A TOML file as a Struct; unknown keys and wrong types are refused with the place in the file."""
    try:
        content: Any = tomllib.loads(read_text(path))
        return msgspec.convert(content, kind)
    except (ValueError, RecursionError) as error:
        # ValueError: TOML that is none, a number of thousands of digits, or what the Struct does not take.
        raise malformed(path, 0, str(error) or "it is nested too deep") from error
