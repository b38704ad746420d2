"""What a failed compilation teaches of one form of an operator: the compiler has the operator, and not as the node is.

The log names the operator; the small model of the failing nodes beside it, which the compilation leaves, has the form.
Only attributes that are one word or a whole number are told: what they don't tell apart is not learned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CUT = Path("failing") / "model.onnx"
"""Where a failed compilation leaves its failing nodes, from the log's folder on."""
LARGEST = 64 << 20
WORD = re.compile(r"[!-~]{1,200}")
PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("sophgo", re.compile(r"loc\(\"[^\"\n]{0,200}_([A-Za-z0-9]{1,60})\"\): 'top\.\w{1,60}' op attribute '")),
    ("intel", re.compile(r"-- Conversion is failed for: ([^\n]{1,300})")),
)


def forms_in_log(text: str) -> list[tuple[str, str]]:
    """(vendor, operator) of every form that a log refuses, once each."""
    found = [
        (vendor, name.strip().rpartition("-")[0] or name.strip())
        for vendor, pattern in PATTERNS
        for match in pattern.finditer(text)
        for name in match[1].split(",")
    ]
    return list(dict.fromkeys(found))


def conditions(log: Path, op: str) -> list[str]:
    """The forms of an operator in the small model beside a log, as ``rules.csv`` writes conditions."""
    path = log.parent / CUT
    if not path.is_file() or path.stat().st_size > LARGEST:
        return []
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(path, load_external_data=False)
    except (DecodeError, OSError, ValueError):
        return []
    written = (" and ".join(_clauses(node)) for node in model.graph.node if node.op_type == op)
    return list(dict.fromkeys(filter(None, written)))


def _clauses(node: Any) -> Iterator[str]:
    import onnx

    for attribute in sorted(node.attribute, key=lambda one: str(one.name)):
        word = str(attribute.i)
        if attribute.type == onnx.AttributeProto.STRING:
            word = attribute.s.decode("utf-8", "replace")
        elif attribute.type != onnx.AttributeProto.INT:
            continue
        if WORD.fullmatch(word) and WORD.fullmatch(attribute.name):
            yield f"attr {attribute.name} is {word}"
