"""Requests for plans, tiny graphs, and the stand-in called inside of this process: quicker than starting it."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from artifacts.digest import FileEntry
from convert.arrays import save_npz
from convert.backends.base import Toolchain
from convert.backends.magicmind import MagicmindBackend, child_job
from convert.backends.magicmind.planning import SETTINGS
from convert.graphs import facts
from convert.values import CompileOptions, DimRange, OnnxGraph, Plan
from op_registry.targets import find_target

BACKEND = MagicmindBackend()
DOUBLES = Path(__file__).resolve().parent.parent / "doubles"
DIGEST = "sha256:" + "0" * 64


def _model(nodes, inputs, outputs, weights=()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)


def _weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.random.default_rng(len(name)).normal(0, 0.3, shape).astype(np.float32), name)


def dense(batch: int | str = 2) -> onnx.ModelProto:
    """MatMul, Relu, MatMul: enough for precisions to differ."""
    return _model(
        [
            helper.make_node("MatMul", ["x", "w0"], ["a"], name="first"),
            helper.make_node("Relu", ["a"], ["b"], name="act"),
            helper.make_node("MatMul", ["b", "w1"], ["y"], name="last"),
        ],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4])],
        [_weight("w0", 8, 16), _weight("w1", 16, 4)],
    )


def image(batch: int | str = 1, side: int | str = 6) -> onnx.ModelProto:
    """A convolution: four dimensions, for layouts."""
    return _model(
        [
            helper.make_node("Conv", ["image", "k"], ["c"], name="conv", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["y"], name="act"),
        ],
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, side, side])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4, side, side])],
        [_weight("k", 4, 3, 3, 3)],
    )


def text(batch: int | str = 2) -> onnx.ModelProto:
    """Ids of 64 bits, a scalar, and an output of 64 bits."""
    return _model(
        [
            helper.make_node("Gather", ["table", "ids"], ["g"], name="embed"),
            helper.make_node("Mul", ["g", "scale"], ["y"], name="mul"),
            helper.make_node("Add", ["ids", "ids"], ["twice"], name="add"),
        ],
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, [batch, 5]),
            helper.make_tensor_value_info("scale", TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 5, 4]),
            helper.make_tensor_value_info("twice", TensorProto.INT64, [batch, 5]),
        ],
        [_weight("table", 10, 4)],
    )


MODELS = {
    "dense": dense,
    "open": lambda: dense("N"),
    "image": image,
    "image-open": lambda: image("N", "S"),
    "text": text,
    "text-open": lambda: text("N"),
}


def graph_of(kind: str, dims: dict[str, str] | None = None, *, calibration: int = 0, **more: Any) -> OnnxGraph:
    """A graph's facts without its files. ``dims``: name → ``4``, ``1..8`` or ``1,4,8``."""
    names = ["samples/000.npz", *(f"calibration/{number:03d}.npz" for number in range(calibration))]
    return OnnxGraph(
        parent=DIGEST,
        stage="adapt",
        sample_count=1,
        calibration_count=calibration,
        dims=tuple(dim_of(name, sizes) for name, sizes in (dims or {}).items()),
        files=tuple(FileEntry(name=name, sha256=DIGEST, bytes=1) for name in names),
        **{**facts(MODELS[kind]()), **more},
    )


def dim_of(name: str, sizes: str) -> DimRange:
    if ".." in sizes:
        low, _, high = sizes.partition("..")
        return DimRange(name=name, low=int(low), high=int(high or 0))
    return DimRange(name=name, sizes=tuple(int(size) for size in sizes.split(",")))


def toolchain_of(version: str, card: str = "MLU370-X4") -> Toolchain:
    return Toolchain(name="MagicMind", version=version, details={"program": "python3", "card": card} if card else {})


def plan_of(target: str, version: str, graph: OnnxGraph, precision: str = "fp16", **more: Any) -> Plan:
    options = CompileOptions(target=target, backend="magicmind", precision=precision, **more)  # type: ignore[arg-type]
    return BACKEND.plan(graph, find_target(target), options, toolchain_of(version))


def arrays_for(graph: OnnxGraph, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs at the highest sizes of a graph."""
    sizes = {dim.name: max((*dim.sizes, dim.high)) for dim in graph.dims}
    random = np.random.default_rng(seed)
    arrays = {}
    for spec in graph.inputs:
        shape = [sizes.get(str(size), size) for size in spec.shape]
        floats = spec.dtype == "float32"
        arrays[spec.name] = random.normal(size=shape).astype(np.float32) if floats else random.integers(0, 9, shape)
    return arrays


@contextlib.contextmanager
def stand_in(version: str, **settings: str) -> Iterator[Any]:
    """The module ``magicmind.python.runtime`` of a version, inside of this process."""
    before, path = dict(os.environ), list(sys.path)
    os.environ.update({"MAGICMIND_DOUBLE_VERSION": version, "MAGICMIND_DOUBLE_FAULT": ""})
    os.environ.update({f"MAGICMIND_DOUBLE_{name}": value for name, value in settings.items()})
    sys.path.insert(0, str(DOUBLES / "magicmind"))
    try:
        importlib.import_module("magicmind.python.runtime.parser")
        yield importlib.import_module("magicmind.python.runtime")
    finally:
        os.environ.clear()
        os.environ.update(before)
        sys.path[:] = path
        for name in [name for name in sys.modules if name.partition(".")[0] == "magicmind"]:
            del sys.modules[name]


def lay_out(plan: Plan, kind: str, graph: OnnxGraph) -> None:
    """The working folder of a plan, in the current one."""
    for folder in ("model", "out"):
        Path(folder).mkdir(exist_ok=True)
    onnx.save(MODELS[kind](), "model/model.onnx")
    for name, content in plan.files.items():
        Path(name).write_text(content)
    for number, entry in enumerate(graph.files):
        if entry.name.startswith(("samples/", "calibration/")):
            save_npz(Path(entry.name), arrays_for(graph, number))


def built(plan: Plan, kind: str, graph: OnnxGraph, version: str, **settings: str) -> dict[str, Any]:
    """What the script says that it did with a plan, in the current folder, with the stand-in of a version.

    Raises ``child_job.Failure`` where the stand-in refuses anything.
    """
    lay_out(plan, kind, graph)
    with stand_in(version, **settings) as mm, contextlib.redirect_stdout(io.StringIO()):
        return child_job.build(mm, json.loads(plan.files[SETTINGS]), {})


def header(path: str = "out/model.mm") -> dict[str, Any]:
    """What the stand-in wrote of an artifact."""
    line = Path(path).read_bytes().split(b"\n", 2)[1]
    return dict(json.loads(line))


def script(path: Path, text: str) -> None:
    """A program in the shell's language."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
