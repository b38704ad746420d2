"""images: ``OnnxGraph ─▶ OnnxGraph``: for an artifact that takes 8-bit images, samples that are made of such images.

Each sample becomes the 8-bit image behind it (``images/000.npz``, which the device is fed) and what the artifact's
preprocessing makes of that image (``samples/000.npz``, which the graph is fed). The reference outputs are those of the
latter, so that device and reference see the same input. Without samples of the user, images are made up.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from convert.arrays import Array, load_npz, save_npz
from convert.backends import load_backend
from convert.backends.preprocess import (
    ImageOptions,
    Preprocess,
    image_of,
    image_shape,
    model_values,
    outside,
    parse_preprocess,
    sized_inputs,
)
from convert.errors import UsageError
from convert.graphs import MODEL, model_entries, read_model
from convert.links import link_or_copy
from convert.ort import exact_settings, stream_samples
from convert.ties import write_ties
from convert.values import Note, OnnxGraph

REPLACED = ("samples/", "reference/", "ties/", "images/")
SHOWN = 5
"""So many samples that can't be had are named."""
SHIFTED = 1e-3
"""A sample that moves by more than this, relatively, is told."""

Values = Callable[[Array, Preprocess], Array]


def image_samples(graph: OnnxGraph, options: ImageOptions, folder: Path) -> OnnxGraph:
    """Make the samples of a graph out of 8-bit images, and the reference outputs anew.

    Raises :class:`UsageError`: CNV-2205 where the preprocessing does not fit the graph, CNV-2286 where samples of the
    user hold values that no 8-bit pixel gives.
    """
    how = parse_preprocess(options.preprocess, sized_inputs(graph.inputs, graph.dims))
    values_of: Values = getattr(load_backend(options.backend), "image_values", model_values)
    names, kept = [], [entry for entry in graph.files if not entry.name.startswith(REPLACED)]
    for entry in kept:
        link_or_copy(graph.path(entry.name), folder / entry.name)
    feeds = [load_npz(graph.path(f"samples/{number:03d}.npz")) for number in range(graph.sample_count)]
    if options.given:
        _check_pixels([feed[how.input] for feed in feeds], how)
    generator = np.random.default_rng(options.seed)
    notes: list[Note] = []
    for number, feed in enumerate(feeds):
        floats = feed[how.input]
        image = image_of(floats, how) if options.given else _made_up(how, len(floats), generator)
        save_npz(folder / f"images/{number:03d}.npz", {**feed, how.input: image})
        feed[how.input] = values_of(image, how).astype(floats.dtype)
        save_npz(folder / f"samples/{number:03d}.npz", feed)
        names += [f"images/{number:03d}.npz", f"samples/{number:03d}.npz"]
        notes += _moved(number, floats, feed[how.input]) if options.given else []
    names += _references(graph, folder, feeds)
    files = model_entries(folder, names, ())
    return _next(graph, notes or _told(options), tuple(sorted((*kept, *files))), folder)


def _next(graph: OnnxGraph, notes: list[Note], files: tuple[Any, ...], folder: Path) -> OnnxGraph:
    import msgspec

    return msgspec.structs.replace(
        graph, parent=graph.digest, stage="images", notes=tuple(notes), files=files, folder=str(folder)
    )


def _check_pixels(samples: list[Array], how: Preprocess) -> None:
    """Refuse samples that would be cut to 0..255, all at once."""
    shares = {number: share for number, sample in enumerate(samples) if (share := outside(sample, how)) > 0}
    if not shares:
        return
    shown = ", ".join(f"sample {number} ({share:.2%})" for number, share in list(shares.items())[:SHOWN])
    more = f" and {len(shares) - SHOWN} more" if len(shares) > SHOWN else ""
    raise UsageError(
        "CNV-2286",
        f"input {how.input} takes 8-bit images, and some values of {shown}{more} lie outside 0..255 once mean and std"
        " are taken back",
        hint="the samples must be made by the same rule, (pixel / scale - mean) / std; or give the 8-bit images"
        " themselves, as uint8 [N, height, width, channels]",
    )


def _made_up(how: Preprocess, count: int, generator: np.random.Generator) -> Array:
    return generator.integers(0, 256, size=image_shape(how, count), dtype=np.uint8)


def _moved(number: int, asked: Array, given: Array) -> list[Note]:
    size = float(np.abs(asked).max()) if asked.size else 0.0
    moved = float(np.abs(given - asked).max()) if asked.size else 0.0
    if moved <= SHIFTED * max(size, 1e-6):
        return []
    text = f"sample {number} is not made of 8-bit pixels: it moved by {moved:.3g}, and so did its reference"
    return [Note(level="warning", text=text, subject=f"samples/{number:03d}.npz")]


def _told(options: ImageOptions) -> list[Note]:
    if options.given:
        return []
    return [Note(text="the artifact takes 8-bit images, and none were given (--samples): random ones were made")]


def _references(graph: OnnxGraph, folder: Path, feeds: list[dict[str, Array]]) -> list[str]:
    """Reference outputs, and what index outputs searched; none where the graph had none."""
    if "reference/000.npz" not in {entry.name for entry in graph.files}:
        return []
    names = []
    for number, outputs in enumerate(stream_samples(folder / MODEL, feeds, exact_settings(folder / MODEL))):
        names.append(f"reference/{number:03d}.npz")
        save_npz(folder / names[-1], {str(place): array for place, array in enumerate(outputs)})
    return [*names, *write_ties(read_model(folder / MODEL), folder / MODEL, feeds)]
