"""The fuzz targets without a fuzzer: their seeds, what once was a finding, and some mutations of each."""

from __future__ import annotations

import random

import pytest
from fuzz_kit import REGRESSIONS, TARGETS, hold, load_target, regressions

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
