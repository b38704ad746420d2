"""Run OpenVINO IR from disk on samples: python openvino_run.py SETTINGS.

Each sample is an ``.npz`` by input name; its outputs are written as arrays ``0``, ``1``, … in the model's order. The
first line of a finished run names the device; the last is ``openvino_run: done``.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import openvino as ov


def say(text: str) -> None:
    """One line for the log."""
    sys.stdout.write("openvino_run: " + text + "\n")
    sys.stdout.flush()


def feed(compiled: Any, arrays: dict[str, Any], names: list[str]) -> dict[int, Any]:
    """Arrays by the number of the input. The graph's names are kept as tensor names; else the order counts."""
    chosen: dict[int, Any] = {}
    for number, port in enumerate(compiled.inputs):
        own = [name for name in port.get_names() if name in arrays]
        chosen[number] = arrays[own[0] if own else names[number]]
    return chosen


def main() -> int:
    """Run the settings named on the command line; gives the exit code."""
    with open(sys.argv[1], encoding="utf-8") as stream:
        settings = json.load(stream)
    core = ov.Core()
    compiled = core.compile_model(core.read_model(settings["artifact"]), settings["device"], settings["hints"])
    say("device " + core.get_property(settings["device"], "FULL_DEVICE_NAME"))
    request = compiled.create_infer_request()
    times = []
    for source, target in settings["samples"]:
        with np.load(source, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        given = feed(compiled, arrays, settings["inputs"])
        begun = time.perf_counter()
        request.infer(given, share_inputs=False)
        times.append(time.perf_counter() - begun)
        outputs = {str(number): request.get_output_tensor(number).data for number in range(len(compiled.outputs))}
        np.savez(target, **outputs)
    with open(settings["times"], "w", encoding="utf-8") as stream:
        json.dump(times, stream)
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
