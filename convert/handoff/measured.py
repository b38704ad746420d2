"""Outputs of a device, brought here as ``measured/000.npz``, …: read one sample after another, as a run gives them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from convert.arrays import load_npz
from convert.backends.base import Ran
from convert.errors import UsageError
from convert.evidence import MeasuredOutputs
from convert.loading.zips import DAMAGE
from convert.values import Note, OnnxGraph

if TYPE_CHECKING:
    from convert.arrays import Array

WIDER = 16
"""Measured outputs may take this many times the bytes of their reference (a float64 of a boolean is 8), and a MiB."""


def read_measured(graph: OnnxGraph, measured: MeasuredOutputs) -> Ran:
    """The measured outputs as a run on the device.

    Raises :class:`UsageError` (CNV-2305) where samples are missing (all are named), and, while the outputs are read,
    where a file can't be read, is far larger than its reference, or doesn't name the graph's outputs.
    """
    names = {entry.name for entry in measured.files}
    lost = [name for name in measured_names(graph) if name not in names]
    if lost:
        shown = ", ".join(lost[:5]) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
        raise unusable(f"{shown} missing: the gate takes all {graph.sample_count} samples")
    return Ran(
        outputs=_outputs(graph, measured),
        ran_on="device",
        device=measured.device,
        output_names=tuple(spec.name for spec in graph.outputs),
        notes=(Note(text="the outputs were measured on the device by hand, and brought here in the bundle"),),
    )


def measured_names(graph: OnnxGraph) -> list[str]:
    """The files that measured outputs of a graph are expected in."""
    return [f"measured/{number:03d}.npz" for number in range(graph.sample_count)]


def unusable(why: str) -> UsageError:
    """The error for measured outputs that can't be used."""
    return UsageError(
        "CNV-2305",
        f"the measured outputs can't be used: {why}",
        hint="one measured/NNN.npz for each samples/NNN.npz, with the outputs in order as 0, 1, … or by name; "
        "`python3 verify.py` in the bundle checks them beforehand",
    )


def _outputs(graph: OnnxGraph, measured: MeasuredOutputs) -> Iterator[list[Array]]:
    wanted = [spec.name for spec in graph.outputs]
    references = {entry.name: entry.bytes for entry in graph.files}
    for number, name in enumerate(measured_names(graph)):
        limit = WIDER * references.get(f"reference/{number:03d}.npz", 0) + (1 << 20)
        try:
            _check_size(measured.path(name), limit)
            arrays = load_npz(measured.path(name))
        except DAMAGE as error:
            raise unusable(f"{name}: {error}") from error
        yield in_order(arrays, wanted, name)


def _check_size(path: Path, limit: int) -> None:
    with zipfile.ZipFile(path) as archive:
        size = sum(item.file_size for item in archive.infolist())
    if size > limit:
        raise unusable(f"{path.name} unpacks to {size} bytes, and its reference suggests at most {limit}")


def in_order(arrays: dict[str, Array], wanted: list[str], what: str) -> list[Array]:
    """Arrays in the order of the graph's outputs: by name, or by their numbers (``0``, ``arr_0``)."""
    if set(wanted) <= set(arrays):
        return [arrays[name] for name in wanted]
    numbers = {name: name.removeprefix("arr_") for name in arrays}
    if arrays and all(number.isdecimal() and number.isascii() and len(number) < 6 for number in numbers.values()):
        return [arrays[name] for name in sorted(arrays, key=lambda name: int(numbers[name]))]
    named = ", ".join(map(repr, arrays)) or "none"
    raise unusable(f"{what} has the arrays {named}; the outputs are {', '.join(wanted)}")
