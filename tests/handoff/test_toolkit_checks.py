"""``compile.sh`` asks each toolkit whether it is here, for its version, and for the card where it compiles on one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from artifacts.digest import file_entries
from convert.handoff.script import compile_script
from convert.values import Plan

MADE = "mkdir -p out && echo made > out/model.x"


def program(folder: Path, name: str, body: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def run(folder: Path, plan: Plan, target: str) -> tuple[int, str]:
    """Exit code and words of the script, with the programs in ``folder/bin`` first on PATH."""
    place = folder / "bundle"
    for name in ("model", "measured"):
        (place / name).mkdir(parents=True)
    (place / "model" / "model.onnx").write_bytes(b"model")
    files = file_entries(place, ["model/model.onnx"])
    script = compile_script(plan, target=target, precision="fp16", members=(), files=files)
    (place / "compile.sh").write_text(script)
    environment = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "HOME": str(folder)}
    ended = subprocess.run(
        ["bash", str(place / "compile.sh")], env=environment, capture_output=True, text=True, check=False
    )
    return ended.returncode, ended.stderr


def on_card(backend: str, tool: str, version: str, target: str) -> Plan:
    needs = {"toolchain": backend, "version": version, "card": target}
    return Plan(backend=backend, argv=(tool,), output="model.x", needs=needs)


@pytest.mark.parametrize(
    ("target", "cards", "code", "said"),
    [
        ("A100", "echo NVIDIA A100-SXM4-80GB", 0, ""),
        ("A100", "echo NVIDIA A800 80GB PCIe", 0, ""),
        ("A10", "echo NVIDIA A100-SXM4-80GB", 2, "the card here is NVIDIA A100-SXM4-80GB, and this bundle is for A10"),
        ("A100", "echo NVIDIA L20; echo NVIDIA A100-PCIE-40GB", 0, ""),
        ("A100", "echo No devices were found; exit 6", 0, "no card was found here"),
        ("A100", "exit 9", 0, "which must be A100"),
    ],
)
def test_an_engine_of_tensorrt_is_built_on_its_own_card(
    tmp_path: Path, target: str, cards: str, code: int, said: str
) -> None:
    program(tmp_path / "bin", "trtexec", f'echo "&&&& RUNNING TensorRT.trtexec [TensorRT v101501]"; {MADE}')
    program(tmp_path / "bin", "nvidia-smi", cards)
    ended, words = run(tmp_path, on_card("tensorrt", "trtexec", "10.15.1", target), target)
    assert (ended, said in words) == (code, True), words
    if not code:
        told = json.loads((tmp_path / "bundle" / "compiled.json").read_text())
        assert told["card"] == ("not seen" if said else "seen")


@pytest.mark.parametrize(
    ("version", "card", "code", "said"),
    [
        ("1.1.0", "Iluvatar BI-V150", 0, ""),
        ("1.1.0", "Iluvatar BI-V150S", 2, "the card here is Iluvatar BI-V150S"),
        ("0.9.0", "Iluvatar BI-V150", 6, "ixrt 0.9.0 is here, and the plan was made for 1.1.0"),
    ],
)
def test_an_engine_of_ixrt_is_built_by_its_version_on_its_own_card(
    tmp_path: Path, version: str, card: str, code: int, said: str
) -> None:
    program(tmp_path / "bin", "corex-python3", f"echo {version}")
    program(tmp_path / "bin", "ixsmi", f"echo {card}")
    tool = tmp_path / "bin" / "ixrtexec"
    program(tmp_path / "bin", "ixrtexec", MADE)
    tool.write_text(f"#!{tmp_path}/bin/corex-python3\n")
    (tmp_path / "bin" / "corex-python3").write_text(
        f'#!/bin/sh\ncase "$1" in -c) echo {version} ;; *) {MADE} ;; esac\n'
    )
    ended, words = run(tmp_path, on_card("ixrt", "ixrtexec", "1.1.0", "BI-V150"), "BI-V150")
    assert (ended, said in words) == (code, True), words


@pytest.mark.parametrize(
    ("backend", "target"),
    [("openvino", "openvino-cpu"), ("qnn", "HTP-V75"), ("rknn", "RK3588"), ("magicmind", "MLU590")],
)
@pytest.mark.parametrize(
    ("there", "version", "code", "said"),
    [
        (1, "", 6, "python3 is here, and"),
        (0, "1.2.3", 0, "compiles for"),
        (0, "9.9.9", 6, "9.9.9 is here, and the plan was made for 1.2.3"),
        (0, "", 0, "is not known; the plan was made for 1.2.3"),
    ],
)
def test_a_toolkit_that_is_a_python_package_is_asked_for_itself_and_its_version(
    tmp_path: Path, backend: str, target: str, there: int, version: str, code: int, said: str
) -> None:
    body = f'case "$2" in *find_spec*) exit {there} ;; *version*) echo "{version}"; exit 0 ;; esac; {MADE}'
    program(tmp_path / "bin", "python3", body)
    plan = Plan(
        backend=backend,
        argv=("python3", "compile.py"),
        output="model.x",
        needs={"toolchain": "Kit", "version": "1.2.3"},
    )
    ended, words = run(tmp_path, plan, target)
    assert (ended, said in words) == (code, True), words


def test_the_commands_of_tpu_mlir_must_be_there(tmp_path: Path) -> None:
    needs = {"toolchain": "tpu-mlir", "version": "1.30.2", "soc": "BM1684X"}
    plan = Plan(backend="sophgo", argv=("bash", "-c", MADE), output="model.x", needs=needs)
    ended, words = run(tmp_path / "without", plan, "BM1684X")
    assert (ended, "bash is here, and tpu-mlir is not" in words) == (6, True)
    for name in ("model_transform.py", "model_deploy.py"):
        program(tmp_path / "with" / "bin", name, "exit 0")
    program(tmp_path / "with" / "bin", "python", "echo 1.31.0")
    ended, words = run(tmp_path / "with", plan, "BM1684X")
    assert (ended, "tpu-mlir 1.31.0 is here, and the plan was made for 1.30.2" in words) == (6, True)


def test_a_python_that_lacks_a_module_is_no_compiler_that_failed(tmp_path: Path) -> None:
    program(tmp_path / "bin", "xcc", "exit 86")
    plan = Plan(backend="acme", argv=("xcc",), output="model.x", needs={"toolchain": "Kit", "version": "1"})
    ended, words = run(tmp_path, plan, "X1")
    assert (ended, "lacks a module that Kit brings" in words) == (6, True)
