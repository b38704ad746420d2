"""Run a QNN context from disk on samples, on the HTP's simulator: python qnn_run.py SETTINGS.

Each sample is an ``.npz`` by input name; its outputs are written as arrays ``0``, ``1``, … in the model's order. The
options of the session are those of ``qnn_compile.py``, which lies beside this script.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

import numpy as np

onnxruntime: Any = importlib.import_module("onnxruntime")
qnn_compile: Any = importlib.import_module("qnn_compile")


def main() -> int:
    """Run the settings named on the command line; gives the exit code."""
    with open(sys.argv[1], encoding="utf-8") as stream:
        settings = json.load(stream)
    session = onnxruntime.InferenceSession(settings["artifact"], qnn_compile.session_options(settings))
    names = [node.name for node in session.get_inputs()]
    times = []
    for source, target in settings["samples"]:
        with np.load(source, allow_pickle=False) as stored:
            feeds = {name: stored[name] for name in names}
        begun = time.perf_counter()
        outputs = session.run(None, feeds)
        times.append(time.perf_counter() - begun)
        np.savez(target, **{str(number): array for number, array in enumerate(outputs)})
    with open(settings["times"], "w", encoding="utf-8") as stream:
        json.dump(times, stream)
    sys.stdout.write("qnn_run: done\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
