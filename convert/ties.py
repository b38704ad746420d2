"""Index outputs and ties: where two elements are equal, a runtime may name either, and both answers are right.

For an output that is the index of ArgMax, ArgMin or TopK, the tensor that was searched is kept with the reference. An
index that differs from the reference's is settled where it points at an equal element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, ValueInfoProto

from convert.arrays import Array, load_npz, save_npz
from convert.ort import SessionFailed, exact_settings, run_samples
from convert.values import Note, OnnxGraph

SEARCHES = {"ArgMax": 0, "ArgMin": 0, "TopK": 1}
"""Operators that give indices, and which of their outputs these are."""
TRANSPARENT = ("Identity", "Cast")
CLOSE = 1e-5
"""Elements nearer to each other than this, relatively, count as equal: runtimes round the last bits differently."""
NAME = "ties/{:03d}.npz"


def tie_sources(model: ModelProto) -> dict[int, tuple[str, int]]:
    """For each output that is an index: its position, and the searched value's name and axis."""
    makers = {name: node for node in model.graph.node for name in node.output if name}
    sources = {}
    for position, value in enumerate(model.graph.output):
        node, name = makers.get(value.name), value.name
        while node is not None and node.op_type in TRANSPARENT:
            name = node.input[0]
            node = makers.get(name)
        if node is not None and SEARCHES.get(node.op_type) == list(node.output).index(name):
            sources[position] = (node.input[0], _axis(node))
    return sources


def _axis(node: NodeProto) -> int:
    default = -1 if node.op_type == "TopK" else 0
    return next((int(item.i) for item in node.attribute if item.name == "axis"), default)


def write_ties(model: ModelProto, model_path: Path, feeds: Sequence[Mapping[str, Array]]) -> list[str]:
    """Keep the searched tensors of every sample beside the model; names of the files written, none without indices.

    The arrays of a file are called ``POSITION:AXIS``.
    """
    sources = tie_sources(model)
    if not sources:
        return []
    wider = ModelProto()
    wider.CopyFrom(model)
    del wider.graph.output[:]
    # Without a type: ONNX Runtime infers it.
    wider.graph.output.extend(ValueInfoProto(name=name) for name, _ in sources.values())
    temporary = model_path.with_name("ties.onnx")
    temporary.write_bytes(wider.SerializeToString())
    try:
        searched = run_samples(temporary, feeds, exact_settings(model_path))
    except SessionFailed:
        return []
    finally:
        temporary.unlink()
    names = [NAME.format(number) for number in range(len(feeds))]
    for name, arrays in zip(names, searched, strict=True):
        keys = [f"{position}:{axis}" for position, (_, axis) in sources.items()]
        save_npz(model_path.parent / name, dict(zip(keys, arrays, strict=True)))
    return names


def read_ties(graph: OnnxGraph, number: int) -> dict[str, Array]:
    """The searched tensors of one sample; empty where the graph has no index outputs."""
    name = NAME.format(number)
    return load_npz(graph.path(name)) if name in {entry.name for entry in graph.files} else {}


def settle(reference: Sequence[Array], candidate: Sequence[Array], ties: Mapping[str, Array]) -> list[Array]:
    """The candidate's outputs, with indices that point at an equal element made the reference's own."""
    settled = list(candidate)
    for key, searched in ties.items():
        position, axis = (int(word) for word in key.split(":"))
        if position < len(settled) and position < len(reference):
            settled[position] = _settled(reference[position], settled[position], searched, axis)
    return settled


def _settled(reference: Array, candidate: Array, searched: Array, axis: int) -> Array:
    if reference.shape != candidate.shape or reference.dtype != candidate.dtype or np.array_equal(reference, candidate):
        return candidate
    squeezed = searched.ndim != reference.ndim
    ours, theirs = (np.expand_dims(array, axis) if squeezed else array for array in (reference, candidate))
    size = searched.shape[axis]
    theirs = theirs.astype(np.int64)
    valid = (theirs >= 0) & (theirs < size)
    a = _picked(searched, ours.astype(np.int64), axis)
    b = _picked(searched, np.where(valid, theirs, 0), axis)
    with np.errstate(invalid="ignore", over="ignore"):
        equal = valid & (np.abs(a - b) <= CLOSE * np.maximum(np.abs(a), np.abs(b)))
    equal = np.squeeze(equal, axis) if squeezed else equal
    return np.where(equal, reference, candidate)


def _picked(searched: Array, index: Array, axis: int) -> Any:
    return np.take_along_axis(searched, index, axis).astype(np.float64)


class TieCount:
    """Counts, over samples, how many indices were settled; tells it in one note for each output."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._settled: dict[int, int] = {}
        self._total: dict[int, int] = {}

    def settle(self, reference: Sequence[Array], candidate: Sequence[Array], ties: Mapping[str, Array]) -> list[Array]:
        """:func:`settle`, counted."""
        settled = settle(reference, candidate, ties)
        for position, (before, after) in enumerate(zip(candidate, settled, strict=True)):
            self._total[position] = self._total.get(position, 0) + after.size
            if before is not after:
                changed = int(np.count_nonzero(before != after))
                self._settled[position] = self._settled.get(position, 0) + changed
        return settled

    def notes(self, whose: str) -> list[Note]:
        """What was settled. ``whose``: who gave the other indices."""
        return [
            Note(
                text=f"integer output: exact match {self._total[position] - count}/{self._total[position]}"
                f" with {whose}; the other {count} indices point at equal elements (ties)",
                subject=self._names[position],
            )
            for position, count in sorted(self._settled.items())
            if count
        ]
