"""Reading, describing and writing ONNX graphs; used by the stages, in the worker only (imports onnx).

A graph with at least :data:`EXTERNAL_FROM` bytes of weights keeps them in ``model.onnx.data`` beside ``model.onnx``.
Protos are always read without their external data; weights are streamed or linked, never held twice.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto

from artifacts.digest import FileEntry, file_entries
from convert.arrays import Array, load_npz, save_npz
from convert.bigmodel import external_tensors, externalize, is_external, link_or_copy, nbytes, place_weights
from convert.errors import LoadError
from convert.inline import write_inline
from convert.values import Dim, LoadedModel, OnnxGraph, TensorSpec
from convert.walking import graphs_of, nodes_of

MODEL = "model.onnx"
WEIGHTS = "model.onnx.data"
EXTERNAL_FROM = 256 << 20
PRODUCER = "model-convert"


def read_model(path: Path) -> ModelProto:
    """The proto of a model file, external data left where it is. Raises :class:`LoadError` (CNV-3016)."""
    try:
        return onnx.load(str(path), load_external_data=False)
    except DecodeError as error:
        raise LoadError(
            "CNV-3016",
            f"{path.name} is damaged: its protobuf can't be read ({path.stat().st_size:,} bytes)",
            hint="download or export it again",
        ) from error


def write_model(
    model: ModelProto, folder: Path, *, weights_from: Path, link: bool = True, inline_below: int = 0
) -> tuple[str, ...]:
    """Write ``model.onnx`` into ``folder`` and give the names of the files written.

    External weights come from the folder ``weights_from`` into ``model.onnx.data``, linked where they lie in one
    file (never a user's own: ``link=False``); into ``model.onnx`` itself where the model has fewer than
    ``inline_below`` bytes of weights. From :data:`EXTERNAL_FROM` bytes of inline weights on, those are moved out too.
    """
    if weight_bytes(model) < inline_below and external_tensors(model):
        write_inline(model, weights_from, folder / MODEL)
        return (MODEL,)
    if not place_weights(model, weights_from, folder / WEIGHTS, link=link) and inline_bytes(model) >= EXTERNAL_FROM:
        externalize(model, folder / WEIGHTS)
    with (folder / MODEL).open("wb") as stream:
        stream.write(model.SerializeToString())
    return (MODEL, WEIGHTS) if (folder / WEIGHTS).exists() else (MODEL,)


def inline_bytes(model: ModelProto) -> int:
    """Bytes of weights inside the proto."""
    return sum(nbytes(t) for g in graphs_of(model) for t in g.initializer if not is_external(t))


def weight_bytes(model: ModelProto) -> int:
    """Bytes of all initializers."""
    return sum(nbytes(t) for g in graphs_of(model) for t in g.initializer)


def opset_of(model: ModelProto) -> int:
    """The version of the default operator set; 0 where the model imports none."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def dtype_name(elem_type: int) -> str:
    """The numpy name of an ONNX element type (``float32``, ``bfloat16``, …; ``string``)."""
    if elem_type == TensorProto.STRING:
        return "string"
    try:
        return str(onnx.helper.tensor_dtype_to_np_dtype(elem_type))
    except (KeyError, ValueError):
        return f"type{elem_type}"


def spec_of(value: ValueInfoProto) -> TensorSpec:
    """Name, dtype and shape of a graph input or output. A dimension without size or name is called ``name_0``."""
    if not value.type.HasField("tensor_type"):
        return TensorSpec(name=value.name, dtype=value.type.WhichOneof("value") or "unknown", shape=())
    tensor = value.type.tensor_type
    return TensorSpec(name=value.name, dtype=dtype_name(tensor.elem_type), shape=_dims(value.name, tensor.shape))


def _dims(name: str, shape: Any) -> tuple[Dim, ...]:
    dims: list[Dim] = []
    for number, dim in enumerate(shape.dim):
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            dims.append(dim.dim_value)
        else:
            dims.append(dim.dim_param or f"{name}_{number}")
    return tuple(dims)


def input_specs(graph: GraphProto) -> tuple[TensorSpec, ...]:
    """The real inputs: those that no initializer fills."""
    filled = {tensor.name for tensor in graph.initializer}
    return tuple(spec_of(value) for value in graph.input if value.name not in filled)


def output_specs(graph: GraphProto) -> tuple[TensorSpec, ...]:
    """The outputs, in order."""
    return tuple(spec_of(value) for value in graph.output)


def op_counts(model: ModelProto) -> dict[str, int]:
    """How many nodes of each operator; other domains as ``domain::Op``."""
    counts = collections.Counter(
        node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}" for node in nodes_of(model)
    )
    return dict(sorted(counts.items()))


def facts(model: ModelProto) -> dict[str, Any]:
    """What an :class:`OnnxGraph` says of a proto, as keyword arguments."""
    counts = op_counts(model)
    return {
        "opset": opset_of(model),
        "inputs": input_specs(model.graph),
        "outputs": output_specs(model.graph),
        "nodes": sum(counts.values()),
        "ops": counts,
        "weight_bytes": weight_bytes(model),
    }


def carry_samples(graph: OnnxGraph, folder: Path) -> tuple[FileEntry, ...]:
    """Link the samples and reference outputs of a graph into the folder of the next one."""
    entries = tuple(entry for entry in graph.files if "/" in entry.name)
    for entry in entries:
        link_or_copy(graph.path(entry.name), folder / entry.name)
    return entries


def carry_calibration(loaded: LoadedModel, wanted: Sequence[str], folder: Path) -> list[str]:
    """Bring the inputs to calibrate with into a graph's folder, those that the graph takes; the names written."""
    names = [f"calibration/{number:03d}.npz" for number in range(loaded.calibration_count)]
    for name in names:
        arrays = load_npz(loaded.path(name))
        if list(arrays) == list(wanted):
            link_or_copy(loaded.path(name), folder / name)
        else:
            save_npz(folder / name, {key: arrays[key] for key in wanted if key in arrays})
    return names


def linked_graph(graph: OnnxGraph, folder: Path) -> tuple[FileEntry, ...]:
    """Link all files of a graph into another folder."""
    for entry in graph.files:
        link_or_copy(graph.path(entry.name), folder / entry.name)
    return graph.files


def model_entries(folder: Path, names: Iterable[str], known: Sequence[FileEntry] = ()) -> tuple[FileEntry, ...]:
    """Digests of the files written; a linked ``model.onnx.data`` keeps the digest it had."""
    kept = {entry.name: entry for entry in known if entry.name == WEIGHTS}
    new = file_entries(folder, [name for name in names if name not in kept])
    return tuple(sorted((*new, *(kept[name] for name in names if name in kept))))


def write_samples(folder: Path, feeds: Sequence[dict[str, Array]], outputs: Sequence[Sequence[Array]]) -> list[str]:
    """Write ``samples/000.npz`` (by input name) and ``reference/000.npz`` (by position); gives the names written."""
    names = []
    for number, feed in enumerate(feeds):
        names.append(f"samples/{number:03d}.npz")
        save_npz(folder / names[-1], feed)
    for number, output in enumerate(outputs):
        names.append(f"reference/{number:03d}.npz")
        save_npz(folder / names[-1], {str(index): array for index, array in enumerate(output)})
    return names


def read_samples(graph: OnnxGraph) -> tuple[list[dict[str, Array]], list[list[Array]]]:
    """The sample inputs of a graph and its reference outputs (none where ONNX Runtime could not run it)."""
    names = {entry.name for entry in graph.files}
    feeds = [load_npz(graph.path(f"samples/{number:03d}.npz")) for number in range(graph.sample_count)]
    references = [f"reference/{number:03d}.npz" for number in range(graph.sample_count)]
    return feeds, [list(load_npz(graph.path(name)).values()) for name in references if name in names]
