import subprocess
import sys
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("big_model_child.py")
ROOT = CHILD.parents[2]
MIB = 1 << 20
LIBRARIES = 160 * MIB
"""What Python, numpy, onnx and ONNX Runtime take by themselves."""


def _peak(step: str, precision: str, folder: Path, size: int) -> int:
    command = [sys.executable, str(CHILD), step, precision, str(folder), str(size)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)})
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout or 0)


def test_an_fp32_compile_never_reads_big_weights_and_links_them(tmp_path):
    size = 384 * MIB
    _peak("build", "fp32", tmp_path, size)
    assert _peak("compile", "fp32", tmp_path, size) < LIBRARIES
    assert (tmp_path / "made/model.onnx.data").samefile(tmp_path / "graph/model.onnx.data")
    assert _peak("validate", "fp32", tmp_path, size) < size + LIBRARIES


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_model_of_3_gb_stays_within_its_memory(tmp_path, precision):
    size = 3 << 30
    _peak("build", precision, tmp_path, size)
    for step in ("compile", "validate"):
        assert _peak(step, precision, tmp_path, size) < 1.3 * size + (512 * MIB), step
