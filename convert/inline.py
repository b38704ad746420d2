"""Weights inside ``model.onnx``: referred to where they lie in the file instead of read, and streamed into a new one.

A proto with all its weights in it costs their size again at each parse, copy and serialization. A *skeleton* is the
same proto whose big initializers are references into the very file: every tool for external data takes it, ONNX Runtime
maps the weights, and :func:`write_inline` copies them from file to file.

Field numbers are those of ``onnx.proto`` (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from onnx import GraphProto, ModelProto, TensorProto

from convert.bigmodel import is_external, refer, reference_of, tensor_array
from convert.errors import disk_full
from convert.loading.wire import LEN, Buffer, fields
from convert.walking import graphs_in

GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9
"""Fields of ModelProto, GraphProto and TensorProto."""
MAPPED_FROM = 32 << 20
"""From this many bytes of model file on, a skeleton is worth its walk over the file."""
REFERRED_FROM = 64 << 10
"""Smaller initializers stay in the skeleton: folding needs them."""
CHUNK = 16 << 20


class Piece(NamedTuple):
    """A field of a message: where it begins with its tag, and where its payload lies."""

    number: int
    begin: int
    start: int
    end: int


def skeleton(path: Path, *, threshold: int = REFERRED_FROM) -> bytes:
    """A model file's proto, serialized, with its initializers of at least ``threshold`` bytes as references into it.

    Only initializers of the main graph that hold raw data are referred to. Raises :class:`WireError` for a damaged
    file.
    """
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        parts: list[bytes] = []
        for piece in _pieces(data, 0, len(data)):
            if piece.number == GRAPH:
                graph = b"".join(_graph(data, piece, path.name, threshold))
                parts += [_head(GRAPH, len(graph)), graph]
            else:
                parts.append(data[piece.begin : piece.end])
        return b"".join(parts)


def _pieces(data: Buffer, start: int, end: int) -> Iterator[Piece]:
    before = start
    for field in fields(data, start, end):
        yield Piece(field.number, before, field.start, field.end)
        before = field.end


def _graph(data: Buffer, graph: Piece, location: str, threshold: int) -> Iterator[bytes]:
    for piece in _pieces(data, graph.start, graph.end):
        if piece.number == INITIALIZER and piece.end - piece.start >= threshold:
            tensor = _referred(data, piece, location)
            yield _head(INITIALIZER, len(tensor))
            yield tensor
        else:
            yield bytes(data[piece.begin : piece.end])


def _referred(data: Buffer, tensor: Piece, location: str) -> bytes:
    """An initializer as a reference; as it is where it holds no raw data."""
    kept, raw = [], None
    for piece in _pieces(data, tensor.start, tensor.end):
        if piece.number == RAW_DATA:
            raw = piece
        else:
            kept.append(bytes(data[piece.begin : piece.end]))
    if raw is None or raw.end == raw.start:
        return bytes(data[tensor.start : tensor.end])
    made = TensorProto.FromString(b"".join(kept))
    refer(made, location, raw.start, raw.end - raw.start)
    return bytes(made.SerializeToString())


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _head(number: int, length: int) -> bytes:
    """The tag and the length of a field."""
    return _varint(number << 3 | LEN) + _varint(length)


def write_inline(model: ModelProto, source: Path, target: Path) -> None:
    """Write a model with its external weights inside, as ``SerializeToString`` would lay it out; they are streamed.

    ``source`` is the folder that the references point from. Afterwards they point into the new file (in place); those
    of subgraphs are loaded.
    """
    for graph in list(graphs_in(model.graph))[1:]:
        for tensor in filter(is_external, graph.initializer):
            load_weight(tensor, source)
    tensors = [_Tensor(tensor, source) for tensor in model.graph.initializer]
    before, after = _split(_without(model, "graph"), GRAPH)
    graph_before, graph_after = _split(_without(model.graph, "initializer"), INITIALIZER)
    length = len(graph_before) + len(graph_after) + sum(len(tensor.head) + tensor.length for tensor in tensors)
    try:
        with target.open("wb") as stream:
            stream.write(before + _head(GRAPH, length) + graph_before)
            for tensor in tensors:
                tensor.write(stream, target.name)
            stream.write(graph_after + after)
    except OSError as error:
        raise disk_full(error, "writing weights") or error from error


OPERANDS = frozenset({"MatMul", "Gemm", "Gather", "Einsum"})
"""Operators that simplifiers leave alone with a weight as an operand: nothing is fused into it or folded from it."""


def operands_only(model: ModelProto) -> set[str]:
    """The external initializers that are only operands of :data:`OPERANDS`, in nodes that can't be folded whole."""
    graph = model.graph
    constant = {tensor.name for tensor in graph.initializer}
    left = {tensor.name for tensor in graph.initializer if is_external(tensor)}
    left -= {value.name for value in graph.output}
    for node in graph.node:
        whole = all(not name or name in constant for name in node.input)
        if whole:
            constant.update(node.output)
        if whole or node.op_type not in OPERANDS or node.domain not in ("", "ai.onnx"):
            left.difference_update(node.input)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                left.difference_update(name for part in graphs_in(inner) for used in part.node for name in used.input)
    return left


def load_weight(tensor: TensorProto, folder: Path) -> None:
    """Bring an external tensor's values into the proto (in place); ``folder`` is where its reference points from."""
    raw = tensor_array(tensor, folder).tobytes()
    tensor.CopyFrom(TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=raw))


def _without(message: ModelProto | GraphProto, field: str) -> bytes:
    kept = type(message)()
    for descriptor, value in message.ListFields():
        if descriptor.name == field:
            continue
        if isinstance(value, (str, bytes, int, float)):
            setattr(kept, descriptor.name, value)
        else:
            getattr(kept, descriptor.name).MergeFrom(value)
    return bytes(kept.SerializeToString())


def _split(data: bytes, number: int) -> tuple[bytes, bytes]:
    """The fields before a field number, and those behind it."""
    at = next((piece.begin for piece in _pieces(data, 0, len(data)) if piece.number > number), len(data))
    return data[:at], data[at:]


class _Tensor:
    """An initializer on its way into a file."""

    def __init__(self, tensor: TensorProto, folder: Path) -> None:
        self._tensor = tensor
        self._reference = reference_of(tensor, folder) if is_external(tensor) else None
        if self._reference is None:
            self._told = tensor.SerializeToString()
        else:
            told = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims).SerializeToString()
            self._told = told + _head(RAW_DATA, self._reference.length)
        self.length = len(self._told) + (self._reference.length if self._reference else 0)
        self.head = _head(INITIALIZER, self.length)

    def write(self, stream: IO[bytes], name: str) -> None:
        """Write it, and refer to where it now lies."""
        stream.write(self.head + self._told)
        if self._reference is None:
            return
        at = stream.tell()
        with self._reference.path.open("rb") as source:
            source.seek(self._reference.offset)
            left = self._reference.length
            while left and (part := source.read(min(CHUNK, left))):
                stream.write(part)
                left -= len(part)
        refer(self._tensor, name, at, self._reference.length)
