"""Bundles for Ascend whole: 8-bit images and AMCT's calibration, from a machine with nothing to publication."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper, save

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "doubles" / "atc"))
from install import install_cann  # noqa: E402

HOW = '{"image": "yuv420sp", "model": "bgr", "size": [12, 14], "crop": [2, 4, 8, 8], "mean": [0.45], "std": [0.23]}'


class Machines:
    """A machine without any toolkit that has this program, and one with CANN, AMCT and a card that has not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        plain = {name: value for name, value in os.environ.items() if not name.startswith("ASCEND")}
        self.here = {
            **plain,
            "PYTHONPATH": str(ROOT),
            "CONVERT_CACHE_DIR": str(folder / "cache"),
            "CONVERT_REGISTRY": str(folder / "registry"),
            "CONVERT_OUT": str(folder / "out"),
        }
        self.there = {**plain, **install_cann(folder / "cann", "8.5.0", soc="Ascend310P3", amct=True)}

    def convert(self, *words: str) -> tuple[int, Any]:
        """Run the command here, with ``--json``."""
        ended = subprocess.run(
            [sys.executable, "-m", "convert", *words, "--json"],
            cwd=self.folder,
            env=self.here,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return ended.returncode, json.loads(ended.stdout)

    def there_run(self, bundle: Path, *words: str) -> str:
        """Run a script of the bundle there; what it says."""
        ended = subprocess.run(words, cwd=bundle, env=self.there, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    rng = np.random.default_rng(4)
    weight = numpy_helper.from_array((rng.standard_normal((4, 3, 3, 3)) / 5).astype("f4"), "w")
    nodes = [helper.make_node("Conv", ["image", "w"], ["y"], name="/conv/Conv", pads=[1, 1, 1, 1])]
    values = [helper.make_tensor_value_info(name, 1, [1, size, 8, 8]) for name, size in (("image", 3), ("y", 4))]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weight])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10), tmp_path / "m.onnx")
    images = tmp_path / "images"
    images.mkdir()
    for number in range(2):
        np.savez(images / f"{number}.npz", image=rng.integers(0, 256, (1, 18, 14), np.uint8))
    return Machines(tmp_path)


def test_images_and_int8_go_whole_through_a_bundle(machines: Machines) -> None:
    words = ("--precision", "int8", "--preprocess", HOW, "--samples", "images", "--calibration", "images")
    code, said = machines.convert("m.onnx", "--target", "Ascend310P3", *words)
    assert code == 6, said
    handoff = said["targets"][0]["handoff"]
    assert handoff["needs"]["calibration"] == "AMCT (amct_onnx)"
    with tarfile.open(handoff["path"]) as archive:
        archive.extractall(machines.folder / "carried", filter="data")
    bundle = machines.folder / "carried" / "m-Ascend310P3.handoff"
    image = np.load(bundle / "images" / "000.npz")["image"]
    assert (image.dtype, image.shape) == (np.uint8, (1, 18, 14))
    assert "every `images/NNN.npz`" in (bundle / "README.md").read_text()

    assert "calibrating with AMCT" in machines.there_run(bundle, "bash", "compile.sh")
    assert "For each images/NNN.npz" in machines.there_run(bundle, "python3", "verify.py", "--how")
    machines.there_run(bundle, "python3", "device_run.py")
    assert "within the gate of int8" in machines.there_run(bundle, "python3", "verify.py")

    code, said = machines.convert("resume", str(bundle))
    assert code == 0, said
    target = said["targets"][0]
    assert (target["status"], target["validation"]["ran_on"]) == ("published", "device")
    assert [stage["stage"] for stage in target["stages"]][3:5] == ["adapt", "images"]
