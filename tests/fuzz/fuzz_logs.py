"""Logs of vendors' tools: the first cause in a log, whatever the log holds."""

from __future__ import annotations

from fuzz_kit import Target, mutate_words

from artifacts.errors import UNSEEN
from convert.diagnosis.lookup import find_vendor
from convert.diagnosis.reading import matches_in, read_log
from convert.diagnosis.tables import VENDORS, rows_for

NODES = ("/layers.0/attn/MatMul", "Conv_12", "node_Slice_7", "a b", "é")


def read(data: bytes) -> None:
    """A log read as each vendor's; a diagnosis is short, and nothing in it acts on a terminal."""
    log = data.decode("utf-8", "replace")
    find_vendor(log)
    for vendor in VENDORS:
        found = read_log(vendor, log, NODES)
        matches_in(vendor, log)
        for text in (found.cause, found.hint, *found.nodes, *found.ops):
            assert not UNSEEN.search(text), text
        assert len(found.cause) < 20_000
        assert set(found.nodes) <= set(NODES)


def seeds() -> dict[str, bytes]:
    """The lines that the tables name as examples: for each vendor a few logs of several lines."""
    found: dict[str, bytes] = {}
    for vendor in VENDORS:
        rows = [example for row in rows_for(vendor) for example in row.examples]
        for start in range(0, len(rows), 8):
            found[f"{vendor}-{start}"] = "\n".join(rows[start : start + 8]).encode()[:8000]
    return found


def _words() -> tuple[bytes, ...]:
    rows = [row for vendor in VENDORS for row in rows_for(vendor)]
    texts = {text for row in rows for text in row.seek} | {code for row in rows for pair in row.codes for code in pair}
    return tuple(sorted(text.encode() for text in texts if 2 < len(text) < 40))


TARGET = Target(name="logs", read=read, seeds=seeds, mutate=mutate_words(_words()), words=_words(), limit=1 << 13)
