"""What a compiled graph computes on its way: tpu-mlir's own interpreter of it, on this machine's processor.

The artifact itself does not tell. So the plan's commands are run again, with the ranges that the artifact was made
with, up to the graph that tpu-mlir has lowered to the chip's types; its interpreter rounds as the chip does, and leaves
every value.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from convert.backends.base import OUT, CannotRun, Inside, RunRequest
from convert.backends.children import INPUTS, ended_badly, run_script, write_feeds
from convert.backends.sophgo.script import BUILD, TABLE, WORK
from convert.toolchains.place import Installed

if TYPE_CHECKING:
    from convert.backends.base import Array, Runner

SCRIPT = "inside.sh"
VALUES = "inside.npz"
LOG = "inside.log"


def inside(request: RunRequest, feed: Mapping[str, Array], found: Installed, runner: Runner) -> Inside | CannotRun:
    """Every value of the lowered graph for one sample (in tpu-mlir's dtypes), by the ONNX graph's name for it."""
    from convert.arrays import load_npz

    folder, artifact = request.folder, request.artifact
    if artifact.path(TABLE).is_file():
        shutil.copyfile(artifact.path(TABLE), folder / OUT / TABLE)
    write_feeds([feed], folder)
    lines = script_lines(artifact.plan.files[BUILD].splitlines(), calibrated=(folder / OUT / TABLE).is_file())
    (folder / SCRIPT).write_text("\n".join(lines) + "\n", encoding="utf-8")
    finished = run_script(runner, ("bash", SCRIPT), found.python.parent, LOG)
    if failure := ended_badly(finished, folder / LOG):
        return CannotRun(reason=f"tpu-mlir's interpreter {failure}")
    values = by_value(load_npz(folder / WORK / VALUES))
    return Inside(values=values, how="tpu-mlir's interpreter of the lowered graph")


def script_lines(build: Iterable[str], *, calibrated: bool) -> list[str]:
    """The plan's script without what is known already, up to the lowered graph, and that one run."""
    lines = []
    for line in build:
        if line.startswith("run_calibration.py") and calibrated:
            continue
        if line.startswith("mv "):
            # model_deploy names it after chip and type; there is one.
            lines.append("lowered=(model_*_tpu.mlir)")
            lines.append(
                f'model_runner.py --input ../{INPUTS}/000.npz --model "${{lowered[0]}}" --dump_all_tensors'
                f" --output {shlex.quote(VALUES)}"
            )
            continue
        lines.append(f"{line} --debug" if line.startswith("model_deploy.py") else line)
    return lines


def by_value(values: Mapping[str, Array]) -> dict[str, Array]:
    """tpu-mlir calls a value ``NAME_OPERATOR``."""
    return {name.rpartition("_")[0]: array for name, array in values.items() if "_" in name}
