"""What the handoff tests share: a model, machines with and without a toolkit, bundles, and their tampering."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from convert.handoff.bundle import Bundle, sealed
from convert.host import StageHost
from convert.pipeline import convert_model
from convert.request import Conversion, Request
from convert.settings import Settings
from convert.values import LoadOptions

ROOT = Path(__file__).resolve().parents[2]
DOUBLES = ROOT / "tests" / "doubles"
sys.path.insert(0, str(DOUBLES / "atc"))

from install import install_cann  # noqa: E402

__all__ = ["Machine", "bash", "device_outputs", "install_cann", "pack", "reseal", "run_om", "unpack"]


class Machine:
    """One machine: its folders, and conversions on it."""

    def __init__(self, folder: Path, host: StageHost) -> None:
        self.host = host
        self.settings = Settings(
            cache_dir=str(folder / "cache"),
            out=str(folder / "out"),
            registry=str(folder / "registry"),
            timeout=120.0,
        )

    def convert(self, model: Path, target: str, **options: Any) -> Conversion:
        """``convert MODEL --target TARGET``."""
        load = options.pop("load", None) or LoadOptions(path=str(model))
        request = Request(load=load, targets=(target,), **options)
        return convert_model(request, self.settings, host=self.host)


def unpack(archive: str | Path, folder: Path) -> Path:
    """Unpack a bundle as its user does; the bundle's folder."""
    subprocess.run(["tar", "xf", str(archive), "-C", str(folder)], check=True)
    (inside,) = folder.glob("*.handoff")
    return inside


def pack(folder: Path, archive: Path) -> Path:
    """Pack a folder as its user does, with whatever owner and time it has."""
    subprocess.run(["tar", "cf", str(archive), "-C", str(folder.parent), folder.name], check=True)
    return archive


def bash(folder: Path, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """``bash compile.sh`` in a bundle, from another folder."""
    return subprocess.run(
        ["bash", str(folder / "compile.sh")],
        cwd="/",
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def device_outputs(folder: Path, run: Callable[[bytes, dict[str, np.ndarray]], Sequence[np.ndarray]]) -> None:
    """Run ``out/…`` on every sample as a device would, and save what comes out in ``measured/``."""
    (artifact,) = (path for path in (folder / "out").iterdir() if path.is_file())
    for sample in sorted(folder.glob("samples/???.npz")):
        with np.load(sample) as stored:
            outputs = run(artifact.read_bytes(), dict(stored))
        np.savez(folder / "measured" / sample.name, **{str(i): array for i, array in enumerate(outputs)})


def reseal(folder: Path, **changes: Any) -> Bundle:
    """Change fields of a bundle as a forger does, its own digest included."""
    path = folder / "bundle.json"
    bundle = msgspec.json.decode(path.read_bytes(), type=Bundle)
    bundle = sealed(msgspec.structs.replace(bundle, **changes))
    path.write_bytes(msgspec.json.encode(bundle, order="sorted"))
    return bundle


def members(archive: Path) -> list[tarfile.TarInfo]:
    """The members of an archive."""
    with tarfile.open(archive) as tar:
        return tar.getmembers()


def run_om(artifact: bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What the card of the stand-in makes of an .om: its graph, with every input rounded to half precision."""
    import onnxruntime
    from om_format import MAGIC, rounded

    model = artifact.removeprefix(MAGIC).partition(b"\n")[2]
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return list(session.run(None, {name: rounded(array, "fp16") for name, array in feeds.items()}))
