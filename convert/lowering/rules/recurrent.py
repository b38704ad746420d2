"""RNN, GRU and LSTM: the batch-first layout."""

from __future__ import annotations

from convert.lowering.site import Site
from convert.lowering.table import down

STATES = {"RNN": (5,), "GRU": (5,), "LSTM": (5, 6)}


@down("RNN", "GRU", "LSTM", version=14)
def layout_by_transposition(site: Site) -> None:
    """Batch first: turn what goes in and what comes out."""
    if not site.attr("layout", 0):
        site.same(drop=["layout"])
        return
    inputs = list(site.node.input)
    for index in (0, *STATES[site.node.op_type]):
        if site.has(index):
            inputs[index] = site.op("Transpose", inputs[index], perm=[1, 0, 2])
    written = site.same(inputs, drop=["layout"])
    turns = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
    for index, name in enumerate(site.node.output):
        if name:
            written.output[index] = site.names.fresh(f"{site.stem}/turned")
            site.emit("Transpose", [written.output[index]], [name], perm=turns[index])
