"""Build an ONNX graph for Rockchip's NPU, and export or simulate it: python rknn_build.py SETTINGS.

Runs where rknn-toolkit2 is installed, and knows nothing of the program that wrote it. Its simulator does not run an
exported file, so a simulation builds again. The last line of a finished run is ``rknn_build: done``.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import time
from typing import Any

import numpy as np

RULE = re.compile(r"rules\.\w{1,40}\._p_(\w{1,100})")
"""Where a traceback of the toolkit names a rule of its optimizer."""


def say(text: str) -> None:
    """One line for the log."""
    sys.stdout.write("rknn_build: " + text + "\n")
    sys.stdout.flush()


def step(name: str, code: Any) -> None:
    """Stop where a step of the toolkit says that it failed."""
    say(f"{name}: {code or 0}")
    if code:
        sys.exit(3)


def dataset(settings: dict[str, Any]) -> str | None:
    """The toolkit's list of calibration inputs: one line for each, a ``.npy`` per input."""
    if not settings["calibration"]:
        return None
    lines = []
    for number, path in enumerate(settings["calibration"]):
        with np.load(path, allow_pickle=False) as stored:
            names = [f"calibration-{number}-{place}.npy" for place in range(len(settings["inputs"]))]
            for name, key in zip(names, settings["inputs"], strict=True):
                np.save(name, stored[key])
        lines.append(" ".join(names))
    with open("dataset.txt", "w", encoding="utf-8") as stream:
        stream.write("\n".join(lines) + "\n")
    return "dataset.txt"


def simulate(toolkit: Any, settings: dict[str, Any]) -> None:
    """Run every sample on the simulator."""
    step("init_runtime", toolkit.init_runtime(target=None))
    times = []
    for source, target in settings["samples"]:
        with np.load(source, allow_pickle=False) as stored:
            arrays = [stored[name] for name in settings["inputs"]]
        layouts = ["nchw" if array.ndim == 4 else None for array in arrays]
        begun = time.perf_counter()
        outputs = toolkit.inference(inputs=arrays, data_format=layouts if any(layouts) else None)
        times.append(time.perf_counter() - begun)
        np.savez(target, **{str(number): array for number, array in enumerate(outputs)})
    with open(settings["times"], "w", encoding="utf-8") as stream:
        json.dump(times, stream)


def built(settings: dict[str, Any], left_out: list[str]) -> Any:
    """A toolkit that has built the graph. A rule of its optimizer that fails is left out, once, and said so."""
    toolkit: Any = importlib.import_module("rknn.api").RKNN(verbose=False)
    try:
        step("config", toolkit.config(target_platform=settings["platform"], disable_rules=left_out))
        step("load_onnx", toolkit.load_onnx(model=settings["model"]))
        step("build", toolkit.build(do_quantization=settings["int8"], dataset=dataset(settings)))
    except ValueError as error:
        toolkit.release()
        rule = RULE.search(str(error))
        if rule is None or left_out:
            raise
        say("the optimizer's rule " + rule[1] + " fails on this graph: building without it")
        return built(settings, [rule[1]])
    return toolkit


def main() -> int:
    """Run the settings named on the command line; gives the exit code."""
    with open(sys.argv[1], encoding="utf-8") as stream:
        settings = json.load(stream)
    toolkit = built(settings, [])
    try:
        if settings["output"]:
            step("export_rknn", toolkit.export_rknn(settings["output"]))
            if not os.path.getsize(settings["output"]):  # noqa: PTH202
                step("export_rknn gave an empty file", 1)
        else:
            simulate(toolkit, settings)
    finally:
        toolkit.release()
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
