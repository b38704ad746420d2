"""Compile a graph with the migraphx module, calibrated on given data: python3 migraphx_compile.py SETTINGS.

Runs where the module is, with Python 3.7 or newer and numpy, and knows nothing of the program that wrote it. Relative
paths are relative to the working folder. The last line of a finished run begins with ``migraphx_compile: done``.
"""

from __future__ import annotations

import glob
import importlib
import json
import os
import sys
from typing import Any

NO_MODULE = 86
"""The exit code that says that this Python has no migraphx module."""


def say(text: str) -> None:
    """One line for the log."""
    sys.stdout.write("migraphx_compile: " + text + "\n")
    sys.stdout.flush()


def calibration_files(settings: dict[str, Any]) -> list[str]:
    """The files to calibrate with, in order."""
    found: list[str] = []
    for folder in settings["calibration"]:
        # In a bundle the reference outputs lie beside the samples, as NNN.reference.npz.
        found += sorted(glob.glob(os.path.join(folder, "*[0-9].npz")))  # noqa: PTH118, PTH207
    limit = settings["calibration_samples"]
    return found[:limit] if limit else found


def calibration(migraphx: Any, program: Any, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The data of every file whose shapes the program takes, as the module wants them."""
    import numpy as np

    shapes = {name: list(shape.lens()) for name, shape in program.get_parameter_shapes().items()}
    data: list[dict[str, Any]] = []
    for path in calibration_files(settings):
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: np.asarray(stored[name], order="C") for name in stored.files if name in shapes}
        lacking = [name for name in shapes if name not in arrays]
        # MIGraphX says of a scalar that it has one element.
        wrong = [name for name, array in arrays.items() if (list(array.shape) or [1]) != (shapes[name] or [1])]
        if lacking or wrong:
            why = "no " + ", ".join(lacking) if lacking else "other shape of " + wrong[0]
            say(f"left out {path}: {why}")
            continue
        data.append({name: migraphx.argument(array) for name, array in arrays.items()})
    return data


def quantize(migraphx: Any, program: Any, target: Any, settings: dict[str, Any]) -> None:
    """Quantize in the order of the driver. int8 and fp8 need data."""
    for precision in settings["precisions"]:
        function = getattr(migraphx, "quantize_" + precision, None)
        if function is None:
            raise RuntimeError("this migraphx module has no quantize_" + precision)
        say("quantizing to " + precision)
        if precision in ("fp16", "bf16"):
            function(program)
            continue
        data = calibration(migraphx, program, settings)
        if not data:
            raise RuntimeError("no calibration data fits the inputs: " + str(program.get_parameter_shapes()))
        say(f"calibrating on {len(data)} samples")
        function(program, target, calibration=data)


def find_module() -> Any:
    """The module, where Python finds it, or in the folders that ROCm and DTK keep it in."""
    try:
        return importlib.import_module("migraphx")
    except ImportError:
        roots = (os.environ.get("ROCM_PATH", "/opt/rocm"), "/opt/dtk", "/opt/rocm", "/usr/local")
        sys.path.extend(root + "/lib" for root in roots)
        return importlib.import_module("migraphx")


def main() -> int:
    """Run the settings named on the command line; gives the exit code."""
    with open(sys.argv[1], encoding="utf-8") as stream:
        settings = json.load(stream)
    try:
        migraphx = find_module()
    except ImportError as error:
        say("no module: " + str(error))
        return NO_MODULE
    try:
        program = migraphx.parse_onnx(settings["model"], map_input_dims=settings["input_dims"])
        target = migraphx.get_target(settings["target"])
        quantize(migraphx, program, target, settings)
        extra = {"exhaustive_tune": True} if settings["exhaustive_tune"] else {}
        program.compile(target, offload_copy=settings["offload_copy"], fast_math=settings["fast_math"], **extra)
        migraphx.save(program, settings["output"])
    except (RuntimeError, TypeError, ValueError, OSError) as error:
        sys.stderr.write("  what():  " + str(error) + "\n")
        return 1
    say("done with " + str(getattr(migraphx, "__version__", "an unknown version")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
