"""Requests for plans, and the stand-ins called inside of this process, which is quicker than starting them."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from convert.arrays import save_npz
from convert.backends.base import Toolchain
from convert.backends.migraphx import MigraphxBackend
from convert.backends.migraphx.child_compile import main as child_compile
from convert.graphs import facts
from convert.values import CompileOptions, DimRange, OnnxGraph, Plan
from op_registry.targets import find_target

BACKEND = MigraphxBackend()
DOUBLES = Path(__file__).resolve().parent.parent / "doubles" / "migraphx"


def tiny_model(batch: int | str = 2, op: str = "Relu") -> onnx.ModelProto:
    """Gemm, an activation and Gemm again: enough for precisions to differ."""
    random = np.random.default_rng(7)
    weights = [
        numpy_helper.from_array(random.normal(0, 0.3, (8, 16)).astype(np.float32), "w0"),
        numpy_helper.from_array(random.normal(0, 0.3, (16, 4)).astype(np.float32), "w1"),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], name="first"),
        helper.make_node(op, ["a"], ["b"], name="act"),
        helper.make_node("MatMul", ["b", "w1"], ["y"], name="last"),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def two_inputs() -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"], name="product")]
    graph = helper.make_graph(
        nodes,
        "two",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, ["N", 3, 8]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, ["N", 8, "K"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3, "K"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


MODELS = {"fixed": tiny_model, "open": lambda: tiny_model(batch="N"), "two": two_inputs}


def graph_of(kind: str, dims: dict[str, str] | None = None, calibration: int = 0) -> OnnxGraph:
    """A graph without files. ``dims``: name → ``4``, ``1..8`` or ``1,4,8``."""
    return OnnxGraph(
        parent="sha256:" + "0" * 64,
        stage="export",
        sample_count=1,
        calibration_count=calibration,
        dims=tuple(_dim(name, text) for name, text in (dims or {}).items()),
        **facts(MODELS[kind]()),
    )


def _dim(name: str, text: str) -> DimRange:
    if ".." in text:
        low, _, high = text.partition("..")
        return DimRange(name=name, low=int(low), high=int(high or 0))
    return DimRange(name=name, sizes=tuple(int(size) for size in text.split(",")))


def toolchain(version: str, arch: str) -> Toolchain:
    details = {"flavour": "dtk" if version.startswith("4") else "rocm", "arch": arch, "pythonpath": "lib"}
    return Toolchain(name="MIGraphX", version=version, details=details)


def plan_of(target: str, version: str, graph: OnnxGraph, precision: str, **more: object) -> Plan:
    found = find_target(target)
    options = CompileOptions(target=target, backend="migraphx", precision=precision, **more)  # type: ignore[arg-type]
    return BACKEND.plan(graph, found, options, toolchain(version, found.arch))


@contextlib.contextmanager
def stand_in(version: str, arch: str) -> Iterator[ModuleType]:
    """The driver of a version as a module, with the fake ``migraphx`` in place."""
    before = dict(os.environ), sys.modules.get("migraphx"), list(sys.path)
    os.environ.update(MIGRAPHX_DOUBLE_VERSION=version, MIGRAPHX_DOUBLE_ARCH=arch, MIGRAPHX_DOUBLE_FAULT="")
    try:
        driver = _module("migraphx_double_driver", DOUBLES / "driver.py")
        sys.modules["migraphx"] = _module("migraphx", DOUBLES / "module.py")
        yield driver
    finally:
        os.environ.clear()
        os.environ.update(before[0])
        sys.path[:] = before[2]
        for name in ("migraphx", "program"):
            sys.modules.pop(name, None)


def _module(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prepare(plan: Plan, kind: str, graph: OnnxGraph) -> None:
    """Lay the working folder out in the current one."""
    Path("model").mkdir(exist_ok=True)
    Path("out").mkdir(exist_ok=True)
    Path("out/model.mxr").unlink(missing_ok=True)
    model = MODELS[kind]()
    onnx.save(model, "model/model.onnx")
    for name, content in plan.files.items():
        Path(name).write_text(content)
    BACKEND.prepare(plan, graph, Path.cwd())
    sizes = {dim.name: max((*dim.sizes, dim.high)) for dim in graph.dims}
    arrays = {
        spec.name: np.ones([sizes.get(str(size), size) for size in spec.shape], np.float32) for spec in graph.inputs
    }
    for folder in ("samples", "calibration"):
        save_npz(Path(folder) / "000.npz", arrays)


def accepted(plan: Plan, kind: str, graph: OnnxGraph, version: str, arch: str) -> str:
    """What the stand-in of a version says of a plan in the current folder; empty where it compiles it."""
    prepare(plan, kind, graph)
    with stand_in(version, arch) as driver, contextlib.redirect_stdout(io.StringIO()) as said:
        os.environ.update(plan.environment)
        if plan.argv[0] != "migraphx-driver":
            return _child(plan, said)
        flags = driver.flags_of("compile")
        try:
            values = driver.parse(plan.argv[2:], flags)
            driver.check(values, flags)
            if values[""] != [plan.argv[2]]:
                return f"words that no flag takes: {values['']}"
            driver.compile_command(values)
        except (driver.Usage, driver.mx.Failure) as refusal:
            return str(refusal)
        made = driver.mx.load_mxr(Path("out/model.mxr").read_bytes(), "model.mxr")
    zero = [name for name, sizes in made.header["dims"].items() if 0 in sizes]
    return f"dimension 0 in {zero}" if zero else ""


def _child(plan: Plan, said: io.StringIO) -> str:
    argv, sys.argv = sys.argv, list(plan.argv[1:])
    try:
        with contextlib.redirect_stderr(said):
            code = child_compile()
    finally:
        sys.argv = argv
    return "" if code == 0 and Path("out/model.mxr").stat().st_size else said.getvalue()
