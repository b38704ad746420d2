"""Model files: what a file is, told from its bytes, and what opening it would import. No code of the file runs."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from fuzz_kit import Target, mutate_bytes, mutate_json, mutate_tar, mutate_zip, written

from convert.loading import pickles, sniff
from convert.loading.onnx_files import _outline_file, outline_onnx
from convert.loading.program_vetting import vet_program

_in_zip = mutate_zip(lambda data, chance: (mutate_json if data[:1] in b"{[" else mutate_bytes)(data, chance))
_in_tar = mutate_tar(mutate_bytes)


def read(data: bytes) -> None:
    """identify, and what every format is asked before it is opened."""
    path = written(data, "model")
    sniff._identify.cache_clear()
    _outline_file.cache_clear()
    try:
        found = sniff.identify(path)
    finally:
        if data[:2] in (b"PK", b"\x80\x02", b"\x80\x04"):
            _names_imports(path)
    if found.format == "onnx":
        outline_onnx(path, found.bytes)
    elif found.format == "exported_program":
        vet_program(found, allow_pickle=False)


def _names_imports(path: Path) -> None:
    from convert.errors import LoadError

    try:
        assert all(isinstance(name, str) for name in pickles.globals_of(path))
    except LoadError:
        return


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Inside of zips and tars; elsewhere the bytes."""
    if data[:2] == b"PK":
        return _in_zip(data, chance)
    if data[257:262] == b"ustar":
        return _in_tar(data, chance)
    return mutate_bytes(data, chance)


def seeds() -> dict[str, bytes]:
    """One small file of each format that torch, safetensors and onnx write, and the starts of others."""
    import torch
    from loading_files import (
        Net,
        onnx_model,
        point_outside,
        save_old_program,
        save_program,
        save_safetensors,
        save_script,
        save_tar,
        save_torch,
    )
    from torch import nn

    from convert.loading.foreign import MAGICS

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        paths = [
            save_script(folder / "script", nn.Linear(2, 2)),
            save_program(folder / "program", nn.ReLU(), torch.ones(2)),
            save_old_program(folder / "old-program", nn.ReLU(), torch.ones(2)),
            save_torch(folder / "module", Net()),
            save_torch(folder / "old-checkpoint", {"model": Net().state_dict(), "epoch": 1}, old=True),
            save_tar(folder / "tar"),
            save_safetensors(folder / "safetensors", {"w": torch.ones(2)}),
        ]
        found = {path.name: path.read_bytes() for path in paths}
    found["onnx"] = onnx_model(("N", 4)).SerializeToString()
    found["onnx-external"] = point_outside(onnx_model(), "w").SerializeToString()
    found |= {f"magic-{number}": bytes(at) + magic + b"\x00" * 24 for number, (at, magic, _) in enumerate(MAGICS)}
    return found


TARGET = Target(
    name="loading",
    read=read,
    seeds=seeds,
    mutate=mutate,
    words=(b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"data.pkl", b"version", b"ustar", b"pytorch", b"\x80\x02"),
    limit=1 << 15,
)
