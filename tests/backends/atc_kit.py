"""Graphs, requests and the stand-in atc for the tests of the backend ``atc``."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from convert.backends.atc import AtcBackend
from convert.backends.base import SOC, Toolchain
from convert.graphs import facts
from convert.values import CompileOptions, DimRange, OnnxGraph, Plan
from op_registry.targets import find_target

ROOT = Path(__file__).resolve().parents[2]
DOUBLE = ROOT / "tests" / "doubles" / "atc"
sys.path.insert(0, str(DOUBLE))

VERSIONS = (
    "5.1.RC2",
    "6.0.1",
    "6.2.RC2",
    "6.3.RC2",
    "7.0.0",
    "8.0.RC3",
    "8.1.RC1",
    "8.5.0",
    "9.0.0",
    "9.1.0",
    "9.2.0",
)
TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "float16": TensorProto.FLOAT16}
Inputs = Mapping[str, tuple[Any, ...]]
IMAGE: Inputs = {"image": (1, 3, 32, 32)}


def model_of(inputs: Inputs, *, opset: int = 17, ops: Sequence[str] = ()) -> onnx.ModelProto:
    """One node for each input: Relu for floats, Abs for ``int64`` (a shape that begins with that word)."""
    values, outputs, nodes = [], [], []
    for index, (name, shape) in enumerate(inputs.items()):
        kind = str(shape[0]) if shape and str(shape[0]) in TYPES else "float32"
        dims = list(shape[1:] if shape and str(shape[0]) in TYPES else shape)
        values.append(helper.make_tensor_value_info(name, TYPES[kind], dims))
        outputs.append(helper.make_tensor_value_info(f"y{index}", TYPES[kind], dims))
        nodes.append(helper.make_node("Relu" if kind != "int64" else "Abs", [name], [f"y{index}"], name=f"node{index}"))
    graph = helper.make_graph(nodes, "g", values, outputs)
    for op in ops:
        graph.node.append(helper.make_node(op, [values[0].name], [f"of_{op}"], name=f"of_{op}"))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def dims_of(**dims: Any) -> tuple[DimRange, ...]:
    """``N=(1, 4, 8)`` are sizes, ``N=range(1, 9)`` a range, ``N=None`` anything."""
    made = []
    for name, said in dims.items():
        if said is None:
            made.append(DimRange(name=name))
        elif isinstance(said, range):
            made.append(DimRange(name=name, low=said.start, high=said.stop - 1))
        else:
            made.append(DimRange(name=name, sizes=tuple(said), low=min(said), high=max(said)))
    return tuple(made)


def graph_for(model: onnx.ModelProto, dims: Sequence[DimRange] = ()) -> OnnxGraph:
    """The graph's value without any files."""
    known = {**facts(model), "dims": tuple(dims)}
    return OnnxGraph(parent="sha256:" + "0" * 64, stage="export", **known)


def options_for(target: str, precision: str = "fp16", **more: Any) -> CompileOptions:
    return CompileOptions(target=target, backend="atc", precision=precision, **more)  # type: ignore[arg-type]


def toolchain(version: str, *, assumed: bool = False, **details: str) -> Toolchain:
    return Toolchain(name="CANN", version=version, details=details, assumed=assumed)


def plan_for(graph: OnnxGraph, options: CompileOptions, version: str, **details: str) -> Plan:
    found = toolchain(version, assumed=not details, **details)
    return AtcBackend().plan(graph, find_target(options.target), options, found)


def ask_double(plan: Plan, model: onnx.ModelProto, version: str, folder: Path) -> tuple[int, str]:
    """Exit code and output of the stand-in of a version for a plan, run in this process."""
    import atc_tool

    soc = plan.needs.get("soc_members", "").split(" ")[0]
    for place in ("model", "out"):
        (folder / place).mkdir(exist_ok=True, parents=True)
    onnx.save(model, folder / "model" / "model.onnx")
    for name, content in plan.files.items():
        (folder / name).write_text(content)
    said = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = atc_tool.main([word.replace(SOC, soc) for word in plan.argv[1:]], version)
        except SystemExit as end:
            code = int(end.code or 0)
    return code, said.getvalue()
