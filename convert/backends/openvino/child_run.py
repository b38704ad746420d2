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

CONSTANT = ("Constant", "Parameter", "Result")


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


def tell_all(model: Any, path: str) -> None:
    """Make every float value that has a name an output, behind the model's own; write the names of all outputs."""
    ports = [port for op in model.get_ordered_ops() for port in op.outputs() if op.get_type_name() not in CONSTANT]
    named = [port for port in ports if port.get_names() and port.get_element_type().is_real()]
    known = [sorted(port.get_names()) for port in model.outputs]
    taken = {name for names in known for name in names}
    more = [port for port in named if not port.get_names() & taken]
    model.add_outputs(more)
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(known + [sorted(port.get_names()) for port in more], stream)


def main() -> int:
    """Run the settings named on the command line; gives the exit code."""
    with open(sys.argv[1], encoding="utf-8") as stream:
        settings = json.load(stream)
    core = ov.Core()
    device, compute = settings["device"], settings["compute"]
    if compute == "f16" and "FP16" not in core.get_property(device, "OPTIMIZATION_CAPABILITIES"):
        compute = "f32"
    hints = {"INFERENCE_PRECISION_HINT": compute}
    model = core.read_model(settings["artifact"])
    if "values" in settings:
        tell_all(model, settings["values"])
    compiled = core.compile_model(model, device, hints)
    say("device " + core.get_property(device, "FULL_DEVICE_NAME") + ", computing in " + compute)
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
