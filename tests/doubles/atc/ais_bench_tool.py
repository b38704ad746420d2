"""A stand-in for ``python3 -m ais_bench``: one sample in, outputs as .npy, throughput in the spelling asked for."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, os.environ["ATC_DOUBLE_CODE"])
from om_format import compute, read_om

SPELLINGS = {
    "2022": "[INFO] throughput 1000*batchsize(1)/NPU_compute_time.mean(2.0): 500.0",
    "2023": "[INFO] throughput 1000*batchsize.mean(1)/NPU_compute_time.mean(2.0): 500.0",
    "2025": "[INFO] Throughput 1000*batchsize.mean(1)/NPU_compute_time.mean(2.0): 500.0",
}


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in (
        "model",
        "input",
        "output",
        "output_dirname",
        "outfmt",
        "dymBatch",
        "dymHW",
        "dymDims",
        "dymShape",
        "outputSize",
        "loop",
        "warmup_count",
    ):
        parser.add_argument(f"--{name}")
    given = parser.parse_args()
    about, model = read_om(Path(given.model))
    wanted = {"dynamic_batch_size": given.dymBatch, "dynamic_image_size": given.dymHW, "dynamic_dims": given.dymDims}
    if about["stepped"] and not wanted[about["stepped"]]:
        sys.stdout.write("[ERROR] the model is dynamic: set the step\n")
        return 1
    if about["ranged"] and not (given.dymShape and given.outputSize):
        sys.stdout.write("[ERROR] dymShape and outputSize are needed\n")
        return 1
    files = [Path(name) for name in given.input.split(",")]
    fixed = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in fixed]
    feeds = dict(zip(names, (np.load(path) for path in files), strict=True))
    out = Path(given.output) / given.output_dirname
    out.mkdir(parents=True)
    for index, array in enumerate(compute(about, model, feeds)):
        np.save(out / f"{files[0].stem}_{index}.npy", array)
    times = {"min": 1.9, "max": 2.1, "mean": 2.0, "median": 2.0, "percentile(99%)": 2.1, "count": int(given.loop or 1)}
    (Path(given.output) / f"{given.output_dirname}_summary.json").write_text(
        json.dumps({"NPU_compute_time": times, "throughput": 500.0})
    )
    sys.stdout.write(SPELLINGS[os.environ.get("AIS_BENCH_SPELLING", "2023")] + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
