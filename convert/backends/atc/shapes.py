"""The shapes of a plan: static, stepped (``--dynamic_…``) or ranged, from the graph's dimensions. Pure.

A symbolic dimension with one size is fixed; with a list of sizes it is stepped; with a range it is ranged. Steps and
ranges don't go together in atc, so beside a range a list becomes the range that spans it.

Sources: hicann/ge compiler/api/aclgrph/option_utils.cc and compiler/graph/preprocess/multi_batch_options.cc (8.5 to
9.2); the ATC manuals of CANN 6.0.1, 6.2.RC2, 8.0, 8.1 and 8.5, pages of --input_shape, --dynamic_batch_size,
--dynamic_image_size and --dynamic_dims.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from convert.values import Dim, DimRange, Note, OnnxGraph, TensorSpec
from op_registry.versions import in_range

MOST_STEPS = 100
MOST_STEPS_950 = 256
"""The manual's ceiling for steps; no source of 8.5 to 9.2 enforces it."""
STEP_VALUES = 4
"""Values that one step of dynamic_dims may have up to CANN 6.3 (manuals of 6.0.1 and 6.2.RC2)."""
NO_RANGES = {
    "Ascend310": "the first Ascend310 takes no shape ranges (ATC manual; mindspore-lab/mindocr#690)",
    "Ascend310B": "the Ascend310B parts take no shape ranges (ATC manual, --input_shape)",
}
FORBIDDEN = re.compile(r"[;=\s]")
"""What can't stand in a name in --input_shape: entries are split at ``;``."""

Form = Literal["static", "batch", "image", "dims", "ranged"]


class Shaping(msgspec.Struct, frozen=True, kw_only=True):
    """The flags that say the shapes, the faults that forbid them, and remarks."""

    form: Form
    flags: dict[str, str]
    faults: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()


def shape_flags(graph: OnnxGraph, *, version: str, arch: str, int8: bool = False, layout: str = "") -> Shaping:
    """How the graph's inputs are told to atc. ``layout``: an --input_format that is asked for."""
    dims = _dims_of(graph)
    ranged = [entry for entry in dims.values() if not entry.sizes]
    if ranged:
        shaping = _ranged(graph, dims, version=version, arch=arch, layout=layout)
        unfit = ("an int8 graph can't have ranges: fix the size, one conversion for each",) if int8 else ()
        return msgspec.structs.replace(shaping, faults=(*shaping.faults, *unfit))
    stepped = [entry.name for entry in dims.values() if len(entry.sizes) > 1]
    if stepped:
        return _stepped(graph, dims, stepped, version=version, arch=arch, int8=int8)
    fixed = {spec.name: _sizes(spec, dims) for spec in graph.inputs}
    faults = [*_name_faults(graph.inputs), *_size_faults(fixed)]
    flags = {"input_shape": _joined(fixed), **_format(graph.inputs, layout)}
    return Shaping(form="static", flags=flags, faults=tuple(faults))


def _dims_of(graph: OnnxGraph) -> dict[str, DimRange]:
    """Every symbolic dimension of the inputs, with its sizes in order, or its range."""
    told = {entry.name: entry for entry in graph.dims}
    names = dict.fromkeys(dim for spec in graph.inputs for dim in spec.shape if isinstance(dim, str))
    found = {}
    for name in names:
        entry = told.get(name) or DimRange(name=name)
        sizes = tuple(sorted(set(entry.sizes)))
        if not sizes and entry.low == entry.high:
            sizes = (entry.low,)
        found[name] = msgspec.structs.replace(entry, sizes=sizes)
    return found


def _sizes(spec: TensorSpec, dims: Mapping[str, DimRange]) -> tuple[Dim, ...]:
    """A shape with the fixed dimensions filled in and ``-1`` for stepped ones."""

    def size(dim: Dim) -> int:
        if isinstance(dim, int):
            return dim
        return dims[dim].sizes[0] if len(dims[dim].sizes) == 1 else -1

    return tuple(size(dim) for dim in spec.shape)


def _joined(shapes: Mapping[str, Sequence[Dim]]) -> str:
    return ";".join(f"{name}:{','.join(map(str, shape))}" for name, shape in shapes.items())


def _format(inputs: Sequence[TensorSpec], asked: str) -> dict[str, str]:
    """The layout of the inputs; only one for all. Left out where none fits: then atc takes NCHW."""
    ranks = {len(spec.shape) for spec in inputs}
    if asked:
        return {"input_format": asked}
    if ranks == {4}:
        return {"input_format": "NCHW"}
    if ranks == {5}:
        return {"input_format": "NCDHW"}
    return {"input_format": "ND"} if max(ranks, default=0) <= 4 else {}


def _name_faults(inputs: Sequence[TensorSpec]) -> list[str]:
    return [
        f"the input name {spec.name!r} can't be written in --input_shape: rename it where the model is exported"
        for spec in inputs
        if FORBIDDEN.search(spec.name) or not spec.name
    ]


def _size_faults(shapes: Mapping[str, Sequence[Dim]]) -> list[str]:
    return [
        f"{name} has a dimension of size 0, and atc takes sizes from 1 on"
        for name, shape in shapes.items()
        if any(isinstance(size, int) and size == 0 for size in shape)
    ]


# ------------------------------------------------------------------------------------------------------------- stepped


def _stepped(
    graph: OnnxGraph, dims: Mapping[str, DimRange], names: Sequence[str], *, version: str, arch: str, int8: bool
) -> Shaping:
    shapes = {spec.name: _sizes(spec, dims) for spec in graph.inputs}
    faults = [*_name_faults(graph.inputs), *_size_faults(shapes)]
    form = _stepped_form(graph.inputs, dims, names)
    values = _steps(graph.inputs, dims, names, form)
    most = MOST_STEPS_950 if arch == "Ascend950" else MOST_STEPS
    if len(values) > most:
        faults.append(
            f"{' x '.join(f'{name} ({len(dims[name].sizes)})' for name in names)} make {len(values)} steps, "
            f"and atc takes {most} at most: list fewer sizes"
        )
    if any(size < 1 for step in values for size in step):
        faults.append("steps must be 1 or more")
    if int8:
        faults.append("an int8 graph can't have steps: fix the size, one conversion for each")
    if form == "dims":
        faults += _dims_faults(graph.inputs, values, version)
    flag = {"batch": "dynamic_batch_size", "image": "dynamic_image_size", "dims": "dynamic_dims"}[form]
    between = "," if form == "batch" else ";"
    text = between.join(",".join(map(str, step)) for step in values)
    layout = "ND" if form == "dims" else "NCHW" if form == "image" else ""
    flags = {"input_shape": _joined(shapes), flag: text, **_format(graph.inputs, layout)}
    return Shaping(form=form, flags=flags, faults=tuple(faults), notes=_stepped_notes(values))


def _stepped_notes(values: Sequence[Sequence[int]]) -> tuple[Note, ...]:
    if len(values) <= 16:
        return ()
    text = f"{len(values)} steps: each is compiled by itself, so time and size grow with their number; 3 or 4 are usual"
    return (Note(level="warning", text=text),)


def _stepped_form(
    inputs: Sequence[TensorSpec], dims: Mapping[str, DimRange], names: Sequence[str]
) -> Literal["batch", "image", "dims"]:
    """Batch steps where the one dimension stands first everywhere, image steps for H and W, else free dimensions.

    A scalar input rules out batch steps: E10012 in every source, whatever the manual says of ``name:``.
    """
    axes = [
        (spec, [axis for axis, dim in enumerate(spec.shape) if isinstance(dim, str) and len(dims[dim].sizes) > 1])
        for spec in inputs
    ]
    moving = [(spec, at) for spec, at in axes if at]
    if len(names) == 1 and all(at == [0] for _, at in moving) and all(spec.shape for spec in inputs):
        return "batch"
    pairs = {spec.shape[2:] for spec, at in moving}
    if len(pairs) == 1 and all(len(spec.shape) == 4 and at == [2, 3] for spec, at in moving):
        return "image"
    return "dims"


def _steps(
    inputs: Sequence[TensorSpec], dims: Mapping[str, DimRange], names: Sequence[str], form: Form
) -> list[tuple[int, ...]]:
    """Every combination of the sizes. For free dimensions one value for each ``-1``, in the order of the inputs.

    At most one more than any ceiling is made: what is too much is only counted.
    """
    count = math.prod(len(dims[name].sizes) for name in names)
    combinations = itertools.product(*(dims[name].sizes for name in names))
    if count > MOST_STEPS_950:
        return [(1,)] * count if count < 1 << 16 else [(1,)] * (1 << 16)
    places = [dim for spec in inputs for dim in spec.shape if isinstance(dim, str) and len(dims[dim].sizes) > 1]
    if form == "image":
        places = places[:2]
    elif form == "batch":
        places = places[:1]
    return [
        tuple(sizes[place] for place in places)
        for sizes in (dict(zip(names, combination, strict=True)) for combination in combinations)
    ]


def _dims_faults(inputs: Sequence[TensorSpec], values: Sequence[Sequence[int]], version: str) -> list[str]:
    faults = []
    if in_range(version, "<=6.3"):
        big = [spec.name for spec in inputs if len(spec.shape) > 4]
        if big:
            faults.append(f"free dimensions want inputs of rank 4 at most in CANN {version}: {', '.join(big)}")
        if values and len(values[0]) > STEP_VALUES:
            faults.append(
                f"{len(values[0])} places have steps, and CANN {version} takes {STEP_VALUES} at most: fix some"
            )
    return faults


# -------------------------------------------------------------------------------------------------------------- ranged


def _ranged(graph: OnnxGraph, dims: Mapping[str, DimRange], *, version: str, arch: str, layout: str) -> Shaping:
    shapes = {spec.name: tuple(_range(dim, dims) for dim in spec.shape) for spec in graph.inputs}
    free = [name for name, entry in dims.items() if not entry.sizes]
    faults = [*_name_faults(graph.inputs), *_size_faults(shapes)]
    if arch in NO_RANGES:
        faults.append(
            f"{', '.join(free)} {'is a range' if len(free) == 1 else 'are ranges'}, and {NO_RANGES[arch]}: "
            f"fix or list sizes, --dim {free[0]}=1 or --dim {free[0]}=1,4,8"
        )
    notes = [
        Note(
            level="warning",
            text=f"{', '.join(free)}: a true dynamic shape, compiled for whatever comes; it is slower than fixed or "
            "listed sizes (--dim N=1 or --dim N=1,4,8), and the file runs only on the compiling host's system",
        )
    ]
    widened = [name for name, entry in dims.items() if len(entry.sizes) > 1]
    if widened:
        text = f"the sizes of {', '.join(widened)} became a range: atc takes steps and ranges only one at a time"
        notes.append(Note(level="warning", text=text))
    if in_range(version, ">=8.0"):
        flags = {"input_shape": _joined(shapes)}
    else:
        inner = ";".join(f"{name}:[{','.join(map(str, shape))}]" for name, shape in shapes.items())
        flags = {"input_shape_range": inner}
    return Shaping(
        form="ranged",
        flags={**flags, **_format(graph.inputs, layout)},
        faults=tuple(faults),
        notes=tuple(notes),
    )


def _range(dim: Dim, dims: Mapping[str, DimRange]) -> Dim:
    """One place of a ranged shape: a size, ``a~b``, or ``-1`` for no upper bound."""
    if isinstance(dim, int):
        return dim
    entry = dims[dim]
    if entry.sizes:
        low, high = entry.sizes[0], entry.sizes[-1]
    else:
        low, high = entry.low, entry.high
    if not high:
        return -1
    return low if low == high else f"{low}~{high}"
