"""Sample inputs of an ONNX model, whose signature the file states. Runs in the worker only (imports numpy)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convert.arrays import Array
from convert.errors import LoadError, UsageError
from convert.loading.inputs import InputText
from convert.loading.onnx_files import OnnxValue, damaged_onnx
from convert.loading.samples import Given, dtype_of, random_samples
from convert.loading.specs import check_sizes, known_dims, narrowed, no_such_input, value_ranges
from convert.loading.user_code import Guarded
from convert.values import DimRange, Note, TensorSpec

PARSED_UP_TO = 256 << 20


@dataclasses.dataclass(frozen=True)
class Feeds:
    """Samples by input name, the specs of the inputs, and the ranges of symbolic dimensions."""

    feeds: list[dict[str, Array]]
    specs: tuple[TensorSpec, ...]
    dims: tuple[DimRange, ...]
    notes: tuple[Note, ...] = ()


def onnx_specs(
    path: Path, inputs: Sequence[OnnxValue], texts: Sequence[InputText], given: Sequence[Given]
) -> tuple[TensorSpec, ...]:
    """The specs of a graph's inputs; a dimension that the file says nothing of is named ``INPUT_AXIS``.

    Raises :class:`LoadError` CNV-3041 for inputs that are no numeric tensors, and :class:`UsageError` CNV-2013 for
    an input of unknown rank that neither texts nor samples describe.
    """
    odd = [value for value in inputs if not value.tensor or value.dtype == "string" or " " in value.dtype]
    if odd:
        raise LoadError(
            "CNV-3041",
            f"{path.name} has inputs that are no numeric tensors: "
            + ", ".join(f"{value.name} ({value.dtype or 'no type'})" for value in odd),
            hint="cut the part of the graph that takes them (tokenizers, sequences) and give the rest",
        )
    ranks = {text.name: len(text.shape) for text in texts}
    for sample in given[:1]:
        ranks.update({name: np.asarray(array).ndim for name, array in (sample.named or {}).items()})
    return tuple(_spec(value, ranks) for value in inputs)


def _spec(value: OnnxValue, ranks: dict[str, int]) -> TensorSpec:
    shape = value.shape
    if shape is None:
        if value.name not in ranks:
            raise UsageError(
                "CNV-2013",
                f"the ONNX model does not say how many dimensions its input {value.name} has",
                hint=f"say it: --input '{value.name}:{value.dtype}[N,3,224,224]', or give --samples",
            )
        shape = (None,) * ranks[value.name]
    dims = tuple(f"{value.name}_{axis}" if dim is None else dim for axis, dim in enumerate(shape))
    return TensorSpec(name=value.name, dtype=value.dtype, shape=dims)


def check_readable(path: Path, size: int) -> None:
    """Parse a model as onnx does, weights aside, so that damage inside it ends here and not in a later stage.

    Raises :class:`LoadError` CNV-3016. Files over :data:`PARSED_UP_TO` are left to the export stage, which reads them
    once anyway.
    """
    import onnx

    if size > PARSED_UP_TO:
        return
    hint = "download or copy the file again and compare its size and sha256 with the source"
    with Guarded("CNV-3016", f"{path.name} is damaged inside ({size:,} bytes)", hint=hint):
        model = onnx.load_model(str(path), load_external_data=False)
    graphs: list[Any] = [model.graph, *(function for function in model.functions)]
    while graphs:
        graph = graphs.pop()
        for node in graph.node:
            # protobuf gives bytes for a text that is no UTF-8.
            texts = (node.op_type, node.domain, node.name, *node.input, *node.output)
            if any(isinstance(text, bytes) for text in texts):
                raise damaged_onnx(path, size, "a node has a name that is no text")
            for attribute in node.attribute:
                graphs += [attribute.g] if attribute.HasField("g") else attribute.graphs


def onnx_feeds(
    specs: Sequence[TensorSpec],
    given: Sequence[Given],
    texts: Sequence[InputText],
    dims: Sequence[DimRange],
    seed: int,
) -> Feeds:
    """Samples of an ONNX model, given or random. Raises :class:`UsageError` CNV-2017, CNV-2021 and CNV-2022."""
    ranges = known_dims(specs, narrowed(specs, texts, dims))
    if not given:
        return Feeds(random_samples(specs, value_ranges(texts, specs), ranges, seed), tuple(specs), ranges)
    notes: dict[str, None] = {}
    feeds = [_feed(sample, specs, notes) for sample in given]
    check_sizes(specs, ranges, [{name: array.shape for name, array in feed.items()} for feed in feeds])
    return Feeds(feeds, tuple(specs), ranges, tuple(Note(text=text) for text in notes))


def _feed(sample: Given, specs: Sequence[TensorSpec], notes: dict[str, None]) -> dict[str, Array]:
    named = sample.named if sample.named is not None else {f"arr_{i}": arg for i, arg in enumerate(sample.args)}
    named = {**named, **sample.kwargs}
    if named and not set(named) & {spec.name for spec in specs}:
        positional = all(name.removeprefix("arr_").isdigit() for name in named)
        if len(named) == len(specs) and (positional or len(specs) == 1):
            if not positional:
                notes[f"the samples call {specs[0].name} {next(iter(named))}; it is the model's only input"] = None
            named = dict(zip((spec.name for spec in specs), named.values(), strict=True))
    unknown = [name for name in named if name not in {spec.name for spec in specs}]
    missing = [spec.name for spec in specs if spec.name not in named]
    if unknown:
        raise no_such_input(unknown, specs)
    if missing:
        raise UsageError(
            "CNV-2017",
            f"{sample.source or 'a sample'} lacks the inputs {', '.join(missing)}",
            hint="every input needs an array of its name",
        )
    return {spec.name: _fitted(named[spec.name], spec, notes) for spec in specs}


def _fitted(value: Any, spec: TensorSpec, notes: dict[str, None]) -> Array:
    """An array of the dtype that the model takes; only float64 is narrowed, as it is numpy's default."""
    array = _as_array(value)
    if array.dtype == np.float64 and spec.dtype in ("float32", "float16", "bfloat16"):
        notes[f"float64 samples of {spec.name} were narrowed to {spec.dtype}, as the model takes it"] = None
        array = array.astype(dtype_of(spec.dtype))
    if array.dtype.name != spec.dtype or array.ndim != len(spec.shape):
        raise UsageError(
            "CNV-2017",
            f"the sample of {spec.name} is {array.dtype.name} with {array.ndim} dimensions; the model takes "
            f"{spec.dtype} with {len(spec.shape)}",
            hint="save the arrays in the model's own dtypes and numbers of dimensions",
        )
    return array


def _as_array(value: Any) -> Array:
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    from convert.loading.calls import to_array

    return to_array(value) if hasattr(value, "detach") else np.asarray(value)
