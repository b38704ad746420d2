"""What the compilers' tests share: the Prefect server of the tests of flows, and the targets that are installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from compiler_kit import TARGETS, write_models

from convert.toolchains.place import installed_toolchain

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "flows"))
from flow_server import prefect_template, prefect_url, server

__all__ = ["models", "prefect_template", "prefect_url", "server", "target"]


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    """Each target of a compiler that ``make test-compilers`` installs."""
    name: str = request.param
    if installed_toolchain(TARGETS[name]) is None:
        pytest.skip(f"the toolchain {TARGETS[name]} is not installed: make test-compilers installs it")
    return name


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small models, with samples."""
    folder = tmp_path_factory.mktemp("models")
    write_models(folder)
    return folder
