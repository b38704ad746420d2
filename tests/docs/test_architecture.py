"""The shape of the source: which way imports run, what starts processes, what a start costs, how long things are."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import PACKAGES, ROOT

FILES = {
    path: ast.parse(path.read_text(encoding="utf-8")) for package in PACKAGES for path in (ROOT / package).rglob("*.py")
}
HEAVY = {
    "torch",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "onnx_ir",
    "onnxsim",
    "prefect",
    "numpy",
    "jinja2",
    "safetensors",
}
PLACES = [place for place in (str(ROOT), sys.prefix) if place.count("/") > 1]
HOSTS = re.compile(
    r"(?:index|extra-index)-url|find-links|(?:pypi|files\.pythonhosted|download\.pytorch)\.org|"
    r"(?:mirrors?|pypi)\.[\w-]+\.(?:com|cn|edu)",
)


def imported(tree: ast.AST) -> list[str]:
    """The modules that a file imports, wherever in it."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.append(node.module or "")
    return names


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_run_from_flows_to_convert_to_artifacts_to_op_registry(package: str) -> None:
    above = PACKAGES[PACKAGES.index(package) + 1 :]
    own = {path: tree for path, tree in FILES.items() if path.is_relative_to(ROOT / package)}
    wrong = [(path.name, name) for path, tree in own.items() for name in imported(tree) if name.split(".")[0] in above]
    assert wrong == []


def test_the_product_imports_no_tests_benchmarks_or_examples() -> None:
    outside = {"tests", "benchmarks", "examples"}
    assert [path for path, tree in FILES.items() if {name.split(".")[0] for name in imported(tree)} & outside] == []


def test_one_file_alone_starts_processes() -> None:
    starters = {str(path.relative_to(ROOT)) for path, tree in FILES.items() if "subprocess" in imported(tree)}
    assert starters == {"artifacts/runner.py"}


def test_no_package_prints() -> None:
    calls = [
        (path.name, node.lineno)
        for path, tree in FILES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert calls == []


def test_few_functions_are_longer_than_50_lines() -> None:
    lengths = [
        (node.end_lineno or 0) - node.lineno + 1
        for tree in FILES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert sum(length > 50 for length in lengths) <= 0.03 * len(lengths)


def test_no_file_is_longer_than_500_lines() -> None:
    assert [path.name for path in FILES if len(path.read_text(encoding="utf-8").splitlines()) > 500] == []


@pytest.mark.parametrize(
    "start",
    [
        ("-c", "import convert"),
        ("-m", "convert", "--help"),
        ("-m", "convert", "run", "--help"),
        ("-m", "artifacts", "--help"),
    ],
    ids=" ".join,
)
def test_a_start_imports_nothing_heavy(start: tuple[str, ...], tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", *start],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    names = {line.rpartition("|")[2].strip().split(".")[0] for line in ended.stderr.splitlines() if "|" in line}
    assert start[1].split()[-1] in names
    assert names & HEAVY == set()


def test_no_tracked_file_knows_this_machine_or_a_package_mirror() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    found = []
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if not path.is_file() or path == Path(__file__):
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        found += [(name, place) for place in PLACES if place in text]
        found += [(name, match[0]) for match in HOSTS.finditer(text)]
    assert found == []
