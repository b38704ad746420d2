"""Sizes and layouts in the builder's words.

A fixed graph is built with ``graph_shape_mutable`` false. A symbolic dimension becomes a range, ``dim_range``: per
input, by its place, the lowest and the highest shape, in the input's original layout (magicmind_cloud
model_process.py). MagicMind has no list of sizes: ``--dim N=1,4,8`` is the range from 1 to 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from convert.backends.spans import Span, sizes_at
from convert.errors import UsageError
from convert.values import OnnxGraph, TensorSpec

CHANNELS_LAST: Mapping[int, tuple[str, str]] = MappingProxyType(
    {3: ("NCT", "NTC"), 4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}
)
"""By rank: the layout that ONNX has, and the one that it can be turned into."""
PLACES_LAST: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"NTC": (0, 2, 1), "NHWC": (0, 2, 3, 1), "NDHWC": (0, 2, 3, 4, 1)}
)
"""How the axes of an ONNX tensor are put to get that layout."""


def is_range(spans: Mapping[str, Span]) -> bool:
    """Whether any dimension takes more than one size."""
    return any(span.low != span.high for span in spans.values())


def dim_range(graph: OnnxGraph, spans: Mapping[str, Span]) -> dict[str, dict[str, list[int]]]:
    """``dim_range`` for every input. A scalar is written as one element."""
    return {
        str(place): {end: list(sizes_at(spec, spans, end)) or [1] for end in ("min", "max")}
        for place, spec in enumerate(graph.inputs)
    }


def fixed_dims(graph: OnnxGraph, spans: Mapping[str, Span]) -> dict[str, list[int]]:
    """Per input with a symbolic dimension of one size, by its place: its shape."""
    return {
        str(place): list(sizes_at(spec, spans, "max"))
        for place, spec in enumerate(graph.inputs)
        if any(isinstance(size, str) for size in spec.shape)
    }


def layouts(text: str, specs: Sequence[TensorSpec], option: str) -> dict[int, str]:
    """``NHWC`` (for every tensor of that rank) or ``0:NHWC,2:NTC``, as layouts by place.

    Raises :class:`UsageError` CNV-2226 for a layout that is none, or that a tensor can't have.
    """
    found: dict[int, str] = {}
    faults: list[str] = []
    for part in filter(None, text.split(",")):
        place, _, name = part.rpartition(":")
        if name not in PLACES_LAST:
            faults.append(f"{name!r} is none of {', '.join(PLACES_LAST)} (the graph's own layout needs no word)")
        elif not place:
            fitting = [number for number, spec in enumerate(specs) if len(spec.shape) == len(name)]
            faults += [] if fitting else [f"no tensor has {len(name)} dimensions, as {name} has"]
            found |= dict.fromkeys(fitting, name)
        elif not (place.isascii() and place.isdigit() and int(place[:6]) < len(specs)):
            faults.append(f"there is no tensor {place!r}: they are 0 to {len(specs) - 1}")
        elif len(specs[int(place)].shape) != len(name):
            spec = specs[int(place)]
            faults.append(f"{spec.name} has {len(spec.shape)} dimensions, and {name} has {len(name)}")
        else:
            found[int(place)] = name
    if faults:
        raise UsageError(
            "CNV-2226",
            f"--option {option}={text}: {'; '.join(faults)}",
            hint=f"write {option}=NHWC, or by place {option}=0:NHWC,1:NTC",
        )
    return found


def conversions(wanted: Mapping[int, str]) -> dict[str, dict[str, str]]:
    """Layouts by place as ``convert_input_layout`` and ``convert_output_layout`` take them."""
    return {str(place): {"src": CHANNELS_LAST[len(name)][0], "dst": name} for place, name in sorted(wanted.items())}


def transposes(config: Mapping[str, Any], key: str) -> dict[str, list[int]]:
    """By place, how the axes of the graph's tensor are put for the artifact, from a configuration."""
    return {place: list(PLACES_LAST[pair["dst"]]) for place, pair in config.get(key, {}).items()}
