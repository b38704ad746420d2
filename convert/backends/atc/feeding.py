"""Samples as an artifact takes them: written for its runner, with what the runner must know of the shapes."""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from convert.backends.atc.aipp import aipp_values
from convert.backends.atc.flags import flags_in
from convert.backends.base import RunRequest
from convert.backends.preprocess import Preprocess, image_of
from convert.values import Note, OnnxGraph

if TYPE_CHECKING:
    from convert.backends.base import Array, Feeds

SLACK = 1 << 16
FORMS = {"dynamic_batch_size": "batch", "dynamic_image_size": "image", "dynamic_dims": "dims"}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is run: the shapes' form, the input that moves, the steps, and the inputs by name."""

    form: str
    moving: str
    names: tuple[str, ...]
    samples: tuple[str, ...]
    shapes: tuple[tuple[tuple[int, ...], ...], ...]
    output_bytes: tuple[int, ...]
    notes: tuple[Note, ...] = ()


def prepare_job(request: RunRequest, feeds: Feeds, how: Preprocess | None) -> Job:
    """Write the samples as the artifact takes them."""
    from convert.arrays import save_npz

    graph, flags = request.graph, flags_in(request.artifact.plan.argv)
    form = form_of(flags)
    folder = request.folder / "samples"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names, notes = [], []
    shapes = []
    for number, feed in enumerate(feeds):
        arrays = {spec.name: feed[spec.name] for spec in graph.inputs}
        if how is not None:
            image = _image(graph, number, arrays[how.input], how)
            # Samples are run over and over: each is told once.
            notes += [] if graph.sample_count <= number else _moved(number, arrays[how.input], aipp_values(image, how))
            arrays[how.input] = image
        names.append(f"samples/{number:03d}.npz")
        save_npz(request.folder / names[-1], arrays)
        shapes.append(tuple(tuple(array.shape) for array in arrays.values()))
    return Job(
        form=form,
        moving=moving_of(flags),
        names=tuple(spec.name for spec in graph.inputs),
        samples=tuple(names),
        shapes=tuple(shapes),
        output_bytes=room_of(graph),
        notes=tuple(notes),
    )


def form_of(flags: Mapping[str, str]) -> str:
    """The form of a plan's shapes, as its flags say it."""
    stepped = next((FORMS[name] for name in FORMS if name in flags), "")
    ranged = "input_shape_range" in flags or re.search(r"[:,](?:-1\b|\d+~)", flags.get("input_shape", ""))
    return stepped or ("ranged" if ranged else "static")


def moving_of(flags: Mapping[str, str]) -> str:
    """The first input that has steps; empty: none has."""
    entries = (part.rpartition(":") for part in flags.get("input_shape", "").split(";"))
    return next((name for name, _, dims in entries if "-1" in dims.split(",")), "")


def _image(graph: OnnxGraph, number: int, values: Array, how: Preprocess) -> Array:
    """The 8-bit image of a sample: the one that the sample was made of, else the nearest.

    Samples are run over and over, in order. An image that does not make these values belongs to another input.
    """
    import numpy as np

    from convert.arrays import load_npz

    path = graph.path(f"images/{number % max(1, graph.sample_count):03d}.npz")
    if graph.folder and path.is_file():
        kept = load_npz(path)[how.input]
        if kept.shape[0] == values.shape[0] and np.array_equal(aipp_values(kept, how).astype(values.dtype), values):
            return kept
    return image_of(values, how)


def _moved(number: int, asked: Array, given: Array) -> list[Note]:
    """A sample that is not made of 8-bit pixels is told: the card gets other numbers than the reference did."""
    import numpy as np

    size = float(np.abs(asked).max()) if asked.size else 0.0
    moved = float(np.abs(given - asked).max()) if asked.size else 0.0
    if moved <= 1e-3 * max(size, 1e-6):
        return []
    text = f"sample {number} is not made of 8-bit pixels: rounding moved it by {moved:.3g}, which the gate will see"
    return [Note(level="warning", text=text, subject=f"samples/{number:03d}.npz")]


def room_of(graph: OnnxGraph) -> tuple[int, ...]:
    """Bytes for each output: those of the largest reference, with some slack."""
    # By the sizes in the archive, which imports no numpy: a handoff asks this in a process that only waits.
    most = [0] * len(graph.outputs)
    for number in range(graph.sample_count):
        path = graph.path(f"reference/{number:03d}.npz")
        if not path.is_file():
            continue
        with zipfile.ZipFile(path) as archive:
            for item in archive.infolist():
                index = int(item.filename.removesuffix(".npy").partition("@")[0])
                most[index] = max(most[index], item.file_size)
    return tuple(size + SLACK for size in most) if all(most) else ()
