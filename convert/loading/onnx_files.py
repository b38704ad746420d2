"""What an ONNX file says of itself, read without the onnx package: signature, opsets, external data.

Field numbers are those of ``onnx.proto`` (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto). The file is mapped;
weights are stepped over, so the cost follows the number of nodes and not the size of the file.
"""

from __future__ import annotations

import mmap
import re
from functools import lru_cache
from itertools import islice
from pathlib import Path

import msgspec

from artifacts.digest import FileEntry, sha256_file
from convert.errors import LoadError
from convert.loading.wire import LEN, VARINT, Buffer, Field, WireError, fields, signed, text

MAX_PROTO = (1 << 31) - 1
"""Protobuf readers refuse larger messages; larger models keep their weights in external data."""
MAX_DEPTH = 64
"""Nesting of messages. Protobuf readers stop at 100; a subgraph takes three levels."""
MAX_FIELDS = 5_000_000
MAX_TENSORS = 200_000
EXTERNAL = 1
"""``TensorProto.DataLocation.EXTERNAL``."""

SMALL = 1 << 16
ATTRIBUTE_TAG = b"\x2a"
"""Field 5 (attribute) of a NodeProto, length-delimited."""
NESTED_TAG = re.compile(rb"[\x2a\x32\x52\x5a]|[\xb2\xba]\x01")
"""Fields 5, 6, 10, 11, 22 and 23 of an AttributeProto; other bytes may look like them, which only costs a walk."""

MODEL_KINDS = {1: VARINT, 2: LEN, 3: LEN, 4: LEN, 5: VARINT, 6: LEN, 7: LEN, 8: LEN, 14: LEN, 20: LEN, 25: LEN, 26: LEN}
"""ModelProto: field → wire type."""
GRAPH, OPSET, FUNCTION, TRAINING = 7, 8, 25, 20
DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16",
    17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4",
    23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2",
}  # fmt: skip
"""``TensorProto.DataType`` → dtype name."""


class OnnxValue(msgspec.Struct, frozen=True, kw_only=True):
    """An input or output: dtype (or what it is instead of a tensor), and dimensions, None where nothing is said."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None = None
    tensor: bool = True


class ExternalTensor(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor whose data lie in another file."""

    name: str
    location: str
    offset: int = 0
    length: int = 0


class OnnxOutline(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says of itself. ``inputs``: graph inputs that no initializer fills."""

    ir_version: int
    opsets: dict[str, int]
    producer: str
    inputs: tuple[OnnxValue, ...]
    outputs: tuple[OnnxValue, ...]
    external: tuple[ExternalTensor, ...]
    nodes: int


class _Reader:
    """Walks one model; collects external tensors of every graph, with limits on depth and number of fields."""

    def __init__(self, data: Buffer) -> None:
        self.data = data
        self.external: list[ExternalTensor] = []
        self.seen = 0

    def children(self, field: Field, depth: int) -> list[Field]:
        """The fields of a sub-message."""
        if field.kind != LEN:
            raise WireError(f"field {field.number} is no message")
        if depth > MAX_DEPTH:
            raise WireError(f"its messages are nested more than {MAX_DEPTH} deep")
        found = list(islice(fields(self.data, field.start, field.end), MAX_FIELDS + 1 - self.seen))
        self.seen += len(found)
        if self.seen > MAX_FIELDS:
            raise WireError(f"it has more than {MAX_FIELDS:,} fields")
        return found

    def graph(self, field: Field, depth: int) -> list[Field]:
        """Walk a GraphProto for external tensors; gives its fields."""
        found = self.children(field, depth)
        for item in found:
            if item.number == 1:
                self.node(item, depth + 1)
            elif item.number == 5:
                self.tensor(item, depth + 1)
            elif item.number == 15:
                self.sparse(item, depth + 1)
        return found

    def node(self, field: Field, depth: int) -> None:
        """Walk a NodeProto: tensors and graphs hide in its attributes. One without the attribute tag has none."""
        if field.end - field.start <= SMALL and ATTRIBUTE_TAG not in self.data[field.start : field.end]:
            return
        for item in self.children(field, depth):
            if item.number == 5:
                self.attribute(item, depth + 1)

    def attribute(self, field: Field, depth: int) -> None:
        """Walk an AttributeProto: ``t``, ``g``, ``tensors``, ``graphs``, ``sparse_tensor(s)``, if it has such a tag."""
        if field.end - field.start <= SMALL and NESTED_TAG.search(self.data[field.start : field.end]) is None:
            return
        for item in self.children(field, depth):
            if item.number in (5, 10):
                self.tensor(item, depth + 1)
            elif item.number in (6, 11):
                self.graph(item, depth + 1)
            elif item.number in (22, 23):
                self.sparse(item, depth + 1)

    def sparse(self, field: Field, depth: int) -> None:
        """Walk a SparseTensorProto: ``values`` and ``indices`` are tensors."""
        for item in self.children(field, depth):
            if item.number in (1, 2):
                self.tensor(item, depth + 1)

    def tensor(self, field: Field, depth: int) -> str:
        """Read a TensorProto's name, and remember it where its data are external."""
        name, entries, location = "", {}, 0
        for item in self.children(field, depth):
            if item.number == 8:
                name = text(self.data, item)
            elif item.number == 14 and item.kind == VARINT:
                location = item.value
            elif item.number == 13:
                key, value = self.pair(item, depth + 1)
                entries[key] = value
        if location == EXTERNAL:
            self.add_external(name, entries)
        return name

    def pair(self, field: Field, depth: int) -> tuple[str, str]:
        """Read a StringStringEntryProto."""
        found = {item.number: text(self.data, item) for item in self.children(field, depth) if item.number in (1, 2)}
        return found.get(1, ""), found.get(2, "")

    def add_external(self, name: str, entries: dict[str, str]) -> None:
        """Remember an external tensor."""
        offset, length = entries.get("offset", "0") or "0", entries.get("length", "0") or "0"
        if not (offset.isascii() and offset.isdigit() and length.isascii() and length.isdigit()):
            raise WireError(f"tensor {name!r} has an external offset or length that is no number")
        if len(self.external) >= MAX_TENSORS:
            raise WireError(f"it has more than {MAX_TENSORS:,} external tensors")
        self.external.append(
            ExternalTensor(
                name=name, location=entries.get("location", ""), offset=int(offset[:20]), length=int(length[:20])
            )
        )

    def value(self, field: Field, depth: int) -> OnnxValue:
        """Read a ValueInfoProto."""
        name, dtype, shape, tensor = "", "", None, False
        for item in self.children(field, depth):
            if item.number == 1:
                name = text(self.data, item)
            elif item.number == 2:
                for kind in self.children(item, depth + 1):
                    tensor = kind.number == 1
                    if tensor:
                        dtype, shape = self.tensor_type(kind, depth + 2)
                    else:
                        names = {4: "a sequence", 5: "a map", 8: "a sparse tensor", 9: "an optional value"}
                        dtype = names.get(kind.number, dtype)
        return OnnxValue(name=name, dtype=dtype, shape=shape, tensor=tensor)

    def tensor_type(self, field: Field, depth: int) -> tuple[str, tuple[int | str | None, ...] | None]:
        """Read a TypeProto.Tensor: dtype name and shape."""
        dtype, shape = "", None
        for item in self.children(field, depth):
            if item.number == 1:
                dtype = DTYPES.get(item.value, f"data type {item.value}")
            elif item.number == 2:
                shape = tuple(self.dim(dim, depth + 2) for dim in self.children(item, depth + 1) if dim.number == 1)
        return dtype, shape

    def dim(self, field: Field, depth: int) -> int | str | None:
        """Read a TensorShapeProto.Dimension; a size below 0 says nothing (converters write -1 for a dynamic one)."""
        for item in self.children(field, depth):
            if item.number == 1 and item.kind == VARINT:
                size = signed(item.value)
                return size if size >= 0 else None
            if item.number == 2:
                return text(self.data, item) or None
        return None


def outline_onnx(path: Path, size: int) -> OnnxOutline:
    """Read what an ONNX file says of itself; the last one read in this process is kept.

    Raises :class:`LoadError`: CNV-3016 where the file is damaged or out of bounds, CNV-3019 where it has no graph
    outputs.
    """
    return _outline_file(path, size, path.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _outline_file(path: Path, size: int, _: int) -> OnnxOutline:
    if size > MAX_PROTO:
        raise damaged_onnx(path, size, f"a protobuf message may have 2 GiB at most, this has {size:,} bytes")
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _outline(data, size, path)
        except WireError as error:
            raise damaged_onnx(path, size, str(error)) from error


def _outline(data: Buffer, size: int, path: Path) -> OnnxOutline:
    reader = _Reader(data)
    ir_version, producer, opsets, graph = 0, "", {}, None
    for field in fields(data, 0, size):
        if MODEL_KINDS.get(field.number, field.kind) != field.kind:
            raise WireError(f"field {field.number} of the model has the wrong type")
        if field.number == 1:
            ir_version = field.value
        elif field.number == 2:
            producer = text(data, field)
        elif field.number == OPSET:
            opsets.update(_opset(reader, field))
        elif field.number == GRAPH:
            graph = reader.graph(field, 1)
        elif field.number == FUNCTION:
            _function(reader, field)
        elif field.number == TRAINING:
            _training(reader, field)
    if graph is None or not opsets:
        raise WireError(
            "it holds no graph" if graph is None else "the part behind the graph, with the opset, is missing"
        )
    return _graph_outline(reader, graph, path, ir_version=ir_version, producer=producer, opsets=opsets)


def _graph_outline(
    reader: _Reader, graph: list[Field], path: Path, *, ir_version: int, producer: str, opsets: dict[str, int]
) -> OnnxOutline:
    values: dict[int, list[OnnxValue]] = {11: [], 12: []}
    for field in graph:
        if field.number in values:
            values[field.number].append(reader.value(field, 2))
    if not values[12]:
        raise LoadError(
            "CNV-3019",
            f"{path.name} is an ONNX model whose graph has no outputs",
            hint="export the model again; a file that a tool wrote only in part often looks like this",
        )
    external = tuple(reader.external)
    filled = {reader.tensor(field, 2) for field in graph if field.number == 5}
    return OnnxOutline(
        ir_version=ir_version,
        opsets=opsets,
        producer=producer,
        inputs=tuple(value for value in values[11] if value.name not in filled),
        outputs=tuple(values[12]),
        external=external,
        nodes=sum(1 for field in graph if field.number == 1),
    )


def _opset(reader: _Reader, field: Field) -> dict[str, int]:
    domain, version = "", 0
    for item in reader.children(field, 1):
        if item.number == 1:
            domain = text(reader.data, item)
        elif item.number == 2:
            version = signed(item.value)
    return {"" if domain == "ai.onnx" else domain: version}


def _function(reader: _Reader, field: Field) -> None:
    for item in reader.children(field, 1):
        if item.number == 7:
            reader.node(item, 2)
        elif item.number == 11:
            reader.attribute(item, 2)


def _training(reader: _Reader, field: Field) -> None:
    for item in reader.children(field, 1):
        if item.number in (1, 2):
            reader.graph(item, 2)


def damaged_onnx(path: Path, size: int, why: str) -> LoadError:
    """The error for an ONNX file that can't be read."""
    return LoadError(
        "CNV-3016",
        f"{path.name} is damaged: it starts as an ONNX model but its protobuf can't be read: {why} ({size:,} bytes)",
        hint="download or copy the file again and compare its size and sha256 with the source",
    )


def external_files(path: Path, tensors: tuple[ExternalTensor, ...]) -> tuple[FileEntry, ...]:
    """The files that external tensors lie in, checked and hashed; names are relative to the model's folder.

    Raises :class:`LoadError`: CNV-3017 where a location leaves the folder of the model, CNV-3018 where a file is
    missing or too short. All tensors of the first kind of fault are named at once. No file outside is opened.
    """
    folder = path.parent
    outside = [tensor for tensor in tensors if not stays_inside(folder, tensor.location)]
    if outside:
        raise LoadError(
            "CNV-3017",
            f"{path.name} keeps tensors in files outside its own folder: {listed(outside)}",
            hint="put the data file beside the model and save the model again with a plain file name as its location",
        )
    missing = [tensor for tensor in tensors if not (folder / tensor.location).is_file()]
    if missing:
        raise LoadError(
            "CNV-3018",
            f"{path.name} needs data files that are not in {folder}: {listed(missing)}",
            hint="copy the data files into the folder of the model; a large ONNX model is several files",
        )
    sizes = {name: (folder / name).stat().st_size for name in {tensor.location for tensor in tensors}}
    short = [tensor for tensor in tensors if tensor.offset + tensor.length > sizes[tensor.location]]
    if short:
        needs = max(tensor.offset + tensor.length for tensor in short)
        raise LoadError(
            "CNV-3018",
            f"{path.name} has a data file that is too short: {listed(short)} "
            f"({sizes[short[0].location]:,} bytes where {needs:,} are needed)",
            hint="copy the data file again; it was cut short",
        )
    return tuple(FileEntry(name=name, sha256=sha256_file(folder / name), bytes=sizes[name]) for name in sorted(sizes))


def stays_inside(folder: Path, location: str) -> bool:
    """Whether a location is a plain relative path whose real file, links followed, lies in ``folder``."""
    parts = location.split("/")
    if not location or location.startswith("/") or "\\" in location or "\x00" in location or len(location) > 4096:
        return False
    if any(part in ("", ".", "..") for part in parts):
        return False
    return (folder / location).resolve().is_relative_to(folder.resolve())


def listed(tensors: list[ExternalTensor], limit: int = 8) -> str:
    """Names and locations of tensors for a message."""
    shown = [f"{tensor.name!r} in {tensor.location[:200]!r}" for tensor in tensors[:limit]]
    return ", ".join(shown) + (f" and {len(tensors) - limit} more" if len(tensors) > limit else "")
