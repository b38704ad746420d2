"""Building the hard inputs and converting them, in worker processes that import the libraries once."""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from convert.host import StageHost
from convert.pipeline import convert_model
from convert.request import Conversion, Request
from convert.settings import Settings
from convert.values import LoadOptions

HERE = Path(__file__).parent


def build(script: str, out: str) -> dict[str, Any]:
    """Run one builder (in a worker) and give its ``meta.json``."""
    os.environ["CORPUS_SMALL"] = "1"
    os.chdir(out)
    sys.path.insert(0, str(Path(script).parent))
    sys.argv = [script, out]
    runpy.run_path(script, run_name="__main__")
    return json.loads((Path(out) / "meta.json").read_text())


@contextmanager
def torch_host(log: Path) -> Iterator[StageHost]:
    """A stage host that has torch and its exporter imported, so that no conversion pays for that."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent.parent), *([before] if before else [])])
    try:
        with StageHost(log, preload=("numpy", "onnx", "onnxruntime", "onnxsim", "torch", "torch.onnx")) as host:
            host.begin()
            yield host
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def build_case(host: StageHost, script: Path, out: Path) -> dict[str, Any]:
    """Build one case into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    with host.worker() as worker:
        return msgspec.json.decode(worker.call("case_runner:build", str(script), str(out)).value)


def request_for(meta: dict[str, Any], folder: Path, **more: Any) -> Request:
    """The request that a user with this file and these samples would make."""
    load = {
        "path": str(folder / meta["model"]),
        "samples": str(folder / meta["inputs"]) if meta.get("inputs") else "",
        "factory": str(folder / meta["factory"]) if meta.get("factory") else "",
    }
    load.update(more.pop("load", {}))
    name = f"case-{folder.name.lower()}".replace("_", "-")
    return Request(load=LoadOptions(**load), targets=("cpu",), name=name, **more)


def convert_case(host: StageHost, request: Request, places: Path) -> Conversion:
    """Convert with cache, registry and output folder of the test."""
    settings = Settings(
        registry=str(places / "registry"), cache_dir=str(places / "cache"), out=str(places / "out"), timeout=300
    )
    return convert_model(request, settings, host=host)
