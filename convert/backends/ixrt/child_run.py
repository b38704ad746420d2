"""Run an IxRT engine on samples: python ixrt_run.py SETTINGS.

Runs in the SDK's interpreter, with ixrt, cuda-python and numpy. Each sample is an ``.npz`` by input name; outputs are
written as ``0``, ``1``, … in the engine's order. The last line of a finished run is ``ixrt_run: done``.
The calls are those of ixrtexec itself (Deep-Spark/iluvatar-corex-ixrt ixrt/cli/ixrtexec.py).
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

NO_MODULE = 86
"""The exit code that says that this Python lacks a module."""


def say(text: str) -> None:
    """One line for the log."""
    sys.stdout.write("ixrt_run: " + text + "\n")
    sys.stdout.flush()


class Device:
    """Memory of the card, through the CUDA-like runtime."""

    def __init__(self, cudart: Any) -> None:
        self.cudart = cudart
        self.held: list[Any] = []

    def checked(self, answer: Any) -> Any:
        """What a call of the runtime gave beside its error."""
        if answer[0] != self.cudart.cudaError_t.cudaSuccess:
            raise RuntimeError("CUDA error " + str(answer[0]))
        return answer[1] if len(answer) > 1 else None

    def memory(self, size: int) -> Any:
        """New memory on the card."""
        self.held.append(self.checked(self.cudart.cudaMalloc(max(size, 1))))
        return self.held[-1]

    def release(self) -> None:
        """Give back what was taken for a sample."""
        while self.held:
            self.checked(self.cudart.cudaFree(self.held.pop()))


def run_sample(ixrt: Any, engine: Any, device: Device, arrays: dict[str, Any]) -> tuple[list[Any], float]:
    """The outputs of one sample, in the engine's order, and the seconds of the run without its copies."""
    import numpy as np

    kinds = device.cudart.cudaMemcpyKind
    context = engine.create_execution_context()
    places = range(engine.num_bindings)
    inputs = [place for place in places if engine.binding_is_input(place)]
    for place in inputs:
        name = engine.get_binding_name(place)
        if any(size < 0 for size in engine.get_binding_shape(place)):
            context.set_input_shape(name, list(arrays[name].shape))
    pointers = [0] * engine.num_bindings
    for place in places:
        name = engine.get_binding_name(place)
        dtype = np.dtype(ixrt.nptype(engine.get_binding_dtype(place)))
        if place in inputs:
            array = np.asarray(arrays[name], order="C")
            array = array.view(dtype) if array.dtype.itemsize == dtype.itemsize else array.astype(dtype)
            pointers[place] = device.memory(array.nbytes)
            device.checked(device.cudart.cudaMemcpy(pointers[place], array, array.nbytes, kinds.cudaMemcpyHostToDevice))
        else:
            pointers[place] = device.memory(context.get_max_output_size(name))
    stream = device.checked(device.cudart.cudaStreamCreate())
    begun = time.perf_counter()
    if not context.execute_async_v2(pointers, stream):
        raise RuntimeError("Caught error during execution, please check logging message")
    device.checked(device.cudart.cudaStreamSynchronize(stream))
    seconds = time.perf_counter() - begun
    outputs = [
        fetched(ixrt, engine, context, device, place, pointers[place]) for place in places if place not in inputs
    ]
    device.checked(device.cudart.cudaStreamDestroy(stream))
    device.release()
    return outputs, seconds


def fetched(ixrt: Any, engine: Any, context: Any, device: Device, place: int, pointer: Any) -> Any:
    """One output, copied from the card. bfloat16 comes as 16-bit integers and leaves as float32."""
    import numpy as np

    kind = engine.get_binding_dtype(place)
    array = np.zeros(list(context.get_binding_shape(place)), np.dtype(ixrt.nptype(kind)))
    copy = device.cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
    if array.nbytes:
        device.checked(device.cudart.cudaMemcpy(array, pointer, array.nbytes, copy))
    if kind == ixrt.bfloat16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def main() -> int:
    """Run the settings named on the command line; gives the exit code."""
    with open(sys.argv[1], encoding="utf-8") as stream:
        settings = json.load(stream)
    try:
        ixrt = importlib.import_module("ixrt")
        cudart = importlib.import_module("cuda.cudart")
        np = importlib.import_module("numpy")
    except ImportError as error:
        say("no module: " + str(error))
        return NO_MODULE
    try:
        logger = ixrt.Logger(ixrt.Logger.WARNING)
        with open(settings["artifact"], "rb") as stored:
            engine = ixrt.Runtime(logger).deserialize_cuda_engine(stored.read())
        if engine is None:
            raise RuntimeError("the engine can't be loaded by IxRT " + str(ixrt.__version__))
        device = Device(cudart)
        times = []
        for source, destination in settings["samples"]:
            with np.load(source, allow_pickle=False) as sample:
                arrays = {name: sample[name] for name in sample.files}
            outputs, seconds = run_sample(ixrt, engine, device, arrays)
            times.append(seconds)
            np.savez(destination, **{str(number): output for number, output in enumerate(outputs)})
        if settings.get("times"):
            with open(settings["times"], "w", encoding="utf-8") as stream:
                json.dump(times, stream)
    except (RuntimeError, TypeError, ValueError, OSError, KeyError) as error:
        sys.stderr.write("error: " + type(error).__name__ + ": " + str(error) + "\n")
        return 1
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
