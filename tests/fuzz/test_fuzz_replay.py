"""The fuzz targets without a fuzzer: their seeds, what once was a finding, and some mutations of each."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz_kit import HERE, REGRESSIONS, TARGETS, hold, load_target, regressions

ROUNDS = {
    "loading": 400,
    "graphs": 150,
    "registry": 300,
    "manifests": 600,
    "logs": 100,
    "settings": 600,
    "bundles": 250,
}
FOUND = [(name, title) for name in TARGETS for title in regressions(name)]


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_mutations_of_them_are_taken_or_refused(name: str) -> None:
    target, chance = load_target(name), random.Random(name)
    seeds = [data for _, data in sorted(target.seeds().items())]
    taken = sum(hold(target, data) for data in seeds)
    assert taken > 0
    for number in range(ROUNDS[name]):
        data = seeds[number % len(seeds)]
        for _ in range(chance.randint(1, 3)):
            data = target.mutate(data, chance)[: target.limit]
        hold(target, data)


@pytest.mark.parametrize(("name", "title"), FOUND, ids=[f"{name}: {title}" for name, title in FOUND])
def test_what_was_found_stays_mended(name: str, title: str) -> None:
    hold(load_target(name), regressions(name)[title])


def test_every_folder_of_regressions_is_one_of_a_target() -> None:
    assert {path.name for path in REGRESSIONS.iterdir()} <= set(TARGETS)


@pytest.mark.parametrize("path", sorted((HERE / "native").iterdir()), ids=lambda path: path.name)
def test_a_crash_in_a_library_ends_its_worker_alone(path: Path, tmp_path: Path) -> None:
    """Files that end native code of onnx: the command says so and lives on."""
    out = tmp_path / "x.onnx"
    for words, exit_code in ((("graph", "lower", path, "--opset", "13", "--out", out), 4), (("matrix", path), 5)):
        ended = subprocess.run(
            [sys.executable, "-m", "convert", *map(str, words)],
            cwd=HERE.parents[1],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == exit_code, ended.stderr
        assert "SIGSEGV" in ended.stderr
        assert "Traceback" not in ended.stderr
