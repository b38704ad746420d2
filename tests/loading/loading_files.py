"""Small model files of every format, made where a test asks for them."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch import nn

T = TypeVar("T")


class Net(nn.Module):
    """Two layers and a batch normalisation; input x [N, 4], output [N, 2]."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.norm(self.first(x))))


NET_SOURCE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, classes)
    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))

def make(classes=2):
    return Net(classes)
"""


def quietly(make: Callable[[], T]) -> T:
    """Call torch functions that warn of their own deprecation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


def save_script(path: Path, module: nn.Module, *args: Any, trace: bool = False) -> Path:
    """A TorchScript archive: scripted, or traced with ``args``."""
    make = (lambda: torch.jit.trace(module, args, check_trace=False)) if trace else (lambda: torch.jit.script(module))
    quietly(lambda: torch.jit.save(make(), str(path)))
    return path


def save_program(path: Path, module: nn.Module, *args: Any, **options: Any) -> Path:
    """A torch.export archive, whatever its suffix."""
    program = quietly(lambda: torch.export.export(module, args, **options))
    buffer = io.BytesIO()
    quietly(lambda: torch.export.save(program, buffer))
    path.write_bytes(buffer.getvalue())
    return path


def save_old_program(path: Path, module: nn.Module, *args: Any) -> Path:
    """A torch.export archive in the flat layout of PyTorch 2.1 to 2.7."""
    from torch._export.serde.schema import SCHEMA_VERSION
    from torch._export.serde.serialize import serialize

    artifact = quietly(lambda: serialize(torch.export.export(module, args)))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", ".".join(map(str, SCHEMA_VERSION)))
        archive.writestr("serialized_exported_program.json", artifact.exported_program)
        archive.writestr("serialized_state_dict.pt", artifact.state_dict)
        archive.writestr("serialized_constants.pt", artifact.constants)
        archive.writestr("serialized_example_inputs.pt", artifact.example_inputs)
    return path


def save_torch(path: Path, value: Any, *, old: bool = False) -> Path:
    """What ``torch.save`` writes now, or (``old``) wrote before PyTorch 1.6."""
    torch.save(value, path, _use_new_zipfile_serialization=not old)
    return path


def save_tar(path: Path, name: str = "pickle") -> Path:
    """A tar with the members of the first PyTorch versions; the object is an empty state_dict."""
    members = {"sys_info": {"little_endian": True}, name: {"w": 1}, "storages": 0, "tensors": 0}
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for member, value in members.items():
            data = pickle.dumps(value, protocol=2)
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def save_safetensors(path: Path, tensors: dict[str, Any]) -> Path:
    """A safetensors file."""
    from safetensors.torch import save_file

    save_file(tensors, str(path))
    return path


def onnx_model(shape: tuple[Any, ...] = (1, 4), **options: Any) -> onnx.ModelProto:
    """``y = x @ w`` with w [4, 2] as an initializer."""
    weights = onnx.numpy_helper.from_array(np.ones((4, 2), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], **options)


def save_onnx(path: Path, model: onnx.ModelProto | None = None) -> Path:
    """An ONNX file."""
    path.write_bytes((model or onnx_model()).SerializeToString())
    return path


def point_outside(model: onnx.ModelProto, location: str, *, length: int = 32, offset: int = 0) -> onnx.ModelProto:
    """The model with the data of its first initializer said to lie at ``location``."""
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return model


def rezip(path: Path, change: Callable[[str, bytes], bytes | None], extra: dict[str, bytes] | None = None) -> Path:
    """The same zip with members changed (None: left out) and further ones added below its root."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    root = next(iter(members)).partition("/")[0]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            new = change(name.removeprefix(f"{root}/"), data)
            if new is not None:
                archive.writestr(name, new)
        for name, data in (extra or {}).items():
            archive.writestr(f"{root}/{name}", data)
    return path


def edit_json(path: Path, member: str, change: Callable[[Any], None]) -> Path:
    """Change one JSON member of a zip."""

    def changed(name: str, data: bytes) -> bytes:
        if name != member:
            return data
        document = json.loads(data)
        change(document)
        return json.dumps(document).encode()

    return rezip(path, changed)


def field(number: int, payload: bytes | int) -> bytes:
    """One protobuf field: bytes are length-delimited, an int is a varint."""
    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def varint(value: int) -> bytes:
    """A protobuf varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


class Evil:
    """Unpickling this creates the file ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))
