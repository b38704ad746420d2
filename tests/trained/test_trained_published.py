"""Trained models published for the CPU, pulled as another machine would and judged again; and bundled for a card."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trained_models import MODELS, load_options

from convert.host import StageHost
from convert.pipeline import convert_model
from convert.request import Conversion, Request
from convert.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
IN_SMALL = ("silero", "magika")


def converted(host: StageHost, request: Request, folder: Path) -> Conversion:
    places = {name: str(folder / name) for name in ("registry", "cache", "out")}
    settings = Settings(registry=places["registry"], cache_dir=places["cache"], out=places["out"], timeout=300)
    return convert_model(request, settings, host=host)


def document(folder: Path, *args: object) -> Any:
    """What a command prints with ``--json``, run as a process of its own."""
    places = {"CONVERT_CACHE_DIR": str(folder / "other-cache"), "CONVERT_REGISTRY": str(folder / "registry")}
    ended = subprocess.run(
        [sys.executable, "-m", *map(str, args), "--json"],
        cwd=folder,
        env={**os.environ, **places, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def assert_published_and_bundled(name: str, models: Path, folder: Path) -> None:
    """The graph is made once; the CPU's artifact passes its gate again where it was pulled, the card's is bundled."""
    request = Request(load=load_options(name, models, folder), targets=("cpu",), name=f"net-{name}")
    with StageHost(folder / "log") as host:
        (cpu,) = converted(host, request, folder).targets
        assert cpu.error is None and cpu.status == "published" and cpu.artifact is not None
        cards = converted(host, msgspec.structs.replace(request, targets=("Ascend910B",)), folder)
    assert cards.exit_code == 6 and cards.error is not None and cards.error["code"] == "CNV-6001"
    assert all(run.cached for run in cards.targets[0].stages[:3])
    assert cards.targets[0].forecast is not None
    assert Path((cards.targets[0].handoff or {})["path"]).is_file()
    pulled = document(folder, "artifacts", "pull", cpu.artifact.ref, "--target", "cpu", "--out", folder / "pulled")
    told = [*(("--dim", one) for one in request.load.dims), *(("--input", one) for one in request.load.inputs)]
    given = {"--samples": request.load.samples, "--factory": request.load.factory}
    told += [(option, value) for option, value in given.items() if value]
    artifact = Path(pulled["path"]) / pulled["main"]
    judged = document(folder, "convert", "diff", request.load.path, artifact, *(word for pair in told for word in pair))
    assert judged["passed"], judged
    document(folder, "artifacts", "fsck")


@pytest.mark.parametrize("name", IN_SMALL)
def test_a_trained_model_is_published_pulled_and_passes_its_gate_again(
    name: str, trained: Path, tmp_path: Path
) -> None:
    assert_published_and_bundled(name, trained, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(MODELS) - set(IN_SMALL)))
def test_every_trained_model_is_published_pulled_and_passes_its_gate_again(
    name: str, trained: Path, tmp_path: Path
) -> None:
    assert_published_and_bundled(name, trained, tmp_path)
