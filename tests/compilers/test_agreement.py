"""What ``check`` predicts against what the real compiler says, over onnx's node cases, one for each operator."""

from __future__ import annotations

import json
import os
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from convert.toolchains.place import installed_toolchain
from op_registry.judge import judge_model
from op_registry.targets import find_target

pytestmark = pytest.mark.compilers
OPSETS = (13, 17)
LEAST = {"openvino-cpu": 0.97, "BM1684X": 0.9}
"""The share of operators on which both must agree; the rest is told in docs/reference/agreement.md."""
SAMPLE = 12
"""Of Sophgo's operators every twelfth is compiled here; the long form takes all."""

OPENVINO = """
import json, sys
import openvino as ov
core = ov.Core()
for path in json.load(sys.stdin):
    try:
        core.compile_model(ov.convert_model(path), "CPU")
        said = ""
    except Exception as error:
        said = (str(error).strip().splitlines() or ["?"])[-1]
    print(json.dumps([path, said]), flush=True)
"""


def cases(folder: Path) -> Iterator[tuple[str, Path]]:
    """For each operator of ONNX's own domain its first plain case at an opset that both take, small inputs constant."""
    from onnx.backend.test.case.node import collect_testcases

    from convert.lowering import LoweringRefused, lower

    seen: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = sorted(collect_testcases(None), key=lambda case: case.name)
    for case in found:
        if case.model is None or len(case.model.graph.node) != 1 or not case.model.graph.input:
            continue
        op = case.model.graph.node[0].op_type
        if op in seen or case.model.graph.node[0].domain not in ("", "ai.onnx"):
            continue
        for opset in OPSETS:
            try:
                model = lower(case.model, opset)
            except LoweringRefused:
                continue
            if [node.op_type for node in model.graph.node] == [op] and plain(model):
                seen.add(op)
                fix(model, case.data_sets[0][0])
                path = folder / f"{op}.onnx"
                model.ir_version = min(model.ir_version, 8)
                onnx.save(model, path)
                yield op, path
                break


def plain(model: onnx.ModelProto) -> bool:
    """Whether every input is a numeric tensor; strings, sequences and scalars are none that a card takes."""
    kinds = [value.type.tensor_type for value in model.graph.input]
    return all(kind.elem_type not in (0, onnx.TensorProto.STRING) for kind in kinds)


def fix(model: onnx.ModelProto, values: Any) -> None:
    """Make every input but the first a constant, as the weights and parameters of a real graph are."""
    given = list(model.graph.input)
    del model.graph.input[1:]
    for value, array in list(zip(given, values, strict=False))[1:]:
        tensor = array if isinstance(array, onnx.TensorProto) else onnx.numpy_helper.from_array(np.asarray(array))
        tensor.name = value.name
        model.graph.initializer.append(tensor)


def predicted(path: Path, target: str) -> bool:
    return judge_model(onnx.load(path), find_target(target)).supported


def report(target: str, pairs: dict[str, tuple[bool, str]], capsys: pytest.CaptureFixture[str]) -> None:
    """Print the agreement, and fail where it is less than it was."""
    wrong = {op: said for op, (taken, said) in pairs.items() if taken != (said == "")}
    share = 1 - len(wrong) / len(pairs)
    with capsys.disabled():
        print(
            f"\n{target}: check and compiler agree on {len(pairs) - len(wrong)} of {len(pairs)} operators ({share:.1%})"
        )
        for op, said in sorted(wrong.items()):
            print(f"  {op}: {'the compiler took it' if not said else said[:120]}")
    assert share >= LEAST[target]


def test_openvino_says_what_check_predicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = installed_toolchain("openvino")
    if found is None:
        pytest.skip("the toolchain openvino is not installed: make test-compilers installs it")
    paths = dict(cases(tmp_path))
    assert len(paths) > 120
    ended = subprocess.run(
        [found.python, "-c", OPENVINO],
        input=json.dumps([str(path) for path in paths.values()]),
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    said = dict(json.loads(line) for line in ended.stdout.splitlines())
    pairs = {op: (predicted(path, "openvino-cpu"), said[str(path)]) for op, path in paths.items()}
    report("openvino-cpu", pairs, capsys)


@pytest.mark.parametrize("every", [SAMPLE, pytest.param(1, marks=pytest.mark.long)])
def test_sophgo_says_what_check_predicts(tmp_path: Path, capsys: pytest.CaptureFixture[str], every: int) -> None:
    found = installed_toolchain("sophgo")
    if found is None:
        pytest.skip("the toolchain sophgo is not installed: make test-compilers installs it")
    paths = dict(list(cases(tmp_path))[::every])
    pairs = {
        op: (predicted(path, "BM1684X"), compiled(path, found.python.parent, tmp_path / op))
        for op, path in paths.items()
    }
    report("BM1684X", pairs, capsys)


def compiled(path: Path, programs: Path, folder: Path) -> str:
    """What tpu-mlir says to a graph in F32; empty where it compiles it."""
    folder.mkdir()
    graph = onnx.load(path).graph
    # A scalar is a tensor of one element for tpu-mlir.
    shapes = [[dim.dim_value for dim in value.type.tensor_type.shape.dim] or [1] for value in graph.input]
    commands = (
        ["model_transform.py", "--model_name", "m", "--model_def", str(path), "--input_shapes", json.dumps(shapes)],
        ["model_deploy.py", "--quantize", "F32", "--chip", "bm1684x", "--model", "m.bmodel"],
    )
    environment = {"PATH": os.pathsep.join((str(programs), "/usr/bin", "/bin")), "HOME": str(folder)}
    for words in commands:
        argv = [str(programs / words[0]), *words[1:], "--mlir", "m.mlir"]
        ended = subprocess.run(
            argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        if ended.returncode:
            return ((ended.stdout + ended.stderr).strip().splitlines() or ["?"])[-1]
    return ""
