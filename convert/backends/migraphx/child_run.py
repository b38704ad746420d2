"""Run a compiled program on samples with the migraphx module: python3 migraphx_run.py [SETTINGS].

Runs where the module is, with Python 3.7 or newer and numpy. Each sample is an ``.npz`` by input name; the outputs are
written as ``0``, ``1``, … in order, one file a sample. The last line of a finished run begins with
``migraphx_run: done``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

NO_MODULE = 86
"""The exit code that says that this Python has no migraphx module."""


def say(text: str) -> None:
    """One line for the log."""
    sys.stdout.write("migraphx_run: " + text + "\n")
    sys.stdout.flush()


def on_host(program: Any, arrays: dict[str, Any]) -> list[Any]:
    """A program that copies inputs and outputs itself, or runs on the host."""
    return list(program.run(arrays))


def on_device(migraphx: Any, program: Any, arrays: dict[str, Any]) -> list[Any]:
    """A program whose inputs and outputs lie in device memory; it has parameters for its outputs too."""
    given: dict[str, Any] = {}
    for name, shape in program.get_parameter_shapes().items():
        if name in arrays:
            given[name] = migraphx.to_gpu(migraphx.argument(arrays[name]))
        else:
            given[name] = migraphx.allocate_gpu(shape)
    return [migraphx.from_gpu(output) for output in program.run(given)]


def reshaped(program: Any, arrays: dict[str, Any]) -> None:
    """Hygon's fork is built at the greatest shape and takes another one by ``reshape``."""
    if hasattr(program, "reshape"):
        program.reshape(inputs={name: list(array.shape) for name, array in arrays.items()})


def run(migraphx: Any, settings: dict[str, Any]) -> None:
    """Load the program once and run every sample."""
    import numpy as np

    program = migraphx.load(settings["artifact"])
    say("loaded by " + str(getattr(migraphx, "__version__", "an unknown version")))
    times = []
    for source, destination in settings["samples"]:
        with np.load(source, allow_pickle=False) as stored:
            arrays = {name: np.asarray(stored[name], order="C") for name in stored.files}
        if settings["reshape"]:
            reshaped(program, arrays)
        begun = time.perf_counter()
        outputs = on_host(program, arrays) if settings["host"] else on_device(migraphx, program, arrays)
        times.append(time.perf_counter() - begun)
        os.makedirs(os.path.dirname(destination), exist_ok=True)  # noqa: PTH103, PTH120
        named: dict[str, Any] = {str(number): np.array(output) for number, output in enumerate(outputs)}
        np.savez(destination, **named)
    if settings.get("times"):
        with open(settings["times"], "w", encoding="utf-8") as stream:
            json.dump(times, stream)


def find_module() -> Any:
    """The module, where Python finds it, or in the folders that ROCm and DTK keep it in."""
    try:
        return importlib.import_module("migraphx")
    except ImportError:
        roots = (os.environ.get("ROCM_PATH", "/opt/rocm"), "/opt/dtk", "/opt/rocm", "/usr/local")
        sys.path.extend(root + "/lib" for root in roots)
        return importlib.import_module("migraphx")


def main() -> int:
    """Run the settings named on the command line, or those that lie here; gives the exit code."""
    with open(sys.argv[1] if len(sys.argv) > 1 else "migraphx_run.json", encoding="utf-8") as stream:
        settings = json.load(stream)
    try:
        migraphx = find_module()
    except ImportError as error:
        say("no module: " + str(error))
        return NO_MODULE
    try:
        run(migraphx, settings)
    except (RuntimeError, TypeError, ValueError, OSError) as error:
        sys.stderr.write("  what():  " + str(error) + "\n")
        return 1
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
