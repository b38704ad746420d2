"""JSON from elsewhere: bounded in size and nesting, no key twice, no NaN, and errors that name the document."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NoReturn, TypeVar

import msgspec

from artifacts.errors import RegistryError

MAX_DEPTH = 64
MANIFEST_BYTES = 4 << 20
"""The largest OCI manifest or index that registries take."""
INDEX_BYTES = 64 << 20
"""The largest ``index.json`` that is read: about 300,000 refs."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

T = TypeVar("T")


def parse_json(data: bytes, what: str, *, limit: int = MANIFEST_BYTES, code: str = "CNV-9008") -> Any:
    """The value of a JSON document. ``what`` names it in errors.

    Raises:
        RegistryError: ``code``, when the document is too large or too deep, repeats a key or isn't JSON.
    """
    if len(data) > limit:
        raise _invalid(code, what, f"it has {len(data)} bytes, more than {limit}")
    try:
        value = json.loads(data, object_pairs_hook=_object, parse_constant=_no_constant)
    except RecursionError:
        raise _invalid(code, what, f"it is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise _invalid(code, what, str(error)) from None
    if _SURROGATE.search(data) and not _encodable(value):
        raise _invalid(code, what, "it has half of a surrogate pair")
    if _depth_over(value, MAX_DEPTH):
        raise _invalid(code, what, f"it is nested deeper than {MAX_DEPTH} levels")
    return value


def parse_as(kind: type[T], data: bytes, what: str, *, limit: int = MANIFEST_BYTES, code: str = "CNV-9008") -> T:
    """Parse a JSON document into a struct, with the same errors as :func:`parse_json`."""
    value = parse_json(data, what, limit=limit, code=code)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _invalid(code, what, str(error)) from None


def _invalid(code: str, what: str, why: str) -> RegistryError:
    return RegistryError(
        code, f"{what} is not valid: {why}", hint="restore it from a copy; `artifacts fsck` lists all that is damaged"
    )


def _encodable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f"the key {twice[:80]!r} appears twice")
    return result


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _depth_over(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def _children(item: Any) -> list[Any]:
    children = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return [child for child in children if isinstance(child, dict | list)]
