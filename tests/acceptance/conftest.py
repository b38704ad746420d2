"""Two sites, each with one published artifact: one for the cpu, one for the stand-in of an Ascend card."""

from __future__ import annotations

from pathlib import Path

import pytest
from acceptance_kit import Site, ascend_site, tiny_model


@pytest.fixture(scope="session")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> Site:
    site = Site(tmp_path_factory.mktemp("cpu-site"), {})
    tiny_model(site.folder / "m.onnx")
    assert site("m.onnx", "--target", "cpu", "--quiet").code == 0
    return site


@pytest.fixture(scope="session")
def ascend(tmp_path_factory: pytest.TempPathFactory) -> Site:
    site = ascend_site(tmp_path_factory.mktemp("ascend-site"), ais_bench=True)
    tiny_model(site.folder / "m.onnx")
    assert site("m.onnx", "--target", "Ascend910B", "--quiet").code == 0
    return site


@pytest.fixture
def copied(cpu: Site, tmp_path: Path) -> Path:
    """The folder of the cpu's artifact, to do harm to."""
    import shutil

    return Path(shutil.copytree(cpu.folder / "out" / "m" / "cpu", tmp_path / "m" / "cpu"))
