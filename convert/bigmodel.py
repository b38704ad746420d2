"""Weights of big models: kept out of protos and out of the sight of tools, linked and streamed on disk.

A proto is read without its external data; each weight then is a reference (file, offset, length) that this module
checks and reads. Tools that rewrite graphs see big weights as inputs of the graph (:func:`hide_weights`) and get them
back as weights afterwards (:func:`show_weights`). Files are hard-linked where that can be done, so that a model of N
bytes costs neither N bytes of memory nor N bytes of disk per stage.

``onnx.load`` and ``onnx.checker`` refuse external data in files with several hard links; ONNX Runtime takes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from convert.errors import LoadError, disk_full
from convert.links import copy_file, link_or_copy
from convert.walking import graphs_in

__all__ = [
    "Hidden",
    "Reference",
    "external_tensors",
    "externalize",
    "graphs_in",
    "hide_weights",
    "is_external",
    "link_or_copy",
    "nbytes",
    "place_weights",
    "refer",
    "refer_as",
    "reference_of",
    "show_weights",
    "stored_type",
    "tensor_array",
    "write_weights",
]

Array = np.ndarray[Any, np.dtype[Any]]

HIDE_FROM = 64 << 10
"""A weight of this many bytes is hidden from tools; smaller ones (shapes, scales, biases) are what folding needs."""
EXTERNAL_TENSOR_FROM = 1 << 10
"""Smaller tensors stay in the proto when weights move to a file of their own."""
ALIGN, ALIGN_BIG, BIG_TENSOR = 64, 4096, 1 << 20
CHUNK = 16 << 20


# ------------------------------------------------------------------------------------------------------ references


@dataclass(frozen=True, slots=True)
class Reference:
    """Where the bytes of an external tensor lie."""

    path: Path
    offset: int
    length: int


def is_external(tensor: TensorProto) -> bool:
    """Whether a tensor's values lie outside the proto."""
    return tensor.data_location == TensorProto.EXTERNAL


def reference_of(tensor: TensorProto, folder: Path) -> Reference:
    """Where an external tensor's bytes lie; ``folder`` is the model's.

    Raises :class:`LoadError`: CNV-3081 for a location outside the folder (or reached through a link that leaves it),
    CNV-3082 where the file is missing or shorter than the tensor needs.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = _contained(entries.get("location", ""), folder, tensor.name)
    offset = _number(entries.get("offset", "0"), tensor.name)
    needed = _nbytes(tensor.dims, stored_type(tensor))
    length = _number(entries.get("length", "0"), tensor.name) or needed
    size = path.stat().st_size if path.is_file() else -1
    if size < 0 or length < needed or offset + needed > size:
        found = "is missing" if size < 0 else f"has {size} bytes where {offset + needed} are needed"
        raise LoadError(
            "CNV-3082",
            f"the weights of {tensor.name!r} can't be read: {path.name} {found}",
            hint="copy the model together with all of its external data files, complete, into one folder",
        )
    return Reference(path, offset, needed)


def _contained(location: str, folder: Path, name: str) -> Path:
    pure = PurePosixPath(location)
    root = folder.resolve()
    path = (root / location).resolve()
    if not location or pure.is_absolute() or ".." in pure.parts or not path.is_relative_to(root):
        raise LoadError(
            "CNV-3081",
            f"the weights of {name!r} lie outside the model's folder: {location!r}",
            hint="put the external data beside the model and refer to it by a relative path without `..`",
        )
    return path


def _number(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise LoadError(
            "CNV-3082",
            f"the weights of {name!r} can't be read: offset or length is {text[:40]!r}",
            hint="save the model again with onnx.save_model(..., save_as_external_data=True)",
        )
    return int(text)


def nbytes(tensor: TensorProto) -> int:
    """Size of a tensor's values in bytes, by its shape and type (4-bit types: two values in a byte)."""
    return _nbytes(tensor.dims, tensor.data_type)


def _nbytes(dims: Sequence[int], data_type: int) -> int:
    return (max(0, math.prod(dims)) * _bits(data_type) + 7) // 8


def _bits(data_type: int) -> int:
    if data_type not in TensorProto.DataType.values() or data_type == TensorProto.UNDEFINED:
        return 8
    name = TensorProto.DataType.Name(data_type)
    for ending, bits in (("INT4", 4), ("FLOAT4E2M1", 4), ("INT2", 2)):
        if name.endswith(ending):
            return bits
    return int(helper.tensor_dtype_to_np_dtype(data_type).itemsize) * 8


def tensor_array(tensor: TensorProto, folder: Path) -> Array:
    """A tensor's values; those of an external tensor as a read-only map of the file, read when they are used.

    The dtype is numpy's, or that of ``ml_dtypes`` for bfloat16 and the like.
    """
    if not is_external(tensor):
        return numpy_helper.to_array(tensor)
    reference = reference_of(tensor, folder)
    dtype = helper.tensor_dtype_to_np_dtype(stored_type(tensor))
    if reference.length == 0 or _bits(tensor.data_type) < 8:
        data = np.fromfile(reference.path, np.uint8, reference.length, offset=reference.offset).tobytes()
        inline = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=data)
        return numpy_helper.to_array(inline)
    mapped = np.memmap(reference.path, dtype, "r", reference.offset, tuple(tensor.dims) or (1,))
    return mapped.reshape(tuple(tensor.dims))


def external_tensors(model: ModelProto) -> list[TensorProto]:
    """The external initializers of a model, subgraphs included."""
    return [tensor for graph in graphs_in(model.graph) for tensor in graph.initializer if is_external(tensor)]


# ---------------------------------------------------------------------------------------------------------- writing


def externalize(model: ModelProto, data: Path, *, threshold: int = EXTERNAL_TENSOR_FROM) -> None:
    """Move the initializers of at least ``threshold`` bytes out of a proto into the new file ``data`` (in place)."""
    inline = (t for g in graphs_in(model.graph) for t in g.initializer if not is_external(t))
    write_weights(
        (t for t in inline if nbytes(t) >= threshold and t.data_type != TensorProto.STRING), data, data.parent
    )


def write_weights(tensors: Iterable[TensorProto], data: Path, folder: Path) -> None:
    """Write tensors one after another into the new file ``data`` and make each a reference to it (in place).

    ``folder`` is where references of external tensors point from; their bytes are streamed.
    """
    data.unlink(missing_ok=True)
    try:
        with data.open("xb") as stream:
            for tensor in tensors:
                _pad(stream, nbytes(tensor))
                offset = stream.tell()
                _stream(tensor, folder, stream)
                refer(tensor, data.name, offset, stream.tell() - offset)
    except OSError as error:
        raise disk_full(error, "writing weights") or error from error


def _pad(stream: IO[bytes], size: int) -> None:
    align = ALIGN_BIG if size >= BIG_TENSOR else ALIGN
    stream.write(b"\0" * (-stream.tell() % align))


def _stream(tensor: TensorProto, folder: Path, stream: IO[bytes]) -> None:
    if not is_external(tensor):
        raw = tensor.raw_data or numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data
        stream.write(raw)
        return
    if stored_type(tensor) != tensor.data_type:
        _stream_cast(tensor, folder, stream)
        return
    reference = reference_of(tensor, folder)
    with reference.path.open("rb") as source:
        source.seek(reference.offset)
        left = reference.length
        while left and (part := source.read(min(CHUNK, left))):
            stream.write(part)
            left -= len(part)


def _stream_cast(tensor: TensorProto, folder: Path, stream: IO[bytes]) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    values = tensor_array(tensor, folder).reshape(-1)
    step = CHUNK // values.dtype.itemsize
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for begin in range(0, values.size, step):
            stream.write(values[begin : begin + step].astype(dtype).tobytes())


def refer(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Make a tensor a reference to ``length`` bytes at ``offset`` of the file ``location`` (in place)."""
    kept = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    kept.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        kept.external_data.add(key=key, value=value)
    tensor.CopyFrom(kept)


STORED_AS = "stored_as"
CASTABLE = {str(kind) for kind in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)}


def refer_as(tensor: TensorProto, data_type: int) -> None:
    """Give an external tensor another type, in which :func:`write_weights` will write it (in place).

    Until then the reference says in an entry of its own in which type the bytes are stored.
    """
    if stored_type(tensor) == tensor.data_type:
        tensor.external_data.add(key=STORED_AS, value=str(tensor.data_type))
    tensor.data_type = data_type


def stored_type(tensor: TensorProto) -> int:
    """The type in which a tensor's bytes are stored: its own, unless it waits to be cast."""
    found = next((entry.value for entry in tensor.external_data if entry.key == STORED_AS), "")
    return int(found) if found in CASTABLE and is_external(tensor) else tensor.data_type


def place_weights(model: ModelProto, source: Path, data: Path, *, link: bool = True) -> bool:
    """Bring the external weights of a model whose folder is ``source`` into the file ``data`` (in place).

    Where all lie in one file, that file is linked (copied with ``link=False``: a second name on a user's own file
    would make onnx refuse it there); otherwise they are streamed together. Says whether there are any.
    """
    tensors = external_tensors(model)
    if not tensors:
        return False
    references = [reference_of(tensor, source) for tensor in tensors]
    files = {reference.path for reference in references}
    if len(files) > 1 or any(stored_type(tensor) != tensor.data_type for tensor in tensors):
        write_weights(tensors, data, source)
        return True
    (link_or_copy if link else copy_file)(files.pop(), data)
    for tensor, reference in zip(tensors, references, strict=True):
        refer(tensor, data.name, reference.offset, reference.length)
    return True


# ----------------------------------------------------------------------------------------------------------- hiding


@dataclass(slots=True)
class Hidden:
    """Weights taken out of a model: the tensors, in the order they had."""

    tensors: list[TensorProto] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """How many bytes of weights are hidden."""
        return sum(nbytes(tensor) for tensor in self.tensors)


def hide_weights(model: ModelProto, *, threshold: int = HIDE_FROM) -> Hidden:
    """Turn the weights of at least ``threshold`` bytes, and all external ones, into inputs of the graph (in place).

    A tool then knows their type and shape and nothing else: it can neither fold nor copy them. Weights of subgraphs
    become inputs of the main graph where their name is used for nothing else. The values stay where they are: in the
    tensors of ``Hidden``, or in the files that these refer to.
    """
    hidden = Hidden()
    made = _names_made(model.graph)
    inputs = {value.name for value in model.graph.input}
    for graph in graphs_in(model.graph):
        kept: list[TensorProto] = []
        for tensor in graph.initializer:
            alone = graph is model.graph or made[tensor.name] == 1
            if (
                alone
                and (is_external(tensor) or nbytes(tensor) >= threshold)
                and tensor.data_type != TensorProto.STRING
            ):
                hidden.tensors.append(_taken(tensor))
            else:
                kept.append(_taken(tensor))
        del graph.initializer[:]
        graph.initializer.extend(kept)
    model.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        for tensor in hidden.tensors
        if tensor.name not in inputs
    )
    return hidden


def _taken(tensor: TensorProto) -> TensorProto:
    taken = TensorProto()
    taken.CopyFrom(tensor)
    tensor.ClearField("raw_data")
    return taken


def _names_made(graph: GraphProto) -> dict[str, int]:
    """How many graphs define each name."""
    made: dict[str, int] = {}
    for inner in graphs_in(graph):
        names = {value.name for value in inner.input} | {tensor.name for tensor in inner.initializer}
        names |= {name for node in inner.node for name in node.output}
        for name in names:
            made[name] = made.get(name, 0) + 1
    return made


def show_weights(model: ModelProto, hidden: Hidden) -> None:
    """Turn hidden weights back into initializers of the main graph (in place). Those that nothing uses are dropped."""
    names = {tensor.name for tensor in hidden.tensors}
    used = {name for graph in graphs_in(model.graph) for node in graph.node for name in node.input}
    used |= {value.name for graph in graphs_in(model.graph) for value in graph.output}
    kept = [value for value in model.graph.input if value.name not in names]
    inputs = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.graph.initializer.extend(tensor for tensor in hidden.tensors if tensor.name in used)
