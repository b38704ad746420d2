"""Real trained models on every target of the registry: the outcome of each, held against a table with reasons.

``--update-goldens`` writes the table anew; then look at what changed: a refusal must be true by the support data.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from target_outcomes import BY_ARCHITECTURE, READY, alike, outcome
from trained_models import MODELS, graph_of

from convert.values import OnnxGraph
from op_registry.tables import DATA
from op_registry.targets import all_targets, find_target

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "trained" / "outcomes.json"
ONE_OF_EACH = (
    "Ascend910B", "Ascend310P", "MLU370", "Z100", "C500", "BI-V100", "gfx900", "T4", "cpu", "BM1684X",
    "openvino-cpu", "HTP-V73", "RK3588", "BR106M",
)  # fmt: skip
"""Targets that the small form asks, one for each compiler or table."""
IN_SMALL = ("silero", "silero-half", "rnet", "magika", "basic-pitch")
"""Models that it asks for."""


@pytest.fixture(scope="module")
def graphs(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, OnnxGraph]]:
    """Every model's simplified graph, made when it is first asked for."""
    made: dict[str, OnnxGraph] = {}

    class Made(dict[str, OnnxGraph]):
        def __missing__(self, name: str) -> OnnxGraph:
            made[name] = self[name] = graph_of(name, trained, tmp_path_factory.mktemp(name) / "stages")
            return made[name]

    yield Made()


def known() -> dict[str, dict[str, list[str]]]:
    """Model → outcome → targets that stand for all that are alike."""
    table: dict[str, dict[str, list[str]]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return table


def by_target(found: dict[str, list[str]]) -> dict[str, str]:
    return {target: outcome for outcome, targets in found.items() for target in targets}


def test_only_the_vendors_named_have_rows_for_some_architectures() -> None:
    """What puts targets into one group is true of the data."""
    named = set()
    for path in sorted(DATA.glob("*/*.csv")):
        with path.open(encoding="utf-8", newline="") as stream:
            if path.name == "kernels.csv" or any(row.get("archs") for row in csv.DictReader(stream)):
                named.add(path.parent.name)
    assert named == set(BY_ARCHITECTURE)


def test_the_table_holds_every_model_and_every_target() -> None:
    assert sorted(known()) == sorted(MODELS)
    groups = alike()
    assert {name for names in groups.values() for name in names} == {target.name for target in all_targets()}
    for name, found in known().items():
        assert sorted(by_target(found)) == sorted(groups), name
    assert {find_target(name).backend for name in ONE_OF_EACH} == {target.backend for target in all_targets()}


@pytest.mark.parametrize("name", IN_SMALL)
def test_a_trained_model_ends_on_one_target_of_each_kind_as_the_table_says(
    name: str, graphs: dict[str, OnnxGraph], tmp_path: Path
) -> None:
    ends = {target: outcome(graphs[name], find_target(target), tmp_path / target) for target in ONE_OF_EACH}
    wanted = by_target(known()[name])
    assert ends == {target: wanted[target] for target in ONE_OF_EACH}
    assert ends["cpu"] == READY


@pytest.mark.long
def test_the_trained_models_end_on_every_target_as_the_table_says(
    graphs: dict[str, OnnxGraph], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found: dict[str, dict[str, list[str]]] = {}
    for name in MODELS:
        ends: dict[str, list[str]] = {}
        for target in alike():
            end = outcome(graphs[name], find_target(target), tmp_path / name / target)
            ends.setdefault(end, []).append(target)
        found[name] = {end: sorted(targets) for end, targets in sorted(ends.items())}
    if request.config.getoption("--update-goldens"):
        GOLDEN.parent.mkdir(parents=True, exist_ok=True)
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    assert found == known()


def test_the_numbers_of_the_models_mean_something(graphs: dict[str, OnnxGraph]) -> None:
    """A reference that is constant would prove nothing."""
    for name in ("silero", "rnet"):
        with np.load(graphs[name].path("reference/000.npz")) as arrays:
            outputs: list[Any] = [arrays[key] for key in arrays.files]
        assert any(np.ptp(output) > 0 for output in outputs), name
