"""``compile.sh`` hands exactly the plan to the compiler, whatever is in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artifacts.digest import file_entries
from convert.backends import BACKENDS
from convert.handoff.script import compile_script
from convert.handoff.toolkits import TOOLKITS
from convert.values import Plan

COMPILER = """import json, os, sys
names = [name for name in os.environ if name.startswith("PLAN_")]
said = {"argv": sys.argv[1:], "environment": {name: os.environ[name] for name in names}, "cwd": os.getcwd()}
print("to the log")
if "--fail" in sys.argv: sys.exit(3)
if "--nothing" not in sys.argv: json.dump(said, open("out/model.x", "w"))
"""
NASTY = [
    "a b",
    "it's",
    '"quoted"',
    "$(touch oops)",
    "`touch oops`",
    "x;touch oops",
    "a\\b",
    "*",
    "~",
    "-n",
    "",
    "é中",
    "a\nb",
]


def run(
    folder: Path, plan: Plan, *, members: tuple[str, ...] = (), **environment: str
) -> tuple[int, dict[str, object]]:
    """Write the script for a plan, run it, and give its exit code and what the compiler was told."""
    for place in ("model", "plan", "out", "measured", "bin"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    (folder / "model" / "model.onnx").write_bytes(b"model")
    for name, text in plan.files.items():
        (folder / "plan" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "plan" / name).write_text(text, encoding="utf-8")
    (folder / "compiler.py").write_text(COMPILER)
    tool = folder / "bin" / "xcc"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} "{folder}/compiler.py" "$@"\n')
    tool.chmod(0o755)
    files = file_entries(folder, ["model/model.onnx", *(f"plan/{name}" for name in plan.files)])
    script = compile_script(plan, target="X1", precision="fp16", members=members, files=files)
    (folder / "compile.sh").write_text(script, encoding="utf-8")
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", str(folder / "compile.sh")],
        cwd="/",
        env={"PATH": path, "HOME": "/", **environment},
        capture_output=True,
        check=False,
    )
    output = folder / "out" / "model.x"
    return ended.returncode, json.loads(output.read_text()) if output.exists() else {"err": ended.stderr.decode()}


def plan_of(*argv: str, **more: object) -> Plan:
    return Plan(backend="acme", argv=("xcc", *argv), output="model.x", **more)  # type: ignore[arg-type]


def test_arguments_and_variables_arrive_as_they_were_planned(tmp_path: Path) -> None:
    plan = plan_of(*NASTY, environment={f"PLAN_{number}": text for number, text in enumerate(NASTY)})
    code, told = run(tmp_path / "it's a folder", plan)
    assert (code, told["argv"]) == (0, NASTY)
    assert told["environment"] == plan.environment
    assert told["cwd"] == str(tmp_path / "it's a folder")
    assert not list(tmp_path.rglob("oops"))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12), max_size=6))
def test_any_text_arrives(tmp_path: Path, words: list[str]) -> None:
    code, told = run(tmp_path, plan_of("first", *words))
    assert (code, told["argv"]) == (0, ["first", *words])


def test_files_are_written_to_the_byte_with_the_soc_in_its_places(tmp_path: Path) -> None:
    files = {"a.cfg": "soc={soc}\n\nend without a newline {soc}", "deep/b.ini": "it's $HOME `x` \\ \n\n\n", "empty": ""}
    plan = plan_of("--soc={soc}", environment={"PLAN_SOC": "for {soc}"}, files=files)
    code, told = run(tmp_path, plan, members=("X1A", "X1B"), SOC="X1B")
    assert (code, told["argv"], told["environment"]) == (0, ["--soc=X1B"], {"PLAN_SOC": "for X1B"})
    assert (tmp_path / "a.cfg").read_text() == "soc=X1B\n\nend without a newline X1B"
    assert (tmp_path / "deep" / "b.ini").read_text() == files["deep/b.ini"]
    assert (tmp_path / "empty").read_text() == ""
    assert json.loads((tmp_path / "compiled.json").read_text())["soc"] == "X1B"
    assert run(tmp_path, plan, members=("X1A", "X1B"), SOC="X1A")[1]["argv"] == ["--soc=X1A"]


@pytest.mark.parametrize("word", ["--fail", "--nothing"])
def test_an_older_output_is_never_taken_for_a_new_one(tmp_path: Path, word: str) -> None:
    assert run(tmp_path, plan_of())[0] == 0
    (tmp_path / "measured" / "000.npz").write_bytes(b"of the older one")
    code, told = run(tmp_path, plan_of(word))
    assert (code, "err" in told) == (7, True)
    assert (tmp_path / "compile.log").read_text() == "to the log\n"
    assert not (tmp_path / "compiled.json").exists()
    assert not (tmp_path / "measured" / "000.npz").exists()


def test_a_plan_for_one_part_is_not_bent_to_another(tmp_path: Path) -> None:
    plan = plan_of(needs={"toolchain": "Acme", "version": "1.0", "soc": "X1A"})
    assert run(tmp_path, plan, SOC="X1A")[0] == 0
    assert run(tmp_path / "b", plan, SOC="X1B")[0] == 2


@pytest.mark.parametrize("backend", [*TOOLKITS, "acme"])
def test_the_script_of_every_toolkit_is_bash(backend: str) -> None:
    plan = Plan(backend=backend, argv=("tool", "--soc={soc}"), output="model.x", needs={"card": "X1"})
    script = compile_script(plan, target="X1", precision="fp16", members=("X1A",), files=())
    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert re.findall(r"@[A-Z_]+@", script) == []


def test_toolkits_are_those_of_known_backends() -> None:
    vendors = {"atc", "magicmind", "migraphx", "tensorrt", "ixrt", "openvino", "sophgo"}
    assert set(TOOLKITS) <= vendors | set(BACKENDS)
