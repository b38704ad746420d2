"""What the tests of the tensorrt and ixrt backends share: stand-ins on PATH, tiny graphs, requests."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from convert.backends.base import Toolchain
from convert.values import CompileOptions, DimRange, OnnxGraph, TensorSpec

DOUBLES = Path(__file__).resolve().parents[1] / "doubles"
DIGEST = "sha256:" + "0" * 64


def put_on_path(folder: Path, monkeypatch, **programs: str) -> None:
    """Programs that run a stand-in with this Python, first on PATH."""
    folder.mkdir(exist_ok=True)
    for name, script in programs.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{DOUBLES / script}" "$@"\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def run_double(script: str, words, folder: Path, **environment: str) -> tuple[int, str]:
    """Exit code and text of a stand-in."""
    done = subprocess.run(
        [sys.executable, str(DOUBLES / script), *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def spec(name: str, *shape, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


def graph_like(*inputs: TensorSpec, dims: tuple[DimRange, ...] = (), **facts) -> OnnxGraph:
    """The facts of a graph that a plan is made for, without any file."""
    return OnnxGraph(
        parent=DIGEST, stage="adapt", opset=17, inputs=inputs, outputs=(spec("y", 1, 4),), dims=dims, **facts
    )


def options_of(backend: str, target: str, precision: str = "fp16", **options: str) -> CompileOptions:
    return CompileOptions(target=target, backend=backend, precision=precision, options=options)


def toolchain_of(name: str, version: str) -> Toolchain:
    return Toolchain(name=name, version=version, details={})


def model_for(graph: OnnxGraph, nodes: int = 1, *, quantized: bool = False) -> onnx.ModelProto:
    """A model with the inputs of a graph: each is summed up, the sums go through ``nodes`` named Relus."""
    types = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "int64": TensorProto.INT64}
    inputs = [helper.make_tensor_value_info(one.name, types[one.dtype], list(one.shape)) for one in graph.inputs]
    steps = []
    for number, one in enumerate(graph.inputs):
        steps.append(helper.make_node("Cast", [one.name], [f"c{number}"], to=TensorProto.FLOAT))
        steps.append(helper.make_node("ReduceMean", [f"c{number}"], [f"m{number}"], keepdims=0))
    steps.append(helper.make_node("Sum", [f"m{number}" for number in range(len(graph.inputs))], ["s0"], name="sum"))
    steps += [
        helper.make_node("Relu", [f"s{number}"], [f"s{number + 1}"], name=f"/block/Relu_{number}")
        for number in range(nodes)
    ]
    last = f"s{nodes}"
    if quantized:
        steps.append(helper.make_node("QuantizeLinear", [last, "scale", "zero"], ["q"]))
        steps.append(helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]))
    else:
        steps.append(helper.make_node("Identity", [last], ["y"]))
    weights = [numpy_helper.from_array(np.float32(0.1), "scale"), numpy_helper.from_array(np.int8(0), "zero")]
    made = helper.make_graph(steps, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])])
    made.initializer.extend(weights if quantized else [])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
