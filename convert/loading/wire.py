"""Reading protobuf messages field by field, with bounds, straight from a mapped file.

Enough of the wire format (https://protobuf.dev/programming-guides/encoding/) to tell what a file is and to find a few
fields in it; payloads such as weights are stepped over and never touched.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import NamedTuple

VARINT, I64, LEN, I32 = 0, 1, 2, 5
Buffer = bytes | mmap.mmap


class WireError(ValueError):
    """The bytes are no protobuf message, or end before it does."""


class Field(NamedTuple):
    """One field: its number, wire type, and either its varint ``value`` or where its payload lies."""

    number: int
    kind: int
    value: int
    start: int
    end: int


def read_varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    """A varint and the position behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise WireError("it ends inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise WireError("a number in it is too long")


def fields(data: Buffer, start: int, end: int) -> Iterator[Field]:
    """The fields of the message in ``data[start:end]``. Raises :class:`WireError` where they do not fit."""
    at = start
    while at < end:
        # Most tags and lengths are one byte; the call for longer ones would cost more than all the rest.
        tag = data[at]
        if tag < 0x80:
            at += 1
        else:
            tag, at = read_varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        value = 0
        first = at
        if kind == VARINT:
            value, at = read_varint(data, at, end)
        elif kind == LEN:
            if at < end and data[at] < 0x80:
                length, at = data[at], at + 1
            else:
                length, at = read_varint(data, at, end)
            first = at
            at += length
        elif kind == I64:
            at += 8
        elif kind == I32:
            at += 4
        else:
            raise WireError(f"field {number} has the unknown wire type {kind}")
        if number == 0 or at > end:
            raise WireError(f"field {number} ends {at - end:,} bytes behind the end" if number else "a field is 0")
        yield Field(number, kind, value, first, at)


def signed(value: int) -> int:
    """A 64-bit varint as the signed number that it stands for."""
    return value - (1 << 64) if value >= 1 << 63 else value


def text(data: Buffer, field: Field, limit: int = 1 << 16) -> str:
    """The text of a field. Raises :class:`WireError` where it is no UTF-8 or longer than ``limit`` bytes."""
    if field.kind != LEN or field.end - field.start > limit:
        raise WireError(f"field {field.number} is no short text")
    try:
        return bytes(data[field.start : field.end]).decode()
    except UnicodeDecodeError as error:
        raise WireError(f"field {field.number} is no valid text") from error
