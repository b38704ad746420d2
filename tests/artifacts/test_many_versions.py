"""Registries of many versions: no operation costs more for each version where there are more, counted in calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_kit import make_request

from artifacts.fsck import fsck
from artifacts.gc import collect
from artifacts.listing import list_models
from artifacts.names import parse_ref
from artifacts.publish import publish
from artifacts.registry import Registry
from artifacts.resolve import resolve
from artifacts.verify import verify_ref

SLACK = 1.15


def asked(root: Path, folder: Path, versions: int) -> dict[str, Callable[[], object]]:
    """What people and machines ask of a registry; ``publish`` comes last, since it changes it."""
    registry, last = Registry(root), f"net0:1.0.{versions - 1}"
    return {
        "list": lambda: list_models(registry),
        "resolve": lambda: resolve(registry, parse_ref(last)),
        "verify": lambda: verify_ref(root, last),
        "gc": lambda: collect(root),
        "fsck": lambda: fsck(root),
        "publish": lambda: publish(root, made(folder, 0, versions)),
    }


def made(folder: Path, model: int, number: int) -> Any:
    return make_request(folder, name=f"net{model}", version=f"1.0.{number}", content=f"{model} {number}".encode())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("models", "few", "many"), [(3, 15, 60), pytest.param(50, 125, 500, marks=pytest.mark.long)], ids=["small", "whole"]
)
def test_no_operation_does_more_for_each_version_of_a_larger_registry(
    models: int, few: int, many: int, counted: Callable[..., tuple[Any, int]], tmp_path: Path
) -> None:
    root, folder = tmp_path / "registry", tmp_path / "made"
    calls: dict[int, dict[str, int]] = {}
    have = 0
    for versions in (2, few, many):
        for model in range(models):
            for number in range(have, versions):
                publish(root, made(folder, model, number))
        calls[versions] = {what: counted(call)[1] for what, call in asked(root, folder, versions).items()}
        have = versions
    grown = {what: calls[many][what] / calls[few][what] for what in calls[few]}
    assert {what: factor for what, factor in grown.items() if factor > many / few * SLACK} == {}
    assert [len(model.versions) for model in list_models(Registry(root))] == [many + 1] + [many] * (models - 1)
    assert fsck(root).clean
