"""What ``convert explain`` is asked besides a log: a vendor's code, a word that people search for; whose a log is."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from convert.diagnosis.reading import matches_in
from convert.diagnosis.tables import KINDS, VENDORS, Row, table

MARKERS = {
    "ixrt": ("ixrtexec", "ixrt.", "IxRT", "/corex"),
    "openvino": ("openvino", "OpenVINO", "nncf"),
    "sophgo": ("tpu_mlir", "tpu-mlir", "bmodel", "model_transform", "model_deploy"),
    "tensorrt": ("trtexec", "&&&& ", "TensorRT", "nvinfer", "[TRT]"),
    "migraphx": ("migraphx", "MIGraphX", "MIGRAPHX"),
    "magicmind": ("magicmind", "MagicMind", "cnrt", "neuware", "NEUWARE", "mm_parser"),
    "atc": (
        "ATC start",
        "ATC run",
        "atc --",
        "[PID:",
        "Ascend",
        "ascend",
        "/CANN",
        "TraceBack (most recent call last)",
    ),
}
"""Words of a vendor's logs, the most particular vendor first."""
VENDOR_CODE = re.compile(r"(?:E[A-Z0-9]\d{4}|W\d{5}|\d{6})")


def find_vendor(log: str) -> str:
    """The vendor of a log: by its own words, then by the rows that are found in it; empty where nothing tells."""
    guesses = []
    for place, (vendor, words) in enumerate(MARKERS.items()):
        matches = matches_in(vendor, log)
        marked = any(word in log for word in words)
        if matches or marked:
            rank = matches[0].row.rank if matches else len(KINDS)
            guesses.append(
                (not marked, not matches, rank, -len({match.row.number for match in matches}), place, vendor)
            )
    return min(guesses)[-1] if guesses else ""


def rows_of_code(code: str) -> list[Row]:
    """The rows of a vendor's error code, such as ``E19010`` or ``507008``; empty where none has it."""
    wanted = code.strip().upper()
    if not VENDOR_CODE.fullmatch(wanted):
        return []
    return [row for vendor in VENDORS for row in table(vendor) if row.has_code(wanted) or wanted in row.seek]


def kind_of_word(word: str) -> str:
    """The kind of cause that a searched word stands for; empty where it is none."""
    return _words().get(_folded(word), "")


def rows_of_kind(kind: str) -> list[Row]:
    """The rows of a kind of cause, one for each advice of each vendor."""
    rows = {(row.vendor, row.action): row for vendor in VENDORS for row in reversed(table(vendor)) if row.kind == kind}
    return sorted(rows.values(), key=lambda row: (VENDORS.index(row.vendor), row.number))


def near(text: str, more: Sequence[str] = ()) -> list[str]:
    """Words and codes that look like a text."""
    codes = {low for vendor in VENDORS for row in table(vendor) for low, _ in row.codes}
    pool = [*(word for kind in KINDS.values() for word in kind.words), *sorted(codes), *more]
    return difflib.get_close_matches(text.strip().upper().replace("-", "_").replace(" ", "_"), pool, n=4, cutoff=0.55)


def _words() -> dict[str, str]:
    return {_folded(word): kind for kind, facts in KINDS.items() for word in (*facts.words, kind)}


def _folded(word: str) -> str:
    return re.sub(r"[^A-Z0-9]", "", word.upper())
